"""Each committed result as the terminal shows it, and its claims' bounds. After a change that is meant, this file's
tests with ``MXDP_GOLDEN=write`` write ``golden.json`` anew; what it changes is to be read like code."""

from __future__ import annotations

import io
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from rich.console import Console

from mxdp import process
from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.report.page import print_result
from mxdp.experiments.report.pictures import draw_result

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"
PATHS = sorted(REFERENCE.glob("*/*.json"))
GOLDEN = Path(__file__).with_name("golden.json")


def shown(path):
    console = Console(width=120, file=io.StringIO())
    print_result(results.read(path), console, explain=True)
    claims = find(path.stem).claims.items()
    bounds = [f"{name}: {'>=' if each.least else '<='} {each.bound:g}{', exact' * each.exact}" for name, each in claims]
    return [line.rstrip() for line in console.file.getvalue().splitlines()] + bounds


@pytest.fixture(scope="module")
def golden():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "cores", lambda: 2)
        found = {path.relative_to(REFERENCE).as_posix(): shown(path) for path in PATHS}
    if os.environ.get("MXDP_GOLDEN") == "write":
        GOLDEN.write_text(json.dumps(found, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    return found, json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_committed_result_is_shown_as_before(path, golden):
    now, before = golden
    name = path.relative_to(REFERENCE).as_posix()
    assert now[name] == before.get(name), "write golden.json anew if this change is meant"
    assert len(now) == len(before)


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_whichever_case_failed_the_others_are_finished_and_drawn(path):
    result, experiment = results.read(path), find(path.stem)
    rows = result["rows"]
    for gone in {*range(len(rows))} if len(rows) < 20 else {0, len(rows) - 1}:
        left = [replace(row, metrics={**row.metrics}, rounds={**row.rounds}) for row in rows if row is not rows[gone]]
        experiment.finish(left, result["references"], result["settings"])
        if gone in (0, len(rows) - 1):
            draw_result({**result, "rows": left}, experiment, Figure(layout="constrained"))
