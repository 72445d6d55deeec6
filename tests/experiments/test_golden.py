"""Each committed result as the terminal shows it, with its claims' bounds. After a change that is meant, this file's
tests with ``MXDP_GOLDEN=write`` write ``golden.json`` anew; what it changes is to be read like code."""

from __future__ import annotations

import io
import json
import os
import re
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from mxdp import process
from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import discover
from mxdp.experiments.show.pictures import draw_told
from mxdp.experiments.show.terminal import print_result
from mxdp.experiments.show.together import together
from mxdp.experiments.show.words import shown

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"
FOLDERS = sorted({path.parent for path in REFERENCE.glob("*/*/*/*.json")} - {*REFERENCE.glob("*/*/timelines")})
GOLDEN = Path(__file__).with_name("golden.json")
COMMAND = "MXDP_GOLDEN=write make test ARGS='-n 0 tests/experiments/test_golden.py'"


def name_of(folder):
    """The machine and the question: whichever release it was measured for."""
    machine, _, question = folder.relative_to(REFERENCE).parts
    return f"{machine}/{question}"


def runs(folder):
    return together([result.read(path) for path in folder.glob("*.json")], across_commits=True)


def printed(folder):
    console, of_folder = Console(width=120, file=io.StringIO()), runs(folder)
    print_result(of_folder, console, why=True, across_commits=True)
    claims = shown(of_folder, across_commits=True).told.claims.values()
    bounds = [
        f"{claim.sentence}: {'>=' if claim.least else '<='} {claim.bound:g}{', exact' * claim.exact}"
        for claim in claims
    ]
    return [line.rstrip() for line in console.file.getvalue().splitlines()] + bounds


@pytest.fixture(scope="module")
def golden():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "cores", lambda: 2)
        found = {name_of(folder): printed(folder) for folder in FOLDERS}
    if os.environ.get("MXDP_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    return found, json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_committed_result_is_shown_as_before(folder, golden):
    now, before = golden
    name = name_of(folder)
    assert now[name] == before.get(name), f"if this is meant: {COMMAND}"
    assert len(now) == len(before)


def test_every_committed_result_is_of_a_question():
    ours = {name for name, question in discover().items() if question.module.__name__.startswith("mxdp.")}
    assert {folder.name for folder in FOLDERS} <= ours


CAN_BE_LOOKED_UP = re.compile(r"ours\b|.*https://[\w.-]+/\S+")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_source_can_be_looked_up_and_no_bound_of_ours_is_undecided(folder):
    s = shown(runs(folder), across_commits=True)
    assert CAN_BE_LOOKED_UP.match(s.question.SOURCE)
    for claim in s.told.claims.values():
        assert CAN_BE_LOOKED_UP.match(claim.source), claim.sentence
        if claim.source.startswith("ours"):
            assert claim.holds is not None, claim.sentence
    said = f"{s.told.sentence} {s.told.explanation}"
    assert not re.search(r"\b0\.\d+( \([^()]*\))? times as fast", said)


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_whichever_case_failed_numbers_are_shown_and_no_answer(folder):
    whole = runs(folder)[-1]
    rows = whole["rows"]
    for gone in {0, len(rows) // 2, len(rows) - 1} if len(rows) > 1 else ():
        s = shown([{**whole, "status": "failed", "error": "it fell", "rows": rows[:gone] + rows[gone + 1 :]}])
        assert len(list(s.told)) == len(rows) - 1
        assert s.told.columns
        assert not s.told.claims
        if s.told.rows:
            draw_told(s.told, Figure(layout="constrained"))
