"""What is told of runs today: rows of several runs, and what a question says of them."""

from __future__ import annotations

import copy
import math
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from littles import record

from mxdp.experiments.lab import Number
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


VALUE = st.sampled_from([1.0, 2.0, None, math.nan, math.inf])


@settings(max_examples=50)
@given(
    st.lists(
        st.dictionaries(  # of each row that a run has, what each of its processes has measured
            st.sampled_from(["1 device", "2 devices", "ceiling"]),
            st.lists(
                st.fixed_dictionaries(
                    {}, optional={"a": VALUE, "b": VALUE, "parts": st.dictionaries(st.sampled_from("xy"), VALUE)}
                ),
                min_size=1,
                max_size=3,
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_a_run_that_lacks_a_number_of_another_is_left_out_and_that_is_said(measured):
    """What first processes alone measure, the others may lack; and a run may have fewer processes."""
    runs = []
    had = []
    for number, rows in enumerate(measured):
        run = record(started=str(number))
        run["rows"] = [{**row, "processes": rows[row["label"]]} for row in run["rows"] if row["label"] in rows]
        runs.append(run)
        at = [set() for _ in range(max([1, *map(len, rows.values())]))]
        for label, processes in rows.items():
            for has, own in zip(at, processes):
                flat = {**own, **{f"parts {name}": value for name, value in own.get("parts", {}).items()}}
                numbers = {name for name, value in flat.items() if isinstance(value, float) and math.isfinite(value)}
                has |= {(label, name) for name in numbers}
        had.append(at)
    firsts = set().union(*(at[0] for at in had))
    others = set().union(*(own for at in had for own in at[1:]))
    left, said = [], []
    for run, at in zip(runs, had):
        missing = ((firsts | set().union(*at[1:])) - at[0]).union(*(others - own for own in at[1:]))
        if not missing:
            left.append(run)
            continue
        label, name = min(missing)
        known = label in {row["label"] for row in run["rows"]}
        what = f"{name!r} of {label!r}" if known else f"the case {label!r}"
        said.append(f"The run of {run['started']} is left out: it lacks {what}.")
    about = told(None, runs)
    assert about.left_out == (said if left else [])
    rows = {row.label: row for row in about}
    shown = left or runs
    assert {row["label"] for run in shown for row in run["rows"]} == set(rows)
    lengths = [max(map(len, [row["processes"] for row in run["rows"]]), default=0) for run in shown]
    for label, row in rows.items():
        expected = []
        for run, length in zip(shown, lengths):
            own = [one["processes"] for one in run["rows"] if one["label"] == label] or [[]]
            values = [process.get("a") for process in own[0]] + [None] * (length - len(own[0]))
            expected += [value if value is not None and math.isfinite(value) else None for value in values]
        if isinstance(row.get("a"), Number):
            assert row.a.values == expected
            assert row.a.runs == [at for at, length in enumerate(lengths) for _ in range(length)]
    if rows:
        why = "" if left or not all(run["rows"] for run in runs) else f" ({' '.join(said)})"
        assert about.sentence == NO_ANSWER + why


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
