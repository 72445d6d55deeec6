"""Two checkouts in turns: each ratio of their times has the verdict of its interval; and two folders are only shown."""

import json
import os
import shutil
import statistics
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace

import faulty
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from littles import record

from mxdp.errors import UsageError
from mxdp.experiments.__main__ import main
from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import Question
from mxdp.experiments.show import compare

ROOT = Path(__file__).parents[2]


def measured(monkeypatch, a, b):
    """What is compared of results a and b, whose cases have taken turns; and what was said meanwhile."""
    said = SimpleNamespace(is_terminal=False, lines=[], bars=[])
    view = SimpleNamespace(console=said, say=said.lines.append, begin=said.bars.append)
    view.progress = lambda *given: said.bars.append(given)

    def take_turns(runs, progress):
        assert [run.root for run in runs] == [Path("a"), Path("b")]
        progress("1 process of each case", 0, 2, "one", None)
        progress("2 processes of each case", 1, 2, "", None)
        progress("3 processes of each case", 2, 2, "", None)

    def run(question, preset, s, logs, root):
        return SimpleNamespace(root=root, result=lambda: {"a": a, "b": b}[str(root)])

    times = iter([10.0, 20.0, 30.0])
    monkeypatch.setattr(compare, "time", SimpleNamespace(monotonic=lambda: next(times)))
    monkeypatch.setattr(compare, "Run", run)
    monkeypatch.setattr(compare, "measure", take_turns)
    monkeypatch.setattr(compare, "checkout", lambda which: nullcontext(Path(which)))
    s = {"faulty": {"minutes": None, "processes": 3}}
    (found,) = compare.measured("a", "b", [Question(faulty)], "quick", s, view)
    return found, said


def test_it_says_how_long_it_still_takes(monkeypatch):
    _, said = measured(monkeypatch, record(), record())
    first = "faulty: 3 processes of each case; A is a and B is b, in turns"
    assert said.lines == [first, "2 processes of each case, about 10 s more", "3 processes of each case"]
    bars = ["1 process of each case", "about 10 s more, 2 processes of each case", "3 processes of each case"]
    assert [bar[0] for bar in said.bars[1:]] == bars


TIMES = st.lists(st.sampled_from([0.5, 1.0, 1.25, 1.5, 1.75, 2.0, 2.5, 3.0, 4.0]), min_size=6, max_size=6, unique=True)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(times=TIMES, rest=st.booleans())
def test_a_verdict_is_that_of_the_ratios_interval_and_each_case_of_both_is_compared(times, rest, monkeypatch, capsys):
    """A takes a second each time. Of six different values the interval is from the least to the largest."""
    a, b = record(), record(status="failed" if rest else "ok", error="it fell" if rest else None)
    for run, seconds in ((a, [1.0] * 6), (b, times)):
        for row in run["rows"]:
            row["processes"] = [{"seconds": own} for own in seconds]
    b["rows"][1]["label"] = "3 devices"  # in B alone
    with pytest.MonkeyPatch.context() as patch:
        found, _ = measured(patch, a, b)
    verdict = compare.OPEN
    if min(times) > 1:
        verdict = compare.SLOWER
    elif max(times) < 1:
        verdict = compare.FASTER
    assert [(row["label"], row["verdict"]) for row in found["rows"]] == [("1 device", verdict), ("ceiling", verdict)]
    assert (found["errors"], found["failed"]) == (({"B": "it fell"}, ["B"]) if rest else ({}, []))
    capsys.readouterr()
    compare.print_compared([found], as_json=True)
    (shown,) = json.loads(capsys.readouterr().out)
    middle, low, high = statistics.median(times), min(times), max(times)
    assert [row["ratio"] for row in shown["rows"]] == [{"median": middle, "low": low, "high": high}] * 2
    compare.print_compared([found], as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("fake: Is it <b>faster</b> & [bold]right[/bold]?" + " B: it fell" * rest)
    ends = f"{middle:#.3g} ({low:#.3g}-{high:#.3g})"
    assert f"1 device 1.00 {ends} {ends} {verdict} ceiling 1.00" in said
    assert f"{verdict} in 2" in said


def test_what_was_skipped_is_no_failure_and_the_logs_of_a_failure_are_named(monkeypatch, capsys):
    skipped = record(status="skipped", error="there is no GPU", rows=[])
    found, _ = measured(monkeypatch, skipped, record(status="failed", error="it fell"))
    assert (found["failed"], found["rows"], found["logs"]) == (["B"], [], {})
    compare.print_compared([{**found, "logs": {"B": "runs/compare"}}], as_json=False)
    said = capsys.readouterr().out
    assert "A: there is no GPU\nB: it fell\nWhat its processes printed: runs/compare\n" in said


def test_what_is_neither_a_checkout_nor_a_commit_is_refused_and_leaves_nothing(tmp_path):
    before = subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True).stdout
    with pytest.raises(UsageError, match="no-such is neither a folder with a checkout of mxdp that has this"):
        compare.checkout("no-such").__enter__()
    with compare.checkout(str(ROOT)) as folder:
        assert folder == ROOT
    assert subprocess.run(["git", "worktree", "list"], cwd=ROOT, capture_output=True).stdout == before


def test_two_folders_are_only_shown(tmp_path, capsys):
    for name in "ab":
        result.write(record("faulty"), tmp_path / name)
    result.write(record("other"), tmp_path / "b")
    result.write(record("other"), tmp_path / "c")
    compare.print_compared(compare.side_by_side(tmp_path / "a", tmp_path / "b"), as_json=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "1 device 2.00 (1.00, 2.00, 4.00) 2.00" in said
    assert ("faulty: " in said, "other: " in said) == (True, False)
    assert "so nothing is judged" in said
    with pytest.raises(UsageError, match=r"no experiment is both in .*a and in .*c; give two runs of"):
        compare.side_by_side(tmp_path / "a", tmp_path / "c")
    assert main(["compare", str(tmp_path / "a"), str(tmp_path / "b"), "--quick"]) == 2
    assert "--processes has no effect" in capsys.readouterr().err


MINE = """'Mine?'
from pathlib import Path
import mxdp, mine_too
from mxdp.experiments.lab import Case, Work
PRESETS = {"quick": {}}
cases, expect = (lambda s: [Case("one")]), (lambda s, cores: "Soon.")
set_up, tell = (lambda case, s: Work(lambda: 1.0)), (lambda t, s: t.answer("Yes."))
def oracle(case, s):
    if "other" in Path(mxdp.__file__).parts:
        raise ValueError("other")
    yield float(Path("number.txt").read_text()), mine_too.NUMBER, 0.0
"""


def test_compare_measures_what_lies_where_it_was_called_and_fails_if_a_side_fails(tmp_path):
    """Also if another mxdp lies there, where Python can leave it out."""
    other = tmp_path / "other"
    shutil.copytree(ROOT / "mxdp", other / "mxdp")
    folder = other if sys.version_info >= (3, 11) else tmp_path
    for name, text in (("mine.py", MINE), ("mine_too.py", "NUMBER = 3.0"), ("number.txt", "3")):
        (folder / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "mxdp.experiments", "compare", other, ROOT, "mine", "--processes", "1", "--json"],
        cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT), "MXDP_EXPERIMENTS": "mine"},
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    (found,) = json.loads(done.stdout)
    assert (done.returncode, found["failed"]) == (1, ["A"])
    assert "1 process of each case" in done.stderr
    assert "ValueError: other" in found["errors"]["A"]
    assert "raise ValueError" in Path(folder, found["logs"]["A"], "one.log").read_text()
