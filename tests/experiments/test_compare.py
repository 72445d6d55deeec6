"""``compare A B``: what it matches, what it calls faster, and what it refuses."""

from __future__ import annotations

import copy
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from mxdp.errors import UsageError
from mxdp.experiments.__main__ import main
from mxdp.experiments.harness import results
from mxdp.experiments.report import compare

RESULT = json.loads((Path(__file__).parent / "result.json").read_text(encoding="utf-8"))
STEADY = [1.0, 1.01, 1.02, 1.03, 1.04, 1.05]


def made(name="fake", factor=1.0, samples=STEADY, **changes):
    """A result in which each of the three cases takes ``factor`` times as long as ``samples``."""
    result = results.loaded({**copy.deepcopy(RESULT), "experiment": name, **changes})
    for row in result["rows"] + result["references"]:
        row.samples = [factor * sample for sample in samples]
    return result


def compared(tmp_path, a, b):
    for folder, found in (("a", a), ("b", b)):
        for result in found if isinstance(found, list) else [found]:
            results.write(result, tmp_path / folder)
    return compare.compared(tmp_path / "a", tmp_path / "b")


def words(tmp_path, a, b):
    (found,) = compared(tmp_path, a, b)["experiments"]
    return [row["verdict"] for row in found["rows"]]


def shown(found):
    console = Console(width=80, file=io.StringIO())
    compare.show(found, console)
    lines = console.file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    return " ".join(" ".join(lines).split())


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        (dict(factor=0.9), "faster"),
        (dict(factor=1.1), "slower"),
        (dict(factor=1.04), "undecided"),
        (dict(factor=9.0, samples=STEADY[:5]), "undecided"),
    ],
)
def test_a_case_is_faster_or_slower_only_if_the_interval_says_so(changes, word, tmp_path):
    assert words(tmp_path, made(), made(**changes)) == [word] * 3


def test_what_stands_beside_a_case(tmp_path):
    (found,) = compared(tmp_path, made(), made(factor=2.0))["experiments"]
    row = found["rows"][1]
    assert (row["label"], row["reference"], found["rows"][2]["reference"]) == ("2 devices", False, True)
    assert row["a"] == pytest.approx({"median": 1.025, "low": 1.0, "high": 1.05})
    assert row["b"] == pytest.approx({"median": 2.05, "low": 2.0, "high": 2.1})
    assert row["ratio"] == pytest.approx({"median": 2.0, "low": 2 / 1.05, "high": 2.1})


def test_a_process_counts_once(tmp_path):
    a, b = made(samples=STEADY * 2), made(samples=STEADY * 2, factor=2.0)
    for row in a["rows"] + a["references"]:
        row.rounds["repeat"] = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert words(tmp_path, a, b) == ["undecided"] * 3


def test_cases_are_matched_by_what_they_did_and_not_by_their_labels(tmp_path):
    a, b = made(), made(factor=2.0)
    b["rows"].reverse()
    b["rows"][0].label = "two of them"
    b["rows"][0].case["rate"] = 3.8e10  # measured by that run: no work
    b["rows"][1].label = "one"
    (found,) = compared(tmp_path, a, b)["experiments"]
    # "1 device" and "ceiling" are the same case, so their labels decide.
    assert [row["label"] for row in found["rows"]] == ["two of them", "ceiling"]
    assert found["not_compared"] == {"only in A": ["1 device"], "only in B": ["one"], "other work": []}


def test_a_case_that_was_scaled_to_another_size_is_named(tmp_path):
    a, b = made(), made(factor=2.0)
    b["rows"][0].case["size"] = 720
    found = compared(tmp_path, a, b)
    assert [row["label"] for row in found["experiments"][0]["rows"]] == ["2 devices", "ceiling"]
    assert "Not compared, other work: 1 device" in shown(found)
    for row in b["rows"] + b["references"]:
        row.case["size"] = 720
    with pytest.raises(UsageError, match=r"no case was measured both in .*: a run failed, or its devices or sizes are"):
        compared(tmp_path, a, b)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"data": "synthetic"}, "data fashion-mnist -> synthetic"),
        ({"batch_size": 128}, "batch_size 256 -> 128"),
        ({"devices": [1, 2, 4]}, "devices 1, 2 -> 1, 2, 4"),
        ({"samples": 600}, "samples – -> 600"),
    ],
)
def test_other_work_is_refused(settings, said, tmp_path):
    usual = {**RESULT["settings"], "data": "fashion-mnist", "batch_size": 256}
    with pytest.raises(UsageError) as error:
        compared(tmp_path, made(settings=usual), made(settings={**usual, **settings}, preset="full"))
    assert f"fake did other work in A than in B ({said}); give two runs" in str(error.value)


