"""A process of a measurement: fences around the clock, and what of it counts."""

from __future__ import annotations

import json
import sys
import types

import pytest

from mxdp.experiments.lab import child
from mxdp.experiments.lab.module import Work


@pytest.fixture
def events(monkeypatch):
    """What happens in a round, in order."""
    found = []
    monkeypatch.setattr(child, "wait", lambda: found.append("fence"))
    monkeypatch.setattr(child.time, "perf_counter", lambda: found.append("clock") or float(found.count("clock")))
    return found


@pytest.fixture
def measure(tmp_path, monkeypatch, events):
    """``measure(round, **order)``: the answers of a process with one case."""

    def measured(work, oracle=lambda case, s: [([1.0], [1.0])], **order):
        module = types.ModuleType("asked")
        module.oracle, module.set_up = oracle, lambda case, s: events.append("set up") or work
        monkeypatch.setitem(sys.modules, "asked", module)
        case = {"label": "a", "devices": 1, "processes": 1, "engine": "", "reference": False}
        asked = {"module": "asked", "settings": {"kind": "cpu"}, "cases": [case], "folders": [str(tmp_path)]}
        how = {"number": 0, "draw": 0, "compare": False, "rounds": 1, **order}
        child.Child({**asked, **how}, tmp_path / "order.json").measure()
        return [json.loads(line) for line in (tmp_path / "answer-0").read_text().splitlines()]

    return measured


def rounds(answers):
    return [line["round"] for line in answers if "round" in line]


def test_a_round_is_timed_between_two_fences(measure, events):
    answers = measure(Work(lambda: events.append("round")), rounds=2)
    assert events == ["set up"] + 2 * ["fence", "clock", "round", "fence", "clock"]
    assert [own["seconds"] for own in rounds(answers)] == [1.0, 1.0]


def test_a_round_may_say_its_own_time(measure):
    assert rounds(measure(Work(lambda: 0))) == [{"seconds": 0}]


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), -1.0, (float("nan"), {})])
def test_a_time_that_can_be_none_fails_the_case(returned, measure):
    answers = measure(Work(lambda: returned))
    assert rounds(answers) == []
    assert "a time is finite and not negative" in answers[-1]["failed"][1]


@pytest.mark.parametrize(
    ("actual", "reason"), [([[1.0], [2.0]], "1 of 2 numbers differ"), ([], "nothing was compared")]
)
def test_nothing_is_set_up_or_timed_before_the_oracle_is_met(actual, reason, measure, events):
    answers = measure(Work(lambda: None), oracle=lambda case, s: [(x, [1.0], 0.0) for x in actual], compare=True)
    assert reason in answers[-1]["failed"][1]
    assert events == ["fence"]  # whoever waits next would meet an error that this case has left


def test_what_is_recorded_is_made_ready_after_the_rounds(measure, events, monkeypatch):
    monkeypatch.setattr(child, "recorded", lambda record, devices: record() or {})
    work = Work(
        lambda: events.append("round"),
        record=lambda: events.append("recorded"),
        prepare=lambda: events.append("prepared"),
    )
    measure(work, compare=True)
    assert [event for event in events if event not in ("fence", "clock")] == ["set up", "round", "prepared", "recorded"]
