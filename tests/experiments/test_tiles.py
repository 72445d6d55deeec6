from __future__ import annotations

import numpy as onp
import pytest
from littles import little

from mxdp.backend import devices
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.experiments.other_splits import tiles
from mxdp.experiments.other_splits.split import SplitNet
from mxdp.experiments.other_splits.tiles import SHAPE, seams

SETTINGS = little(Question(tiles), devices=[2], kind="cpu")
CASES = {case.label: case for case in tiles.cases(SETTINGS)}


@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 3)])
def test_errors_are_at_the_seams_alone(grid):
    error, inside = seams(devices(grid[0] * grid[1], "cpu"), grid, halo=False, seed=0)
    assert error.max() > error[inside].max() == 0
    assert error.shape == inside.shape == SHAPE[1:]
    # All but two rows or columns on each side of a seam are inside.
    assert inside.sum() == (SHAPE[1] - 4 * (grid[0] - 1)) * (SHAPE[2] - 4 * (grid[1] - 1))
    # Right up to there it is wrong.
    assert {int(y) for y in onp.flatnonzero(error[:, 0])} == set(onp.flatnonzero(~inside[:, 0]))


def test_an_error_inside_is_found(monkeypatch):
    monkeypatch.setattr(tiles, "REACH", 1)
    error, inside = seams(devices(4, "cpu"), (2, 2), halo=False, seed=0)
    assert error[inside].max() > 0
    assert count(tiles.oracle(CASES["2 x 1, no halo"], SETTINGS))[1] > 0


@pytest.mark.parametrize(("label", "wrong"), [("2 x 1 tiles", 2), ("2 x 1, no halo", 1)])
def test_one_wrong_pixel_is_caught(label, wrong, monkeypatch):
    monkeypatch.setattr(SplitNet, "compare", lambda self, samples: [])
    error, inside = onp.zeros((2, 2)), onp.array([[True, True], [False, False]])
    error[:, 0] = 1e-30, onp.nan
    monkeypatch.setattr(tiles, "seams", lambda *more: (error, inside))
    assert count(tiles.oracle(CASES[label], SETTINGS))[1] == wrong


def test_a_row_has_its_errors():
    _, without = tiles.set_up(CASES["2 x 1, no halo"], SETTINGS).round()
    assert without["worst_error"] > without["worst_error_inside"] == 0
