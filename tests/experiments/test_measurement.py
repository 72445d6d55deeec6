"""The order of a measurement with processes that cost nothing: each answer takes one second of a clock of ours."""

from __future__ import annotations

import faulty
import psutil
import pytest
from measuring import lengths, measure

from mxdp.experiments.harness import disturbance, measurement
from mxdp.experiments.harness.children import ChildGone

ANSWERS = {
    "load": {},
    "oracle": {"checked": 10, "wrong": 0},
    "ready": {"devices": ["made(0)"], "case": {}, "shared": {}, "variables": {}, "modules": [], "records": False},
    "round": {"seconds": 1.0, "metrics": {}, "last": {}},
}


class Numbered(dict):
    """Rounds of different length: of each three of a case, one takes a second, one two and one three."""

    def __init__(self):
        super().__init__(ANSWERS["round"])
        self.number = 0

    def __getitem__(self, key):
        self.number += key == "seconds"
        return 1.0 + (self.number // 2) % 3 if key == "seconds" else super().__getitem__(key)


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

        def load(self):
            self.ask("load", "loading MXNet")

        def ask(self, command, doing):
            commands.append(command)
            self.seconds_left -= 1
            if self.seconds_left < 0:
                raise ChildGone("timeout", f"too late while {doing}")
            return [ANSWERS[command]]

    class Children:
        def __init__(self, experiment, settings, folder, kept, stack):
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
def test_the_time_limit_counts_all_that_a_case_does_in_one_process(asked, tmp_path, repeats, enough):
    needed = 1 + 1 + 1 + 2  # loading MXNet, the oracle, which the first process alone has, setting up and two rounds
    result = measure(faulty.Good, tmp_path, repeats=repeats, rounds=2, timeout=needed - (not enough))
    assert result["status"] == ("ok" if enough else "timeout")
    assert lengths(result) == dict.fromkeys(["case 1", "case 2"], 2 * repeats if enough else 1)


@pytest.mark.parametrize(
    ("budget", "processes", "rounds"),
    [
        (0.0, 3, 3),
        (17.9, 3, 3),
        (18.0, 6, 1),  # a process takes 4 s to start, and 2 s for a round
        (30.0, 6, 3),
        (90.0, 9, 5),
    ],
)
def test_a_budget_plans_more_processes(asked, tmp_path, monkeypatch, budget, processes, rounds):
    monkeypatch.setattr(measurement.time, "monotonic", lambda: float(len(asked)))
    monkeypatch.setitem(ANSWERS, "round", Numbered())
    result = measure(faulty.Good, tmp_path, repeats=3, rounds=3, budget=budget)
    assert (result["plan"]["processes"], result["plan"]["rounds"]) == (processes, rounds)
    assert result["rows"][0].rounds["repeat"] == sorted([*range(3)] * 3 + [*range(3, processes)] * rounds)
    assert (result["plan"]["start_seconds"], result["plan"]["round_seconds"]) == (4.0, 2.0)
