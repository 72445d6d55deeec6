from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import devices
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.other_splits.tiles import Tiles
from mxdp.experiments.other_splits.work import tiles as work
from mxdp.experiments.other_splits.work.split import SplitNet
from mxdp.experiments.other_splits.work.tiles import ODD, SHAPE, Seams, seams

SETTINGS = {**Tiles.presets["quick"], **Tiles.little, "devices": [2], "kind": "cpu"}
CASES = {case.label: case for case in Tiles().cases(SETTINGS)}


@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 3)])
def test_errors_are_at_the_seams_alone(grid):
    found = seams(devices(grid[0] * grid[1], "cpu"), grid, halo=False, seed=0)
    assert found.error.max() > 0
    assert found.error[found.inside].max() == 0
    assert found.error.shape == found.inside.shape == SHAPE[1:]
    # All but two rows or columns on each side of a seam are inside.
    rows, columns = SHAPE[1] - 4 * (grid[0] - 1), SHAPE[2] - 4 * (grid[1] - 1)
    assert found.inside.sum() == rows * columns
    # Right up to there it is wrong.
    assert {int(y) for y in onp.flatnonzero(found.error[:, 0])} == set(onp.flatnonzero(~found.inside[:, 0]))


def test_with_halos_there_are_none():
    assert seams(devices(4, "cpu"), (2, 2), halo=True, seed=0).error.max() == 0


def test_an_error_inside_is_found(monkeypatch):
    monkeypatch.setattr(work, "REACH", 1)
    found = seams(devices(4, "cpu"), (2, 2), halo=False, seed=0)
    assert found.error[found.inside].max() > 0
    assert count(work.oracle(CASES["2 x 1, no halo"], SETTINGS))[1] > 0


def test_the_oracle_compares_pixels_and_with_halos_the_training(monkeypatch):
    monkeypatch.setattr(SplitNet, "compare", lambda self, samples: [(onp.zeros(samples), onp.ones(samples))])
    pixels = SHAPE[1] * SHAPE[2]
    for label, checked in (("whole pictures", pixels + ODD), ("2 x 1 tiles", pixels + ODD)):
        assert count(work.oracle(CASES[label], SETTINGS)) == (checked, ODD)
    assert count(work.oracle(CASES["2 x 1, no halo"], SETTINGS)) == (pixels - 4 * SHAPE[2], 0)


@pytest.mark.parametrize(("label", "wrong"), [("2 x 1 tiles", 2), ("2 x 1, no halo", 1)])
def test_one_wrong_pixel_is_caught(label, wrong, monkeypatch):
    monkeypatch.setattr(SplitNet, "compare", lambda self, samples: [])
    error, inside = onp.zeros((2, 2)), onp.array([[True, True], [False, False]])
    error[:, 0] = 1e-30, onp.nan
    monkeypatch.setattr(work, "seams", lambda *more: Seams(error, inside))
    assert count(work.oracle(CASES[label], SETTINGS))[1] == wrong


def test_a_row_has_its_errors():
    without = one_round(work.set_up(CASES["2 x 1, no halo"], SETTINGS)).last
    assert without["worst_error"] == onp.max(without["error_map"]) > without["worst_error_inside"] == 0
