"""All gradients of all replicas summed at once, in one buffer for each device.

LeNet has eight gradients, most of them tiny. Summed one by one, each costs a few Python calls, and for each the devices
wait for one another. Here a replica's gradients lie side by side in one buffer::

    replica 0   | W1 | b1 | W2 | b2 | ...      backward writes straight into its places (autograd.mark_variables)
    replica 1   | W1 | b1 | W2 | b2 | ...      one all-reduce sums the buffers

so that nothing is copied together or apart, and a step has one all-reduce. The buffers in which the others' gradients
arrive are kept, since fresh ones would be fresh memory at every step.
"""

from __future__ import annotations

from typing import Dict, List, Sequence

import numpy as onp

from mxdp.backend import NDArray, autograd, np
from mxdp.collectives.allreduce import Inboxes, plan, reduce
from mxdp.plans.bounds import offsets


class GradientSync:
    """Sums the gradients of all replicas, in place, whenever it is called.

    Making it moves the gradients: afterwards each ``param.grad`` is a part of its replica's buffer (one for each
    dtype), and what stood in it is gone. Don't attach other gradients while it is in use.

    Args:
        device_params: the replicas, as :func:`mxdp.get_params` makes them: alike in number, shapes and dtypes.
        algorithm: a name in ``ALGORITHMS``. ``doubling`` has the fewest steps, so it suits gradients of a few
        megabytes.

    Raises:
        ValueError: no replicas, replicas that differ, or an unknown algorithm.
    """

    def __init__(self, device_params: Sequence[Sequence[NDArray]], algorithm: str = "doubling") -> None:
        _check(device_params)
        self._schedule = plan(algorithm, len(device_params))
        flat = [_flatten_gradients(params) for params in device_params]
        self._buffers = [[buffers[dtype] for buffers in flat] for dtype in flat[0]]
        self._inboxes: List[Inboxes] = [{} for _ in self._buffers]

    def __call__(self) -> None:
        """Sum; doesn't wait. The sums are the same bits on every device."""
        for same_dtype, inboxes in zip(self._buffers, self._inboxes):
            reduce(self._schedule, same_dtype, inboxes)


def _flatten_gradients(params: Sequence[NDArray]) -> Dict[str, NDArray]:
    """Move the gradients of ``params`` into one buffer for each dtype; the buffers, by dtype, zero."""
    buffers = {}
    for dtype in sorted({str(onp.dtype(param.dtype)) for param in params}):
        same = [param for param in params if onp.dtype(param.dtype) == dtype]
        borders = offsets([param.size for param in same])
        buffer = np.zeros(borders[-1], dtype=dtype, ctx=same[0].ctx)
        places = [buffer[start:stop] for start, stop in zip(borders, borders[1:])]
        # Only the old interface has a reshape that is a view; the new one's copies.
        views = [place.as_nd_ndarray().reshape(param.shape).as_np_ndarray() for place, param in zip(places, same)]
        autograd.mark_variables(same, views)
        buffers[dtype] = buffer
    return buffers


def _check(device_params: Sequence[Sequence[NDArray]]) -> None:
    kinds = [[(param.shape, str(onp.dtype(param.dtype))) for param in params] for params in device_params]
    if not kinds or not kinds[0]:
        raise ValueError("GradientSync needs at least one replica with at least one parameter")
    for number, kind in enumerate(kinds):
        if kind != kinds[0]:
            raise ValueError(f"replica {number} has other shapes or dtypes than replica 0: {kind}, not {kinds[0]}")
