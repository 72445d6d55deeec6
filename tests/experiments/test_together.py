"""Which runs are shown together, and how what is left out is named."""

from __future__ import annotations

import pytest
from littles import record

from mxdp.experiments.show import measured, together, words


def at(day, hour=3, minute=4, **changes):
    """A run of that moment; what ``changes`` of its environment."""
    found = record(started=f"2025-01-{day:02}T{hour:02}:{minute:02}:00+00:00")
    for name, value in changes.items():
        part = found["environment"].get(name)
        found["environment"][name] = {**part, **value} if isinstance(part, dict) else value
    return found


UNLIKE = [
    ({"variables": {"MXNET_CPU_TEMP_COPY": "4"}}, "MXNET_CPU_TEMP_COPY=4"),
    ({"variables": {"OMP_NUM_THREADS": "2"}}, "OMP_NUM_THREADS=2"),
    ({"variables": {"OPENBLAS_CORETYPE": "Haswell"}}, "OPENBLAS_CORETYPE=Haswell"),
    ({"variables": {"MXDP_PREPARE": "0"}}, "MXDP_PREPARE=0"),
    ({"versions": {"mxnet": "1.9.0"}}, "mxnet=1.9.0"),
    ({"versions": {"numpy": "1.24.0"}}, "numpy=1.24.0"),
    ({"python": "3.12.1"}, "Python=3.12.1"),
    ({"processor": {"model": "1", "vectors": "AVX2"}}, "processor's model=1 and processor's vectors=AVX2"),
    ({"processor": {"family": "26"}}, "processor's family=26"),
    ({"processor": {"vendor": "Other"}}, "processor's vendor=Other"),
    ({"cpu_model": "Other"}, "processor=Other"),
    ({"cores": 4}, "cores=4"),
    ({"gpus": ["gpu(0)"]}, "GPUs=['gpu(0)']"),
    ({"commit": "feedfacecafe"}, "commit=feedfacecafe"),
]


@pytest.mark.parametrize(("changes", "difference"), UNLIKE, ids=[difference for _, difference in UNLIKE])
def test_runs_that_are_unlike_are_not_pooled_and_are_named_by_their_difference(changes, difference):
    runs = [at(1), at(2, **changes), at(3), at(4, **changes), at(5)]
    assert together.together(runs) == runs[::2]
    assert together.left_out(runs) == [f"2 runs with {difference}"]
    s = words.shown(runs)
    assert s.runs == runs[::2]
    assert words.sureness(s).endswith(f" Left out: 2 runs with {difference}.")
    assert measured.line([s]).endswith(f"3 runs. Left out of fake: 2 runs with {difference}.")
    newest = [at(day, **changes) for day in (6, 7)]
    assert together.together([*runs, *newest]) == [runs[1], runs[3], *newest]


def test_another_setting_or_end_is_not_pooled_and_more_effort_is():
    settings = record()["settings"]
    other = record(settings={**settings, "lr": 0.3})
    longer = record(settings={**settings, "processes": 9, "minutes": 2.0, "data_dir": "set"})
    failed = record(status="failed")
    new = at(9, variables={"MXDP_DATA_DIR": "set"}, versions={"torch": "2.0"})
    assert together.together([other, longer, failed, new]) == [longer, new]
    assert together.left_out([other, longer, failed, new]) == ["1 run with lr=0.3", "1 run with status=failed"]
    without = at(1)
    without["environment"]["variables"] = {}
    assert together.left_out([without, new]) == ["1 run with no OMP_NUM_THREADS"]


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
    said = "at 3 commits, aaaaaaa to 0123456, Example <CPU> (family 25, model 17, AVX-512), 2 cores, 2025-01-01 to 04: "
    assert measured.line([words.shown(runs, across_commits=True)]).startswith(said + "3 runs. Left out")


def test_a_page_says_once_how_most_were_measured_and_a_result_what_it_has_otherwise():
    usual, close = [at(1, 3), at(1, 5), at(2, 7)], [at(1, 3), at(1, 3, 24), at(2)]
    elsewhere = [at(day, cpu_model="Other", commit="feedfacecafe+", processor={"vectors": "AVX2"}) for day in (1, 2)]
    results = [words.shown(runs) for runs in (usual, close, usual, elsewhere, usual[:1])]
    line = measured.line(results)
    here = "Example <CPU> (family 25, model 17, AVX-512), 2 cores"
    assert line.startswith(f"at 0.2.0 (0123456), {here}, 2025-01-01 to 02: 3 runs. ")
    most = measured.usual(results)
    assert [measured.mark(s, most) for s in results] == [
        "",
        "3 runs 20 min apart",
        "",
        "1 run at 0.2.0 (feedfac with changes), Other (family 25, model 17, AVX2), 2 cores, 2025-01-02",
        "1 run",
    ]


def test_a_line_names_few_experiments_and_counts_many():
    s = words.shown([at(1, cores=4), at(2)])
    assert measured.line([s] * 3).endswith(" 1 run. Left out of fake, fake, fake: 1 run with cores=4.")
    assert measured.line([s] * 4).endswith(" 1 run. Left out of 4 experiments: 1 run with cores=4.")


def test_an_hour_is_from_the_end_of_one_run_to_the_start_of_the_next():
    first, second = at(1, 3), at(1, 4)
    assert measured.often([first, second]) == "2 runs"
    first["elapsed_seconds"] = 150.0
    assert measured.often([first, second]) == "2 runs 58 min apart"
