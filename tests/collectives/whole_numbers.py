from __future__ import annotations

import numpy as onp
from hypothesis import Phase

from mxdp.backend import mx, np
from mxdp.plans.cost.machine import Machine, Rate

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Of examples that take a tenth of a second: to shrink one would take minutes."""


def inputs(n, shape, dtype="float32"):
    """One host array for each rank: (rank + 1) * (index mod 7) + rank; sums over 8 ranks stay exact in float16."""
    index = onp.arange(int(onp.prod(shape))) % 7
    return [((rank + 1) * index + rank).astype(dtype).reshape(shape) for rank in range(n)]


def on_devices(arrays):
    return [np.array(array, dtype=array.dtype, ctx=mx.cpu(rank)) for rank, array in enumerate(arrays)]


def turning_at(nbytes):
    """A machine on which "auto" takes doubling, with few messages, up to this many bytes, and then shared memory."""
    curve = ((1.0, 0.3625 / nbytes),)
    rate = Rate(1.0, curve, curve)
    return Machine(push=0.0, copy=rate, add=rate, add_more=0.0, cores=4)
