"""What the experiments on all-reduces share: arrays with exact sums, MXNet's stores, and the time of a sum."""

from __future__ import annotations

import random
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, mx, np, npx, upload
from mxdp.experiments.allreduce.common import STORES
from mxdp.experiments.measure.oracle import whole_numbers

Sync = Callable[[], object]
Shape = Tuple[int, ...]

SPELL_SECONDS, SPELLS = 0.0125, 5
"""A round has five spells, in each of which a call is repeated for about this time. A call that takes longer is timed
once."""


def replicas(shapes: Sequence[Shape], devices: Sequence[Device], seed: Optional[int]) -> List[List[NDArray]]:
    """``arrays[rank][number]`` on each device.

    With a seed they hold whole numbers that depend on rank, index and seed: sums are exact, and a swapped chunk shows.
    Without a seed they hold zeros, whose sums stay zeros.
    """
    if seed is None:
        return [[np.zeros(shape, ctx=device) for shape in shapes] for device in devices]
    return [[upload(numbers(shape, rank, seed), device) for shape in shapes] for rank, device in enumerate(devices)]


def numbers(shape: Shape, rank: int, seed: int) -> HostArray:
    """What device ``rank`` holds at first."""
    return whole_numbers(rank, int(onp.prod(shape)), seed).reshape(shape)


def store_sync(name: str, arrays: Sequence[Sequence[NDArray]]) -> Sync:
    """What ``gluon.Trainer`` does with the store of that name in the table: a key for each array, summed in place, the
    first arrays first. Must outlive its jobs, so wait before you drop it: MXNet frees a store at once, which divided by
    zero once (in ``CommCPU::ReduceSumCPU``)."""
    store = mx.kv.create(STORES[name])
    keys = [list(same) for same in zip(*arrays)]
    for key, same in enumerate(keys):
        store.init(key, same[0])

    def sync() -> None:
        for key, same in enumerate(keys):
            store.pushpull(key, same, priority=-key)

    return sync


def exact_sums(arrays: Sequence[Sequence[NDArray]], seed: int) -> Iterator[Tuple[HostArray, HostArray, float]]:
    """For an oracle: every array of every replica, and the exact sum over all ranks."""
    for same in zip(*arrays):
        total: Any = sum(numbers(same[0].shape, rank, seed) for rank in range(len(same)))
        for x in same:
            yield x.asnumpy(), total, 0.0


def seconds_a_call(sync: Sync) -> float:
    """:func:`seconds_in_turn` of one."""
    return seconds_in_turn({"": lambda: sync})[""]


def seconds_in_turn(makers: Mapping[str, Callable[[], Sync]]) -> Dict[str, float]:
    """Of what each makes, the mean over the calls of the median spell.

    Each call is waited for, as a training step needs the sums, too.

    The spells take turns, each time in another order: of two cores, Linux may leave the threads of both devices on one
    for some 100 ms, most often after sums that the devices make one after the other.
    """
    spells: Dict[str, List[float]] = {}
    short: Dict[str, Tuple[Sync, int]] = {}  # what takes longer than a spell is dropped, with its memory
    for name, make in makers.items():
        sync = make()
        sync()
        npx.waitall()
        once = _timed(sync, 1)
        calls = min(500, int(SPELL_SECONDS / max(once, 1e-6)))
        spells[name] = [] if calls else [once]
        if calls:
            short[name] = sync, max(2, calls)
    for number in range(SPELLS):
        for name in random.Random(number).sample(list(short), len(short)):
            spells[name].append(_timed(*short[name]))
    return {name: statistics.median(own) for name, own in spells.items()}


def _timed(sync: Sync, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        sync()
        npx.waitall()
    return (time.perf_counter() - started) / calls
