"""What is told of runs today: rows of several runs, and what a question says of them."""

from __future__ import annotations

import copy
import math
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


def noisy(number=0):
    """A run whose times are no other run's."""
    run = record(started=f"2025-01-0{1 + number}T00:00:00+00:00")
    for row in run["rows"]:
        for process, own in enumerate(row["processes"]):
            own["seconds"] *= 1 + 0.001 * number + 0.0001 * process * row["case"]["devices"]
    return run


def test_it_is_told_anew():
    about = told(question(speak), [noisy(number) for number in range(6)])
    assert about.sentence == "2.0 (2.0 to 2.0) times on 2."
    assert about.claims["Much faster."].holds is True
    assert told(question(speak), [record()] * 6).claims["Much faster."].holds is None  # one run, six times


BROKEN = [
    (lambda rows: rows.pop(0), "it lacks the case '1 device'"),
    (lambda rows: rows[1]["processes"][2].update(accuracy=math.nan), "it lacks 'accuracy' of '2 devices'"),
    (lambda rows: rows[1]["processes"][1].update(accuracy=None), "it lacks 'accuracy' of '2 devices'"),
    (lambda rows: rows[1]["processes"][0].update(accuracy=math.inf), "it lacks 'accuracy' of '2 devices'"),
    (lambda rows: rows[0]["processes"][1].pop("accuracy"), "it lacks 'accuracy' of '1 device'"),
    (lambda rows: [own.pop("accuracy") for own in rows[1]["processes"]], "it lacks 'accuracy' of '2 devices'"),
]


@pytest.mark.parametrize(("harm", "why"), BROKEN, ids=range(len(BROKEN)))
@pytest.mark.parametrize("which", [0, 2])
def test_a_run_that_lacks_a_number_is_left_out_and_that_is_said(harm, why, which):
    runs = [noisy(number) for number in range(3)]
    harm(runs[which]["rows"])
    about = told(question(speak), runs)
    assert about.left_out == [f"The run of {runs[which]['started']} is left out: {why}."]
    assert {len(row.seconds.values) for row in about} == {6}
    assert about.sentence == "2.0 times on 2."


def test_alone_a_run_with_a_number_that_is_none_has_no_answer():
    run = noisy()
    run["rows"][1]["processes"][1]["accuracy"] = math.nan
    about = told(question(speak), [run])
    assert about.sentence.startswith(NO_ANSWER)
    assert "it lacks 'accuracy' of '2 devices'" in about.sentence
    assert (about.left_out, len(about.rows)) == ([], 2)
    assert about.columns


def test_what_only_the_first_process_measures_is_not_missed():
    runs = [noisy(number) for number in range(2)]
    for run in runs:
        run["rows"][1]["processes"][0]["peak"] = 5.0
    runs[1]["rows"][1]["processes"][1]["peak"] = None
    for row in runs[1]["rows"]:
        del row["processes"][1:]  # a run of one process
    assert told(question(speak), runs).left_out == []


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
