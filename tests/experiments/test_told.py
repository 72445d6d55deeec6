"""What is told of runs today: rows of several runs, and what a question says of them."""

from __future__ import annotations

import copy
import types

import pytest
from littles import record

from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.told import NO_ANSWER, Told, rows_of, told


def question(tell):
    module = types.ModuleType("fake", "Is it faster?\n\nMore of it.\n")
    parts = dict.fromkeys(("cases", "expect", "oracle", "set_up"))
    module.__dict__.update(parts, tell=tell, PRESETS={"quick": dict(devices=[1, 2])})
    return Question(module)


def speak(t, s):
    one, two = t.one(label="1 device"), t.one(label="2 devices")
    two.speedup = one.seconds / two.seconds
    t.column("speedup")
    t.claim("Much\n    faster.", two.speedup, at_least=1.5)
    t.answer(f"{two.speedup:.1f} times\n        on {s.devices[-1]}.")


def test_rows_of_several_runs_hold_the_values_of_all():
    first, second = record(), record(started="2025-01-03T03:04:05+00:00")
    second["rows"] = copy.deepcopy(second["rows"][1:])
    for own, busy in zip(second["rows"][0]["processes"], [0.5, 0.6, 0.7]):
        own["busy"] = {"cpu(0)": busy}
    second["rows"][0]["facts"]["word"] = "later"
    one, two, ceiling = rows_of([first, second])
    assert [row.reference for row in (one, two, ceiling)] == [False, False, True]
    assert one.seconds.values == [2.0, 1.0, 4.0, None, None, None]
    assert two.seconds.values == [1.0, 0.5, 2.0] * 2
    assert two.seconds.runs == [0, 0, 0, 1, 1, 1]
    assert two.busy["cpu(0)"].values == [None, None, None, 0.5, 0.6, 0.7]
    assert (two.word, two.devices, two.device_names) == ("later", 2, ["cpu(0)", "cpu(1)"])
    with pytest.raises(AttributeError, match="the row 'ceiling' has no 'nosuch'"):
        ceiling.nosuch  # noqa: B018


def test_it_is_told_anew():
    assert told(question(speak), [record()]).sentence == "2.0 times on 2."
    assert told(question(speak), [record()] * 6).claims["Much faster."].holds is True


def test_a_case_that_failed_leaves_numbers_and_no_answer():
    broken = record(status="failed", error="it fell")
    about = told(question(speak), [broken])
    assert (about.sentence, about.claims, [column.name for column in about.columns]) == (NO_ANSWER, {}, ["speedup"])
    del broken["rows"][0]
    about = told(question(speak), [broken])  # now it can't be told either
    assert (about.sentence, [column.heading for column in about.columns]) == (NO_ANSWER, ["s", "accuracy"])


def test_a_question_that_is_not_installed_shows_its_numbers():
    about = told(None, [record()])
    assert ([column.name for column in about.columns], about.sentence) == (["seconds", "accuracy"], NO_ANSWER)


def test_rows_are_found_by_what_they_are():
    t = Told(rows_of([record()]))
    assert [row.label for row in t] == ["1 device", "2 devices", "ceiling"]
    assert [row.label for row in t.find(devices=1)] == ["1 device"]
    assert t.one(label="ceiling").reference
    assert t.maybe(devices=3) is None
    with pytest.raises(LookupError, match="no row has"):
        t.one(devices=3)
    with pytest.raises(ValueError, match="needs one bound"):
        t.claim("Both.", None, at_most=1, at_least=0)
