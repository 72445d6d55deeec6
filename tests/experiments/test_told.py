"""What is told of runs today: rows of several runs, and what a question says of them."""

from __future__ import annotations

import copy
import math
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from littles import record

from mxdp.experiments.lab.told import NO_ANSWER, Told, rows_of, told


def test_rows_of_several_runs_hold_the_facts_of_the_last():
    first, second = record(), record(started="2025-01-03T03:04:05+00:00")
    second["rows"] = copy.deepcopy(second["rows"][1:])
    second["rows"][0]["facts"]["word"] = "later"
    second["environment"]["cores"] = 7
    one, two, ceiling = rows_of([first, second])
    assert [row.reference for row in (one, two, ceiling)] == [False, False, True]
    assert (two.word, two.devices, two.device_names, two.cores) == ("later", 2, ["cpu(0)", "cpu(1)"], 7)
    with pytest.raises(AttributeError, match="the row 'ceiling' has no 'nosuch'"):
        ceiling.nosuch  # noqa: B018


LABELS = ["1 device", "2 devices", "ceiling"]


def measured(number, count=3, lacks=()):
    """A run whose ``number`` is its value of ``a``; first processes have one number more."""
    run = record(started=str(number))
    run["rows"] = [row for row in run["rows"] if row["label"] not in lacks]
    for row in run["rows"]:
        row["processes"] = [{"a": float(number), "parts": {"x": 1.0}} for _ in range(count)]
        row["processes"][0]["first"] = 1.0
    return run


DAMAGE = st.tuples(
    st.sampled_from(LABELS),
    st.sampled_from(["a", "parts x", "first", ""]),
    st.integers(0, 2),
    st.sampled_from([None, math.nan, math.inf]),
)


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 3), st.none() | DAMAGE), max_size=4))
def test_a_run_that_lacks_a_number_of_another_is_left_out_and_that_is_said(others):
    """A run may have fewer processes. An empty name: it lacks the whole case."""
    runs, said, values, of_runs = [measured(9)], [], [9.0] * 3, [0] * 3
    for number, (count, damage) in enumerate(others):
        label, name, at, value = damage or (None, None, 0, None)
        run = measured(number, count, [label] if name == "" else [])
        if name:
            process = next(row for row in run["rows"] if row["label"] == label)["processes"]
            own = process[0 if name == "first" else at % count]
            (own["parts"] if name == "parts x" else own)[name.split()[-1]] = value
        if damage:
            what = f"{name!r} of {label!r}" if name else f"the case {label!r}"
            said.append(f"The run of {number} is left out: it lacks {what}.")
        else:
            values += [float(number)] * count
            of_runs += [max(of_runs) + 1] * count
        runs.append(run)
    about = told(None, runs)
    assert (about.left_out, about.sentence) == (said, NO_ANSWER)
    assert [row.label for row in about] == LABELS
    assert all((row.a.values, row.a.runs) == (values, of_runs) for row in about)


def test_where_each_run_lacks_another_case_all_are_shown_and_none_answers():
    about = told(None, [measured(0, 2, ["ceiling"]), measured(1, 1, ["1 device"])])
    lacks = "The run of {} is left out: it lacks the case {!r}."
    assert about.sentence == f"{NO_ANSWER} ({lacks.format(0, 'ceiling')} {lacks.format(1, '1 device')})"
    values = {row.label: row.a.values for row in about}
    assert values == {"1 device": [0, 0, None], "2 devices": [0, 0, 1], "ceiling": [None, None, 1]}


def test_a_run_whose_first_process_lacks_what_its_others_have_is_left_out():
    runs = [measured(0, 1), measured(1, 2)]
    runs[1]["rows"][0]["processes"][1]["late"] = 1.0
    assert told(None, runs).left_out == ["The run of 1 is left out: it lacks 'late' of '1 device'."]


def test_a_question_that_is_not_installed_or_can_not_tell_shows_its_numbers():
    def half(t, s):
        t.column("nosuch")
        raise KeyError

    for question in (None, SimpleNamespace(preset=lambda size: {}, tell=half)):
        about = told(question, [record()])
        assert [column.name for column in about.columns] == ["seconds", "accuracy"]
        assert about.sentence.startswith(NO_ANSWER)


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
