"""What is told of runs today: rows of several runs, and what a question says of them. Then which runs are shown
together, and how what is left out is named."""

import copy
import datetime
import functools
import math
import operator
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from littles import record

from mxdp.experiments.lab.told import NO_ANSWER, Told, rows_of, told
from mxdp.experiments.show import measured, together, words


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


def of_run(number, count=3, lacks=()):
    """A run whose ``number`` is its value of ``a``; first processes have one number more."""
    run = record(started=str(number))
    run["rows"] = [row for row in run["rows"] if row["label"] not in lacks]
    for row in run["rows"]:
        row["processes"] = [{"a": float(number), "parts": {"x": 1.0}} for _ in range(count)]
        row["processes"][0]["first"] = 1.0
    return run


@given(st.lists(st.dictionaries(st.sampled_from(LABELS), st.integers(1, 6), min_size=1), min_size=1, max_size=4))
def test_each_number_stands_with_its_run_whichever_runs_lack_a_row(counts):
    results = []
    for number, of_labels in enumerate(counts):
        rows = [row for row in record()["rows"] if row["label"] in of_labels]
        results.append({**record(), "rows": rows})
        for row in rows:
            row["processes"] = [{"a": number}] * of_labels[row["label"]]
    runs = [number for number, of_labels in enumerate(counts) for _ in range(max(of_labels.values()))]
    for row in rows_of(results):
        had = [number for number, of_labels in enumerate(counts) for _ in range(of_labels.get(row.label, 0))]
        assert (row.a.runs, [value for value in row.a.values if value is not None]) == (runs, had)
        assert all(value in (None, number) for value, number in zip(row.a.values, runs))


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
    runs, said, values, of_runs = [of_run(9)], [], [9.0] * 3, [0] * 3
    for number, (count, damage) in enumerate(others):
        label, name, at, value = damage or (None, None, 0, None)
        run = of_run(number, count, [label] if name == "" else [])
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
    about = told(None, [of_run(0, 2, ["ceiling"]), of_run(1, 1, ["1 device"])])
    lacks = "The run of {} is left out: it lacks the case {!r}."
    assert about.sentence == f"{NO_ANSWER} ({lacks.format(0, 'ceiling')} {lacks.format(1, '1 device')})"
    values = {row.label: row.a.values for row in about}
    assert values == {"1 device": [0, 0, None], "2 devices": [0, 0, 1], "ceiling": [None, None, 1]}


def test_a_run_whose_first_process_lacks_what_its_others_have_is_left_out():
    runs = [of_run(0, 1), of_run(1, 2)]
    runs[1]["rows"][0]["processes"][1]["late"] = 1.0
    assert told(None, runs).left_out == ["The run of 1 is left out: it lacks 'late' of '1 device'."]


def test_a_question_that_is_not_installed_or_can_not_tell_shows_its_numbers():
    def half(t, s):
        t.column("nosuch")
        raise KeyError

    for question in (None, SimpleNamespace(preset=lambda size: {}, tell=half)):
        about = told(question, [record()])
        assert [(column.name, column.heading) for column in about.columns] == [
            ("seconds", "s"),
            ("accuracy", "accuracy"),
        ]
        assert [panel.name for panel in about.panels] == ["seconds"]
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


# Together

ANY = {"memory_bytes", "platform", "versions mxdp", "variables MXDP_DATA_DIR"}
"""What may differ between runs that are shown together: the room and the system; that is in the commit; effort."""
EFFORT = {"processes", "data_dir"}
NAMES = {"gpus": "GPUs", "cpu_model": "processor", "python": "Python"}
VARIABLES = ("OMP_NUM_THREADS", "MXNET_CPU_TEMP_COPY", "OPENBLAS_CORETYPE", "MXDP_PREPARE", "MXDP_DATA_DIR")


def at(day, hour=3, minute=4, **changes):
    """A run of that moment; what ``changes`` of its environment."""
    found = record(started=f"2025-01-{day:02}T{hour:02}:{minute:02}:00+00:00")
    environment = found["environment"]
    for name, value in changes.items():
        environment[name] = {**environment[name], **value} if isinstance(value, dict) else value
    return found


def conditions():
    """Each part of an environment, and of the settings: where it is, and how it is named in a sentence."""
    known = at(1, variables=dict.fromkeys(VARIABLES, "1"))
    for name, value in known["environment"].items():
        if isinstance(value, dict):
            for key in value:
                yield ("environment", name, key), f"processor's {key}" if name == "processor" else key
        else:
            yield ("environment", name), NAMES.get(name, name)
    for name in known["settings"]:
        yield ("settings", name), name


def changed(run, place, value):
    """A copy with that value there, and the value that was there."""
    run = copy.deepcopy(run)
    *folders, last = place
    part = functools.reduce(operator.getitem, folders, run)
    original, part[last] = part[last], value
    return run, original


PLACES = list(conditions())


