"""Bugs that raise no error: each is a small change of the front door, and the oracle finds it."""

from __future__ import annotations

import subprocess

import pytest
from littles import little

from mxdp.experiments.data_parallel import bugs, silent_bugs
from mxdp.experiments.data_parallel.bugs import BUGS
from mxdp.experiments.data_parallel.silent_bugs import LAST_BATCH
from mxdp.experiments.lab.module import Question

S = little(Question(silent_bugs), samples=32)
CASES = {case.label: case for case in silent_bugs.cases(S)}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_a_change_of_a_few_lines(bug):
    changed = [line for line in bugs.diff(bug).splitlines() if line[0] in "+-"]
    assert 1 <= len(changed) <= 6


@pytest.mark.parametrize("label", [label for label, case in CASES.items() if case.bug != LAST_BATCH])
def test_two_steps_give_away_every_bug_and_no_right_version(label):
    replicas = list(silent_bugs.compare(CASES[label], S, CASES[label].right))
    assert len(replicas) == 2
    assert all(checked > 2 * 129_000 for checked, _ in replicas)
    assert (max(wrong for _, wrong in replicas) == 0) == CASES[label].right


@pytest.mark.parametrize(("wrong", "right"), [(0, False), (3, True), (3, False), (0, True)])
def test_the_oracle_finds_a_bug_that_changes_nothing_and_a_right_version_that_differs(wrong, right, monkeypatch):
    case = CASES["right, SGD" if right else "rebinds, SGD"]
    monkeypatch.setattr(silent_bugs, "compare", lambda case, s, right: [(10, 0), (10, wrong)])
    ((actual, expected, _),) = silent_bugs.oracle(case, S)
    assert (actual == expected) == (right == (wrong == 0))
    assert silent_bugs.WRONG[case.label] == wrong


def test_a_rank_with_a_batch_less_ends_the_job(monkeypatch):
    pytest.importorskip("mpi4py")
    assert silent_bugs.last_batch(2) < 60
    monkeypatch.setattr(silent_bugs.subprocess, "run", lambda *_, **more: subprocess.CompletedProcess([], 0))
    with pytest.raises(silent_bugs.MxdpError, match="ended as if all were well"):
        silent_bugs.last_batch(2)
