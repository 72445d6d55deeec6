"""The order of a measurement with processes that cost nothing: each answer takes one second of a clock of ours."""

from __future__ import annotations

import faulty
import psutil
import pytest
from measuring import lengths, measure

from mxdp.experiments.harness import disturbance, measurement
from mxdp.experiments.harness.children import ChildGone

ANSWERS = {
    "oracle": {"checked": 10, "wrong": 0},
    "ready": {"devices": ["made(0)"], "case": {}, "shared": {}, "variables": {}, "modules": [], "records": False},
    "round": {"seconds": 1.0, "metrics": {}, "last": {}},
}


@pytest.fixture
def asked(monkeypatch):
    """The commands so far. Other programs have all processors, but in the rounds."""
    commands = []

    class Configuration:
        def __init__(self, case, limit):
            self.case, self.seconds_left = case, limit

        def check(self):
            """No other case has harmed it."""

        def give_up(self, failure):
            """There is nothing to stop."""

        def ask(self, command, doing):
            commands.append(command)
            self.seconds_left -= 1
            if self.seconds_left < 0:
                raise ChildGone("timeout", f"too late while {doing}")
            return [ANSWERS[command]]

    class Children:
        def __init__(self, experiment, settings, folder, stack):
            self.limit = settings["timeout"]

        def configuration(self, case, slug):
            return Configuration(case, self.limit)

        def hang_up(self):
            """There is nobody."""

    def read():
        return disturbance._Counters(len(commands), 2 * commands.count("round"), 0.0, 0.0, 0)

    monkeypatch.setattr(measurement, "Children", Children)
    monkeypatch.setattr(disturbance, "_read", read)
    monkeypatch.setattr(disturbance, "_quota", lambda: False)
    monkeypatch.setattr(disturbance.process, "cores", lambda: 2)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    return commands


@pytest.mark.parametrize("repeats", [1, 3])
def test_a_round_is_not_charged_with_what_came_before_it(asked, tmp_path, repeats):
    result = measure(faulty.Good, tmp_path, repeats=repeats)
    assert asked.count("ready") == 2 * repeats
    assert result["disturbance"]["elsewhere"] == [0.0] * 3 * repeats
    assert result["verdict"]["busy"] is None


@pytest.mark.parametrize("repeats", [1, 2, 3])
@pytest.mark.parametrize("enough", [True, False])
def test_the_time_limit_counts_all_that_a_case_does_in_all_its_processes(asked, tmp_path, repeats, enough):
    needed = 1 + repeats * (1 + 2)  # one oracle; in each process, setting up and two rounds
    result = measure(faulty.Good, tmp_path, repeats=repeats, rounds=2, timeout=needed - (not enough))
    assert result["status"] == ("ok" if enough else "timeout")
    assert lengths(result) == dict.fromkeys(["case 1", "case 2"], 2 * repeats - (not enough))