def test_what_is_no_work_may_differ_and_is_said(tmp_path):
    settings = {**RESULT["settings"], "rounds": 9, "seed": 3, "looks": 2, "patience": 1.0, "samples": None}
    environment = {**RESULT["environment"], "cores": 8, "cpu_model": None}
    environment["versions"] = {**environment["versions"], "mxdp": "0.2.0"}
    environment["variables"] = {"OMP_NUM_THREADS": "4"}
    found = compared(tmp_path, made(), made(settings=settings, environment=environment, preset="full"))
    assert (
        "Differs from A to B: processor Example <CPU> -> –; cores 2 -> 8; mxdp 0.1.0 -> 0.2.0; OMP_NUM_THREADS 1 -> 4; "
        "rounds – -> 9; seed – -> 3; looks – -> 2; patience – -> 1 "
    ) in shown(found)
    assert found["experiments"][0]["differs"]["cores"] == [2, 8]


def test_a_doubtful_run_allows_no_verdict(tmp_path):
    busy = made(factor=2.0, verdict={**RESULT["verdict"], "busy": 0.31})
    assert words(tmp_path, made(), busy) == ["undecided"] * 3
    wrong = made(oracle={"checked": 9, "wrong": 1, "text": ""})
    found = shown(compared(tmp_path, wrong, busy))
    assert "No verdict, because of A: 1 wrong number." in found
    assert "No verdict, because of B: a busy machine (31% of its time went elsewhere)." in found


@pytest.mark.parametrize(("runs", "wider"), [("A", "1.250"), ("B", "1.250"), ("AB", "1.562")])
def test_what_a_case_differs_from_itself_by_widens_the_intervals(tmp_path, runs, wider):
    noise = {"label": "1 device", "median": 0.8, "low": 0.7, "high": 0.9}
    verdicts = [{**RESULT["verdict"], "noise": noise if run in runs else None} for run in "AB"]
    found = compared(tmp_path, made(verdict=verdicts[0]), made(factor=1.2, verdict=verdicts[1]))
    assert [row["verdict"] for row in found["experiments"][0]["rows"]] == ["undecided"] * 3
    assert f"all intervals are {wider} times wider at each end" in shown(found)
    assert words(tmp_path, made(), made(factor=1.2)) == ["slower"] * 3


def test_of_a_long_table_only_changes_are_shown(tmp_path):
    a, b = made(), made()
    for result, factor in ((a, 1.0), (b, 2.0)):
        result["rows"] = [replace(result["rows"][0], label=f"row {n}", case={"n": n}) for n in range(60)]
        result["rows"][7].samples = [factor * sample for sample in STEADY]
    text = shown(compared(tmp_path, a, b))
    assert "row 7 1.02 2.05 2.000 (1.905 to 2.100) slower" in text
    assert "row 8" not in text
    assert "B is faster in 0, slower in 1, undecided in 60 (--json prints those, too)." in text


REFERENCE = next((Path(__file__).parents[2] / "experiments" / "reference").iterdir())


def test_results_of_older_formats_are_compared(capsys):
    assert main(["compare", str(REFERENCE), str(REFERENCE), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["experiments"]) == len(list(REFERENCE.glob("*.json")))
    for each in found["experiments"]:
        skipped = results.read(REFERENCE / f"{each['experiment']}.json")["status"] == "skipped"
        assert {row["verdict"] for row in each["rows"]} == (set() if skipped else {"undecided"})
        assert not any([each["differs"], *each["not_compared"].values()])


def test_two_files_on_the_command_line_without_mxnet(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "mxnet", None)
    results.write(made(), tmp_path / "a")
    results.write(made(factor=2.0), tmp_path / "b")
    assert main(["compare", str(tmp_path / "a" / "fake.json"), str(tmp_path / "b")]) == 0
    assert "slower in 3" in capsys.readouterr().out


def test_nothing_to_compare_is_one_sentence_and_exit_status_2(tmp_path, capsys):
    results.write(made(), tmp_path / "a")
    results.write(made("other"), tmp_path / "b")
    for b, said in (("b", "b has other; give two runs of the same experiment"), ("c", "there is no file")):
        assert main(["compare", str(tmp_path / "a"), str(tmp_path / b)]) == 2
        out, error = capsys.readouterr()
        assert out == ""
        assert error.startswith("mxdp: ")
        assert said in error
