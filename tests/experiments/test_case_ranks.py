"""Several processes of one case: by every engine that is installed; one that fails ends all."""

from __future__ import annotations

import pytest
import ranked
from littles import little

from mxdp.experiments.lab import ranks, run
from mxdp.experiments.lab.module import Question, lacking

QUESTION = Question(ranked)
pytestmark = pytest.mark.usefixtures("importable")


@pytest.fixture
def measure(tmp_path):
    def measure(**changes):
        missing = lacking(ranks.NEEDS.get(changes.get("engine"), {}))
        if missing:
            pytest.skip(missing)
        return run.run(QUESTION, "quick", little(QUESTION, **changes), tmp_path, lambda *_: None)

    return measure


@pytest.mark.parametrize(("engine", "size"), [*((name, 2) for name in ranks.WORDS), ("", 3), (ranks.SYNC, 1)])
def test_processes_exchange_begin_together_and_the_slowest_decides(measure, engine, size):
    result = measure(engine=engine, size=size, processes=1, rounds=2)
    assert (result["status"], result["error"]) == ("ok", None)
    (row,) = result["rows"]
    assert row["processes"] == [{"seconds": float(size), "process": 0, "waited": 1}]
    assert row["facts"]["process_of_facts"] == 0
    assert row["devices"] == [f"device {number}" for number in range(size)]
    assert row["oracle"]["wrong"] == 0
    assert row["oracle"]["checked"] >= size * size


WHILE = {"oracle": "comparing with the serial run", "set_up": "setting up and warming up", "round": "measuring round 1"}


@pytest.mark.parametrize(
    ("engine", "at", "fault"),
    [
        *(("", at, "raise") for at in WHILE),
        ("", "round", "exit"),
        (ranks.MPI, "round", "raise"),
        (ranks.MPI, "round", "exit"),
        (ranks.SYNC, "round", "raise"),
    ],
)
def test_one_that_fails_ends_the_others_with_its_reason(measure, engine, at, fault):
    result = measure(engine=engine, at=at, fault=fault, timeout=50.0, processes=1)
    said = f"process 1 of 2: ValueError: broken (while {WHILE[at]})" if fault == "raise" else "exit status 3"
    assert result["status"] == "failed"
    assert said in result["error"]
    assert result["elapsed_seconds"] < 50


@pytest.mark.parametrize("engine", ["", ranks.MPI, ranks.ASYNC])
def test_processes_that_hang_are_ended_in_time(measure, engine, hanging):
    result = measure(engine=engine, fault="hang", timeout=900.0, processes=1)
    expected = "all: no answer within the time limit of 900 s while measuring round 1"
    assert (result["status"], result["error"]) == ("timeout", expected)


def test_one_that_can_not_do_it_skips_the_case(measure):
    result = measure(fault="skip", at="oracle")
    assert (result["status"], result["skipped"]) == ("skipped", {"all": "broken"})


def test_a_server_that_dies_is_not_waited_for(measure, monkeypatch):
    usual = ranks.commands

    def commands(*arguments):
        started, servers = usual(*arguments)
        return started, [(["sh", "-c", "exit 7"], environ) for _, environ in servers]

    monkeypatch.setattr(ranks, "commands", commands)
    result = measure(engine=ranks.SYNC, timeout=50.0, processes=1)
    assert "exit status 7" in result["error"]
    assert result["elapsed_seconds"] < 50
