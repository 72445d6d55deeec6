"""What goes wrong at the seams of tiles without halos. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, np
from mxdp.layers import Conv, Net, Relu, forward, param_shapes
from mxdp.parallel.tile import Tile
from mxdp.plans.layers.halo import Grid
from mxdp.plans.partition import cuts

NET: Net = (Conv(4, kernel=3, padding=1), Relu(), Conv(4, kernel=3, padding=1), Relu())
REACH = 2
"""Pixels from which an output pixel's value comes, on each side: one a convolution."""
SHAPE = (2, 25, 31)
"""Two channels; neither side can be halved."""
SAMPLES = 3


@dataclass(frozen=True)
class Seams:
    """``error``: largest absolute error of each pixel, over samples and channels. ``inside``: pixels further from every
    seam than errors can reach."""

    error: HostArray
    inside: HostArray

    @property
    def worst_inside(self) -> float:
        """The largest error away from the seams."""
        return float(self.error[self.inside].max())

    @property
    def worst(self) -> float:
        """The largest error anywhere."""
        return float(self.error.max())


def seams(devices: Sequence[Device], grid: Grid, halo: bool, seed: int) -> Seams:
    """Two convolutions of pictures in tiles against the whole. Waits.

    All numbers are whole, so that sums are exact in any order: no error means not a bit. There is no batch
    normalisation, whose statistics would carry an error from the seams to everywhere.
    """
    random = onp.random.RandomState(seed)

    def draw(shape: Sequence[int]) -> HostArray:
        return random.randint(-3, 4, tuple(shape)).astype("float32")

    params = [[np.array(draw(shape)) for shape in shapes] for shapes in param_shapes(NET, SHAPE)]
    X = draw((SAMPLES, *SHAPE))
    exact = forward(NET, np.array(X), params).asnumpy()
    tiled = Tile(NET, params, SHAPE, devices, grid=grid, halo=halo).scores(X).asnumpy()
    return Seams(onp.abs(tiled - exact).max(axis=(0, 1)), _inside(grid))


def _inside(grid: Grid) -> HostArray:
    far: List[HostArray] = []
    for length, parts in zip(SHAPE[1:], grid):
        away = [_distance(place, cuts(length, parts)) > REACH for place in range(length)]
        far.append(onp.array(away))
    return onp.logical_and(far[0][:, None], far[1][None, :])


def _distance(place: int, seams: Tuple[int, ...]) -> int:
    """From a pixel to the nearest seam: 1 beside it."""
    return min((place - seam + 1 if place >= seam else seam - place for seam in seams), default=REACH + 1)
