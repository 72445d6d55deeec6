"""Bugs that raise no error: each is a small change of the front door, and the oracle finds it."""

from __future__ import annotations

import pytest
from matplotlib.figure import Figure

from mxdp.experiments.data_parallel import bugs
from mxdp.experiments.data_parallel.bugs import ADAM, BUGS, SGD
from mxdp.experiments.data_parallel.silent_bugs import LAST_BATCH, PARTS, SilentBugs
from mxdp.experiments.data_parallel.work import silent_bugs as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row, find

SETTINGS = {**SilentBugs.presets["quick"], "data": "synthetic", "samples": 32}
CASES = {case.label: case for case in SilentBugs().cases(SETTINGS)}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_a_change_of_a_few_lines(bug):
    changed = [line for line in bugs.diff(bug).splitlines() if line[0] in "+-"]
    assert 1 <= len(changed) <= 6
    for optimizer in (SGD, ADAM):
        right, wrong = (bugs.source(bug, optimizer, right) for right in (True, False))
        assert right != wrong
        for text in (right, wrong):
            compile(text, bug.name, "exec")


def test_a_change_that_no_longer_fits_is_named():
    bug = bugs.Bug("old", "", "", [("a line that is not there\n", "")])
    with pytest.raises(ValueError, match=r"old: scratch\.py has 0 times, not once: 'a line that is not there"):
        bugs.source(bug)


@pytest.mark.parametrize("label", [label for label, case in CASES.items() if case.settings["bug"] != LAST_BATCH])
def test_two_steps_give_away_every_bug_and_no_right_version(label, tmp_path):
    case = CASES[label]
    found = work.compare(case, SETTINGS, case.settings["right"])
    assert len(found) == 2
    assert all(checked > 2 * 129_000 for checked, _ in found)
    assert (max(wrong for _, wrong in found) == 0) == case.settings["right"]


def test_the_oracle_does_not_take_a_right_version_for_a_bug(tmp_path, monkeypatch):
    """A bug that changes nothing, and a right version that differs."""
    case = CASES["rebinds, SGD"]
    object.__setattr__(case, "folder", str(tmp_path))
    monkeypatch.setattr(work, "compare", lambda case, settings, right: [(10, 0), (10, 0)])
    ((found, expected, _),) = work.oracle(case, SETTINGS)
    assert found != expected
    monkeypatch.setattr(work, "compare", lambda case, settings, right: [(10, 0), (10, 3)])
    ((found, expected, _),) = work.oracle(case, SETTINGS)
    assert found == expected
    assert (tmp_path / work.WRONG).read_text() == "3"


def finished(**accuracy):
    """Every right version ends at 0.8; each bug ends at 0.5 unless ``accuracy`` says otherwise."""
    rows = []
    for case in CASES.values():
        name = case.settings["bug"]
        end = 0.8 if case.settings["right"] else accuracy.get(name.replace("-", "_"), 0.5)
        end = end if isinstance(end, tuple) else (end,) * 12
        row = Row(case.label, {**case.settings, "devices": ["cpu(0)", "cpu(1)"], "steps": 20}, samples=[2.0] * 12)
        if name != LAST_BATCH:
            for part in range(PARTS):
                values = [0.8] * 12 if not case.settings["right"] and part == 0 else list(end)
                row.rounds[f"accuracy_{part}"], row.metrics[f"accuracy_{part}"] = values, values[0]
            row.rounds.update(wrong=[7] * 12)
            row.metrics.update(in_sync=name == "averaged-twice", wrong=7, test_accuracy=end[0])
        rows.append(row)
    own = {case.label: case.reference for case in CASES.values()}
    parts = [row for row in rows if not own[row.label]], [row for row in rows if own[row.label]]
    SilentBugs().finish(*parts, SETTINGS)
    return parts


def held(rows, references):
    rows = rows + references
    return {name: claims.judged(name, claim, rows)["holds"] for name, claim in SilentBugs.claims.items()}


def test_what_is_not_seen_in_the_accuracy_is_counted():
    silent = dict.fromkeys(("averaged_twice", "not_divided", "too_early", "rebinds"), 0.76)
    rows, references = finished(**silent, same_shard=(0.76, 0.76, 0.7) * 4)  # in the median close, but not surely
    assert held(rows, references) == dict.fromkeys(SilentBugs.claims, True)
    said = SilentBugs().answer(rows, references, SETTINGS)
    assert said.startswith(
        "Of 12 bugs, 4 with SGD and 4 with Adam surely end at most 0.05 behind the right accuracy (1 and 1 are open);"
    )
    said = SilentBugs().explanation(rows, references, SETTINGS)
    assert "averaged-twice, not-divided, rebinds, too-early. 2 of these 8 trainings keep the replicas equal" in said
    assert "A rank drops its last batch: the job ends after 2.0 (2.0 to 2.0) s." in said
    assert find(rows, bug="rebinds").metrics["shown_after"] is None
    assert find(rows, bug="same-shard").metrics["shown_after"] is None
    assert find(rows, bug="other-start").metrics["shown_after"] == 40


@pytest.mark.parametrize(
    ("accuracy", "fails"),
    [
        ({}, {"silent", "hidden_by_adam"}),
        (dict.fromkeys(("averaged_twice", "rebinds", "too_early", "same_shard"), 0.8), {"hidden_by_adam"}),
        (dict.fromkeys(("averaged_twice", "not_divided", "too_early"), 0.8), {"silent"}),
    ],
)
def test_its_claims_are_judged(accuracy, fails):
    assert held(*finished(**accuracy)) == {name: name not in fails for name in SilentBugs.claims}


def test_a_bug_that_the_oracle_misses_or_a_job_that_hangs_fails_its_claim():
    rows, references = finished()
    rows[3].rounds["caught"] = [0] * 12
    find(references, bug=LAST_BATCH).rounds["ended"] = [61.0] * 12
    assert [held(rows, references)[name] for name in ("caught", "ended")] == [False, False]


def test_the_picture_has_a_panel_a_bug():
    rows, references = finished()
    figure = Figure()
    SilentBugs().draw({"rows": rows, "references": references}, figure)
    assert [axes.get_title() for axes in figure.axes] == [bug.name for bug in BUGS]
    assert all(len(axes.lines) >= 4 for axes in figure.axes)


def test_a_rank_with_a_batch_less_ends_the_job():
    pytest.importorskip("mpi4py")
    assert work.last_batch(2).seconds < 60