@given(st.sampled_from(PLACES), st.lists(st.booleans(), min_size=1, max_size=6), st.booleans())
def test_runs_that_are_unlike_are_not_pooled_and_are_named_by_their_difference(place, others, newest):
    """Of several runs some differ in one thing; at the end comes a plain one, or one that differs."""
    (where, name) = place
    plain = [at(day, variables={name: "1"} if "variables" in where else {}) for day in range(1, len(others) + 2)]
    which = [*others, newest]
    others = [changed(run, where, "other") for run in plain]
    runs = [other if is_other else run for run, (other, _), is_other in zip(plain, others, which)]
    alike = " ".join(where[1:]) in ANY or where[-1] in EFFORT
    expected = [run for run, other in zip(runs, which) if alike or other is newest]
    left = len(runs) - len(expected)
    said = [f"{left} run{'s' * (left > 1)} with {name}={others[0][1] if newest else 'other'}"] if left else []
    assert together.left_out(runs) == said
    s = words.shown(runs)
    assert s.runs == expected
    assert words.sureness(s).endswith(f" Left out: {said[0]}." if left else ".")
    for count, of in ((3, "fake, fake, fake"), (4, "4 experiments")):
        assert measured.line([s] * count).endswith(f" Left out of {of}: {said[0]}." if left else ".")


def test_what_only_one_has_and_how_a_run_ended_count_too():
    without, both, new = at(1), at(2, variables={"OMP_NUM_THREADS": "2"}, processor={"model": "1"}), at(9)
    without["environment"]["variables"] = {}
    said = ["1 run with no OMP_NUM_THREADS", "1 run with processor's model=1 and OMP_NUM_THREADS=2"]
    assert together.left_out([without, both, new]) == said
    assert together.left_out([record(status="failed"), new]) == ["1 run with status=failed"]


def test_nobody_knows_which_code_a_checkout_with_changes_had():
    runs = [at(1, commit="0123456789ab+"), at(2, commit="0123456789ab+")]
    assert together.together(runs) == runs[1:]
    assert together.left_out(runs) == ["1 run with commit=0123456789ab+ at 2025-01-01T03:04:00+00:00"]
    installed = [at(1, commit=None), at(2, commit=None), at(3, commit=None, versions={"mxdp": "0.3.0"})]
    assert together.left_out(installed) == ["2 runs with commit=mxdp 0.2.0"]


def test_across_commits_all_else_must_be_alike():
    runs = [at(1, commit="aaaaaaaaaaaa"), at(2, commit="bbbbbbbbbbbb"), at(3, cores=4), at(4)]
    assert together.together(runs, across_commits=True) == [*runs[:2], runs[3]]
    assert together.left_out(runs, across_commits=True) == ["1 run with cores=4"]
    said = measured.line([words.shown(runs, across_commits=True)])
    assert said.startswith("at 3 commits, aaaaaaa to 0123456, Example <CPU> ")
    assert ", 2025-01-01 to 04: 3 runs. Left out" in said


def test_a_page_says_once_how_most_were_measured_and_a_result_what_it_has_otherwise():
    usual, close = [at(1, 3), at(1, 5), at(2, 7)], [at(1, 3), at(1, 3, 24), at(2)]
    elsewhere = [at(2, cpu_model="Other", commit="feedfacecafe+", processor={"vectors": "AVX2"})]
    results = [words.shown(runs) for runs in (usual, close, usual, elsewhere, usual[:1])]
    here = "Example <CPU> (family 25, model 17, AVX-512), 2 cores"
    assert measured.line(results).startswith(f"at 0.2.0 (0123456), {here}, 2025-01-01 to 02: 3 runs.")
    other = "1 run at 0.2.0 (feedfac with changes), Other (family 25, model 17, AVX2), 2 cores, 2025-01-02"
    marks = ["", "3 runs 20 min apart", "", other, "1 run"]
    assert [measured.mark(s, measured.usual(results)) for s in results] == marks


def test_a_machine_is_named_by_what_is_known_of_it():
    found = at(1, cpu_model=None, gpus=["gpu(0)"])
    found["environment"].update(processor={}, versions={}, commit=None)
    assert measured.code([found]) == "mxdp of an unknown version"
    for name in ("gpu(0)", "H200"):
        assert measured.machine(words.told_of([found])) == f"unknown processor, 2 cores, {name}"
        for row in found["rows"]:
            row["facts"]["processor"] = "H200"


@given(st.lists(st.integers(0, 200), min_size=1, max_size=4), st.integers(0, 300))
def test_an_hour_is_from_the_end_of_one_run_to_the_start_of_the_next(minutes, took):
    """Each run begins so many minutes after the one before began."""
    runs, start = [], datetime.datetime(2025, 1, 1)
    for passed in (0, *minutes):
        start += datetime.timedelta(minutes=passed)
        runs.append(record(started=start.isoformat(), elapsed_seconds=float(took)))
    least = min(round(passed - took / 60) for passed in minutes)
    assert measured.often(runs) == f"{len(runs)} runs" + (f" {least} min apart" if least < 60 else "")
