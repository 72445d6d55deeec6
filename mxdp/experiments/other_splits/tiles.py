"""Are tiled pictures right at the seams, and are they faster?

Each device has a tile of every picture. A window of a convolution or pooling that reaches over a seam needs the border
of the neighbour's tile: the halo. Without halos a tile sees zeros there, and its output is wrong at the seams. How far
the error reaches depends on the windows: two 3 x 3 convolutions reach two pixels. With batch normalisation the error is
everywhere, because the wrong pixels count in the statistics.

A halo grows with the side of a tile, and the work with its area: the larger the picture, the less tiles cost. For
square pictures of side s in r x c tiles, a layer with 3 x 3 windows sends 2 (r - 1 + c - 1) s of the s^2 pixels of each
channel. Each device holds its part of all activations. Data parallelism can't split a batch of one; tiles can.
"""

import numpy as onp

from mxdp.backend import np
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, several
from mxdp.experiments.lab import Case, faster
from mxdp.experiments.other_splits import split
from mxdp.experiments.show import style
from mxdp.layers import Conv, Relu, forward, param_shapes
from mxdp.parallel.tile import Tile
from mxdp.plans.layers.halo import squarest
from mxdp.plans.partition import cuts

SOURCE = f"ours; halos as in {sources.SPATIAL}"
COMPARED = (
    f"{split.COMPARED}; pixels of tiled pictures, exactly: without halos those away from the seams"
)
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, devices=[2, 4], size=192, pictures=2, steps=2),
    "full": dict(split.FULL, size=256, pictures=2, steps=2),
}
CHECKS = SEVERAL
LITTLE = dict(size=64, pictures=1, steps=2)
ODD = 5
ODD_SIDE = 23
"""Samples that the oracle compares, and pixels of a side: no number of tiles divides it, nor what a pooling leaves."""
CONV = Conv(4, kernel=3, padding=1)
NET = (CONV, Relu(), CONV, Relu())
"""Two convolutions, whose errors at the seams are looked at."""
REACH = 2
"""Pixels on each side on which an output pixel of it depends: one for each convolution."""
SAMPLES = 3
SHAPE = (2, 25, 31)
"""Two channels; neither side can be halved."""


def cases(s):
    yield Case("whole pictures", strategy=split.SERIAL, grid=[1, 1], halo=True)
    for n in several(s):
        grids = [squarest(n)]
        if n < 4:
            grids = sorted({squarest(n), (n, 1), (1, n)}, reverse=True)
        for r, c in grids:
            yield Case(f"{r} x {c} tiles", n, strategy="tile", grid=[r, c], halo=True)
        r, c = squarest(n)
        yield Case(f"{r} x {c}, no halo", n, strategy="tile", grid=[r, c], halo=False)


def expect(s, cores):
    return f"""With halos there is no error; without, errors reach two pixels from the seams. The work of the layers
        before the dense one is divided by at most {plural(cores, "core")}."""


def oracle(case, s):
    """Without halos, errors at the seams are intended; all other pixels must be right."""
    net = _split(case, s, ODD_SIDE)
    error, inside = seams(net.devices, case.grid, case.halo, s.seed)
    compared = error if case.halo else error[inside]
    yield compared, onp.zeros_like(compared), 0.0
    if case.halo:
        yield from net.compare(ODD)


def set_up(case, s):
    net = _split(case, s, s.size)
    error, inside = seams(net.devices, case.grid, case.halo, s.seed)
    return split.set_up_steps(
        net,
        s.pictures,
        s.steps,
        worst_error=float(error.max()),
        worst_error_inside=float(error[inside].max()),
    )


def seams(devices, grid, halo, seed):
    """Compare two convolutions of pictures in tiles with those of whole pictures. Returns the largest absolute error of
    each pixel, over samples and channels, and whether it is further from every seam than errors can reach. Waits.
    All numbers are whole: sums are exact. Batch normalisation would carry an error from the seams to every pixel."""
    random = onp.random.RandomState(seed)

    def draw(shape):
        return random.randint(-3, 4, tuple(shape)).astype("float32")

    params = []
    for shapes in param_shapes(NET, SHAPE):
        params.append([np.array(draw(shape)) for shape in shapes])
    X = draw((SAMPLES, *SHAPE))
    exact = forward(NET, np.array(X), params).asnumpy()
    with split.skipping():
        tile = Tile(NET, params, SHAPE, devices, grid=grid, halo=halo)
    tiled = tile.scores(X).asnumpy()
    far = [onp.ones(length, bool) for length in SHAPE[1:]]
    for axis, length, parts in zip(far, SHAPE[1:], grid):
        for seam in cuts(length, parts):
            axis[seam - REACH : seam + REACH] = False
    return onp.abs(tiled - exact).max(axis=(0, 1)), onp.logical_and.outer(*far)


def _split(case, s, side):
    options = {}
    if case.strategy == "tile":
        options = dict(grid=case.grid, halo=case.halo)
    return split.split_net(case, s, case.strategy, "pictures", side, **options)


def tell(t, s):
    split.tell_steps(t)
    t.column(
        "worst_error",
        "error",
        "g",
        about="the largest error of two convolutions of other pictures (25 x 31), compared with whole pictures",
    )
    t.column(
        "worst_error_inside",
        "inside",
        "g",
        about="the largest error more than two pixels from the seams. All numbers are whole: 0 is exactly 0",
    )
    t.note("""The network is convolution, batch normalisation, relu and pooling, twice, then a dense layer. Tiles
        without halos see zeros where halos would be: they show the error, and are not meant to be fast. For a batch of
        many pictures, data parallelism sends less.""")
    t.bars(unit="ms", scale=1e3, title="Time of a step", colour="halo")
    haloed = t.find(strategy="tile", halo=True)
    sentence = "With halos, tiled pictures are right at the seams: no pixel differs."
    t.claim(sentence, *(row.worst_error for row in haloed), at_most=0, exact=True)
    without = "Without halos, pixels at the seams are wrong: the largest error is at least 1 (numbers are whole)."
    inside = "Without halos, no pixel is wrong that is more than two pixels from the seams."
    bare = t.find(halo=False)
    for row in bare:
        t.claim(without, row.worst_error, at_least=1, exact=True)
        t.claim(inside, row.worst_error_inside, at_most=0, exact=True)
    grids = [row.grid for row in bare if t.maybe(grid=row.grid, halo=True)]
    if not grids:
        return
    last = t.one(grid=grids[-1], halo=True)
    t.answer(f"""At the seams, pixels are {_tell_pixels(haloed)} with halos and {_tell_pixels(bare)} without; training
        with {last.label} {faster(last.speedup)} as with whole pictures.""")
    halos = last.bytes_moved - t.one(grid=grids[-1], halo=False).bytes_moved
    moved = style.number(last.bytes_moved.median / 1e6)
    t.explain(f"""Of the {moved} MB that {last.label} move in a step, {style.number(halos.median / 1e6)} MB are
        halos.""")


def _tell_pixels(rows):
    return "wrong" if any(any(row.worst_error.values) for row in rows) else "right"
