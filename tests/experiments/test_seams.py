from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import devices
from mxdp.experiments.harness.experiment import find
from mxdp.experiments.other_splits.work import seams as module
from mxdp.experiments.other_splits.work.seams import SHAPE, seams


@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 3)])
def test_errors_are_at_the_seams_alone(grid):
    found = seams(devices(grid[0] * grid[1], "cpu"), grid, halo=False, seed=0)
    assert found.worst > 0
    assert found.worst_inside == 0
    assert found.error.shape == found.inside.shape == SHAPE[1:]
    # All but two rows or columns on each side of a seam are inside.
    rows, columns = SHAPE[1] - 4 * (grid[0] - 1), SHAPE[2] - 4 * (grid[1] - 1)
    assert found.inside.sum() == rows * columns
    # Right up to there it is wrong.
    assert {int(y) for y in onp.flatnonzero(found.error[:, 0])} == set(onp.flatnonzero(~found.inside[:, 0]))


def test_with_halos_there_are_none():
    assert seams(devices(4, "cpu"), (2, 2), halo=True, seed=0).worst == 0


def test_an_error_inside_is_found(monkeypatch):
    monkeypatch.setattr(module, "REACH", 1)
    assert seams(devices(4, "cpu"), (2, 2), halo=False, seed=0).worst_inside > 0


def rows(*errors):
    return [
        {
            "label": "2 x 2 tiles",
            "case": {"strategy": "tile", "grid": [2, 2], "halo": halo},
            "metrics": {"worst_error": worst, "worst_error_inside": inside},
        }
        for halo, worst, inside in errors
    ]


@pytest.mark.parametrize(
    ("errors", "holds"),
    [
        ([(True, 0, 0), (False, 7, 0)], True),
        ([(True, 1, 0), (False, 7, 0)], False),
        ([(True, 0, 0), (False, 7, 1)], False),
        ([(True, 0, 0), (False, 0, 0)], False),
        ([(True, 0, 0)], None),
    ],
)
def test_the_verdict(errors, holds):
    assert find("tiles").verdict(rows(*errors), [], {}).holds is holds
