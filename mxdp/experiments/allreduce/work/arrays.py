"""What the experiments on collectives measure: all-reduces, ours and MXNet's stores, on arrays they can check.

Loads MXNet: import it inside ``oracle`` and ``run``.
"""

from __future__ import annotations

import time
from typing import Callable, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, mx, np, npx, upload
from mxdp.experiments.measure.oracle import count_wrong, whole_numbers

Sync = Callable[[], object]
Shape = Tuple[int, ...]

STORES = ("local", "device")
"""MXNet's own stores for one machine."""

ROUND_SECONDS = 0.03
"""A round repeats a call until about so much time has gone by."""


def replicas(shapes: Sequence[Shape], devices: Sequence[Device], seed: Optional[int]) -> List[List[NDArray]]:
    """``arrays[rank][number]`` on each device: whole numbers that depend on rank, index and seed, so that sums are
    exact and a swapped chunk shows; or without a seed zeros, whose sums stay zeros."""
    if seed is None:
        return [[np.zeros(shape, ctx=device) for shape in shapes] for device in devices]
    return [[upload(numbers(shape, rank, seed), device) for shape in shapes] for rank, device in enumerate(devices)]


def numbers(shape: Shape, rank: int, seed: int) -> HostArray:
    """What device ``rank`` holds at first."""
    return whole_numbers(rank, int(onp.prod(shape)), seed).reshape(shape)


def store_sync(name: str, arrays: Sequence[Sequence[NDArray]]) -> Sync:
    """What ``gluon.Trainer`` does with one of MXNet's stores: a key for each array, in place, the first ones first."""
    store = mx.kv.create(name)
    keys = [list(same) for same in zip(*arrays)]
    for key, same in enumerate(keys):
        store.init(key, same[0])

    def sync() -> None:
        for key, same in enumerate(keys):
            store.pushpull(key, same, priority=-key)

    return sync


def count_wrong_sums(arrays: Sequence[Sequence[NDArray]], seed: int) -> Tuple[int, int]:
    """(numbers compared, numbers wrong): every element of every replica against the exact sum of all ranks."""
    counts = []
    for same in zip(*arrays):
        total = sum(numbers(same[0].shape, rank, seed) for rank in range(len(same)))
        counts += [count_wrong(x.asnumpy(), total, tolerance=0.0) for x in same]
    return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)


def seconds_a_call(sync: Sync) -> float:
    """Mean over as many calls as a round has room for, each waited for: a training step needs the sums, too."""
    sync()
    npx.waitall()
    once = _timed(sync, 1)
    return _timed(sync, max(2, min(500, int(ROUND_SECONDS / max(once, 1e-6)))))


def _timed(sync: Sync, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        sync()
        npx.waitall()
    return (time.perf_counter() - started) / calls
