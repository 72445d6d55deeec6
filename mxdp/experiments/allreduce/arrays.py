"""What questions about all-reduces share: exact sums, MXNet's stores, times in turn, and how a choice is judged."""

from __future__ import annotations

import random
import re
import statistics
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import HostArray, NDArray, mx, npx
from mxdp.errors import plural
from mxdp.experiments.lab import Number, Row
from mxdp.experiments.oracle import whole_numbers

STORES = {"mxnet-local": "local", "mxnet-device": "device"}
"""MXNet's own stores for one machine: name in the table to name in MXNet."""
Sync = Callable[[], object]
Arrays = Sequence[Sequence[NDArray]]

SPELL_SECONDS = 0.0125
"""A spell repeats a call for about this time. A call that takes longer is timed once."""
TURNS = 3
LEAD = 3
"""The spells of each sync that count, and the spells before each of them that don't."""


def numbers(shape: Sequence[int], rank: int, seed: int) -> HostArray:
    """What device ``rank`` holds at first: sums of it are exact, and a swapped chunk shows."""
    return whole_numbers(rank, int(onp.prod(shape)), seed).reshape(shape)


def store_sync(name: str, arrays: Arrays) -> Sync:
    """What ``gluon.Trainer`` does with the store of that name in the table: a key for each array, summed in place, the
    first arrays first. Wait before you drop it: MXNet frees a store at once, whose jobs divided by zero then, once."""
    store = mx.kv.create(STORES[name])
    keys = [list(same) for same in zip(*arrays)]
    for key, same in enumerate(keys):
        store.init(key, same[0])

    def sync() -> None:
        for key, same in enumerate(keys):
            store.pushpull(key, same, priority=-key)

    return sync


def exact_sums(
    arrays: Arrays, sync: Sync, seed: int
) -> Iterator[Tuple[HostArray, HostArray, float]]:
    """Call ``sync``, and yield, for an oracle, each array of each replica with the exact sum over all ranks. Waits."""
    sync()
    npx.waitall()
    for same in zip(*arrays):
        total: Any = sum(numbers(same[0].shape, rank, seed) for rank in range(len(same)))
        for x in same:
            yield x.asnumpy(), total, 0.0


def seconds_in_turn(makers: Mapping[str, Callable[[], Sync]]) -> Dict[str, float]:
    """The median spell's mean seconds of a call of what each makes. Each call is waited for, as a training step needs
    the sums, too. The spells take turns, each time in another order. Sums that devices make one after the other often
    leave their threads on one of two cores, where Linux keeps them for a while. So each runs before its spell counts,
    and does not begin with the threads where another has left them."""
    times: Dict[str, List[float]] = {}
    short: Dict[str, Tuple[Sync, int]] = {}
    for name, make in makers.items():
        sync = make()
        sync()
        npx.waitall()
        seconds = _timed(sync, 1)
        calls = min(500, int(SPELL_SECONDS / max(seconds, 1e-6)))
        if calls:
            times[name] = []
            short[name] = (sync, max(2, calls))
        else:  # it takes longer than a spell: it is dropped, with its memory
            times[name] = [seconds]
    for turn in range(TURNS):
        for name in random.Random(turn).sample(list(short), len(short)):
            sync, calls = short[name]
            _timed(sync, LEAD * calls)
            times[name].append(_timed(sync, calls))
    return {name: statistics.median(spells) for name, spells in times.items()}


def _timed(sync: Sync, calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        sync()
        npx.waitall()
    return (time.perf_counter() - started) / calls


def apart(number: Number, other: Number) -> Optional[float]:
    """How far ``number`` is off ``other``: 0 where their intervals overlap, else the ratio of the nearest ends, less 1.
    None without intervals.

    >>> time = Number([20, 22, 24, 26, 28, 30])
    >>> apart(time + 5, time), apart(time * 3, time), apart(time / 3, time)
    (0.0, 1.0, -0.5)
    """
    if number.low is None or number.high is None or other.low is None or other.high is None:
        return None
    return max(0.0, number.low / other.high - 1) + min(0.0, number.high / other.low - 1)


def tell_over_others(
    auto: Row, chosen: Sequence[Any], does: Mapping[Row, Sequence[Any]]
) -> List[Number]:
    """The time of what ``auto`` has chosen in each process over that of everything else that was measured.
    ``does[row]`` is what a row did, process by process. Rows that did the same measure one thing, of which the median
    counts: so a right choice is not judged by how much two measurements of it differ."""
    doers: Dict[Any, Row] = {}  # the first of each thing
    for row, things in does.items():
        for thing in things:
            if thing is not None:
                doers.setdefault(thing, row)
    times: Dict[Any, List[Any]] = {None: [None] * len(chosen)}
    for thing in doers:
        times[thing] = []
        for k in range(len(chosen)):
            same = [row.seconds.values[k] for row, things in does.items() if things[k] == thing]
            known = [seconds for seconds in same if seconds is not None]
            times[thing].append(statistics.median(known) if known else None)
    taken = [times[thing][k] for k, thing in enumerate(chosen)]
    runs = auto.seconds.runs
    over = []
    for thing, row in doers.items():
        if set(chosen) - {thing, None}:
            label = f"{auto.label}, over {re.split(': |, ', row.label, maxsplit=1)[1]}"
            over.append(Number(taken, runs, label) / Number(times[thing], runs))
    return over


def tell_worst(over: Sequence[Number]) -> str:
    """Say the worst choice of ``auto``, of :func:`tell_over_others`."""
    if not over:
        return "nothing to choose"
    worst = max(over, key=lambda number: number.median)
    return (
        f"{worst:.2f} times as long ({worst.label}; the worst of {plural(len(over), 'comparison')})"
    )
