"""Trains on whole pictures and on pictures in tiles; and measures the errors at the seams of tiles without halos."""

from __future__ import annotations

from typing import Any, Iterator, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, np
from mxdp.experiments.harness.experiment import Case, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.other_splits.tiles import TILE
from mxdp.experiments.other_splits.work.split import SplitNet, network, set_up_steps
from mxdp.layers import Conv, Net, Relu, forward, param_shapes
from mxdp.parallel.tile import Tile
from mxdp.plans.layers.halo import Grid
from mxdp.plans.partition import cuts

ODD = 5
"""Samples that the oracle compares."""
ODD_SIDE = 23
"""Pixels of a side in the oracle: no number of tiles divides it, nor what a pooling leaves of it."""
NET: Net = (Conv(4, kernel=3, padding=1), Relu(), Conv(4, kernel=3, padding=1), Relu())
"""For the seams."""
REACH = 2
"""Pixels on each side on which an output pixel of it depends: one for each convolution."""
SHAPE = (2, 25, 31)
"""Two channels; neither side can be halved."""
SAMPLES = 3


class Seams(NamedTuple):
    """``error``: the largest absolute error of each pixel, over samples and channels. ``inside``: is a pixel further
    from every seam than errors can reach?"""

    error: HostArray
    inside: HostArray


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Without halos, errors at the seams are intended; all other pixels must be right."""
    split = _split(case, settings, ODD_SIDE)
    error, inside = seams(split.devices, case.settings["grid"], case.settings["halo"], settings["seed"])
    compared = error if case.settings["halo"] else error[inside]
    yield compared, onp.zeros_like(compared), 0.0
    if case.settings["halo"]:
        yield from split.compare(ODD)


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps."""
    split = _split(case, settings, settings["size"])
    error, inside = seams(split.devices, case.settings["grid"], case.settings["halo"], settings["seed"])
    worst = {"worst_error": float(error.max()), "worst_error_inside": float(error[inside].max())}
    return set_up_steps(split, settings["pictures"], settings["steps"], **worst, error_map=error.tolist())


def seams(devices: Sequence[Device], grid: Grid, halo: bool, seed: int) -> Seams:
    """Two convolutions of pictures in tiles, compared with those of the whole pictures. Waits.

    All numbers are whole, so that sums are exact in any order: no error means equal bits. There is no batch
    normalisation: its statistics would carry an error from the seams to every pixel.
    """
    random = onp.random.RandomState(seed)

    def draw(shape: Sequence[int]) -> HostArray:
        return random.randint(-3, 4, tuple(shape)).astype("float32")

    params = [[np.array(draw(shape)) for shape in shapes] for shapes in param_shapes(NET, SHAPE)]
    X = draw((SAMPLES, *SHAPE))
    exact = forward(NET, np.array(X), params).asnumpy()
    tiled = Tile(NET, params, SHAPE, devices, grid=grid, halo=halo).scores(X).asnumpy()
    far = [[_distance(place, cuts(*axis)) > REACH for place in range(axis[0])] for axis in zip(SHAPE[1:], grid)]
    return Seams(onp.abs(tiled - exact).max(axis=(0, 1)), onp.logical_and.outer(*far))


def _distance(place: int, seams: Tuple[int, ...]) -> int:
    """From a pixel to the nearest seam: 1 beside it."""
    return min((place - seam + 1 if place >= seam else seam - place for seam in seams), default=REACH + 1)


def _split(case: Case, settings: Settings, side: int) -> SplitNet:
    strategy = case.settings["strategy"]
    options = {name: case.settings[name] for name in ("grid", "halo")} if strategy == TILE else {}
    return SplitNet(strategy, *network("pictures", side), devices_of(case, settings), settings["seed"], options)
