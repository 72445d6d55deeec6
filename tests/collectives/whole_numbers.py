from __future__ import annotations

import numpy as onp
from hypothesis import Phase

from mxdp.backend import mx, np

UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Of examples that take a tenth of a second: to shrink one would take minutes."""


def inputs(n, shape, dtype="float32"):
    """One host array for each rank: (rank + 1) * (index mod 7) + rank; sums over 8 ranks stay exact in float16."""
    index = onp.arange(int(onp.prod(shape))) % 7
    return [((rank + 1) * index + rank).astype(dtype).reshape(shape) for rank in range(n)]


def on_devices(arrays):
    return [np.array(array, dtype=array.dtype, ctx=mx.cpu(rank)) for rank, array in enumerate(arrays)]
