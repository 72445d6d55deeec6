"""Which runs are shown together, and how what is left out is named."""

from __future__ import annotations

import copy
import datetime
import functools
import operator

from hypothesis import given
from hypothesis import strategies as st
from littles import record

from mxdp.experiments.show import measured, together, words

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
