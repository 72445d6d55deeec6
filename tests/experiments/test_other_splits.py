"""The questions on other splits than by data: what the catalogue, with its little settings, doesn't see."""

from __future__ import annotations

import numpy as onp
import pytest
from littles import little

from mxdp.backend import devices, mx
from mxdp.experiments.lab.module import Question
from mxdp.experiments.other_splits import pipeline, tiles
from mxdp.experiments.other_splits.nets import net_and_shape
from mxdp.experiments.other_splits.split import SplitNet, memory


def test_the_first_process_alone_looks_at_memory():
    s = little(Question(pipeline), kind="cpu", batch_size=16)
    case = next(iter(pipeline.cases(s)))
    for case.number in (0, 1):
        _, numbers = pipeline.set_up(case, s).round()
        assert len({"peak_bytes", "predicted_peak_bytes"} & set(numbers)) == 2 * (case.number == 0)


def test_memory_is_that_of_the_fullest_device_with_what_stays():
    options = {"micro_batches": 4, "schedule": "1f1b", "cuts": (4,)}
    split = SplitNet("pipeline", *net_and_shape("stages"), devices(2, "cpu"), 0, options)
    made, (X, y) = split.make(), split.batch(16)
    made.step(X, y)
    assert memory(split.devices, [8, 7], lambda: None) == 8
    assert memory(split.devices, [0, 10**9], lambda: made.step(X, y)) > 10**9
    assert memory(split.devices, [0, 8], lambda: made.step(X, y)) > 8 + 4 * 20 * 24 * 24 * 4


def test_memory_is_not_counted_where_mxnet_would_abort():
    many = SplitNet("pipeline", *net_and_shape("stages"), [mx.cpu(0), mx.cpu(1000)], 0, {"cuts": (4,)})
    assert memory(many.devices, [0, 0], lambda: None) is None


@pytest.mark.parametrize("grid", [(2, 2), (2, 1), (1, 3)])
def test_errors_are_at_the_seams_alone(grid):
    error, inside = tiles.seams(devices(grid[0] * grid[1], "cpu"), grid, halo=False, seed=0)
    assert error.max() > error[inside].max() == 0
    _, height, width = tiles.SHAPE
    # All but two rows or columns on each side of a seam are inside.
    assert inside.sum() == (height - 4 * (grid[0] - 1)) * (width - 4 * (grid[1] - 1))
    # Right up to there it is wrong.
    assert {int(y) for y in onp.flatnonzero(error[:, 0])} == set(onp.flatnonzero(~inside[:, 0]))


def test_a_row_has_its_errors(monkeypatch):
    s = little(Question(tiles), devices=[2], kind="cpu")
    (case,) = (case for case in tiles.cases(s) if not case.halo)
    error, inside = onp.array([[4.0, 1.0], [2.0, 3.0]]), onp.array([[False, True], [True, False]])
    monkeypatch.setattr(tiles, "seams", lambda *more: (error, inside))
    _, without = tiles.set_up(case, s).round()
    assert (without["worst_error"], without["worst_error_inside"]) == (4.0, 2.0)
