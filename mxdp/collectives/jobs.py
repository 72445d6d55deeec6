"""A plan over shared memory as one job a device: sums in place, and passed on while they are in the cache.

Out of the others' memory a device can add up its chunk where it lies, and write the sum to the others itself: nobody
else touches that chunk. But MXNet orders work by whole arrays, and would have each write to a vector wait for whoever
reads another part of it. So a job *reads* the vectors as they are, and *writes* through aliases: arrays over the same
memory which MXNet takes for others. Two small writes to each vector, before and behind the jobs, put things right::

    device 0   guard v0     job 0: reads v0, v1; writes chunk 0 of both     guard v0
    device 1   guard v1     job 1: reads v0, v1; writes chunk 1 of both     guard v1

A guard is a write, so it waits for all that was queued on its vector before, and all that is queued later waits for it.
The jobs between them only read, as far as MXNet knows, and run at the same time. A job is pushed as a whole (MXNet's
bulk), so that its parts run in order; it goes piece by piece, since a sum that is copied on at once is in the cache.
"""

from __future__ import annotations

from typing import List, Sequence

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.calls import ALL, Call, prepare, prepare_sum
from mxdp.plans.moves import Move
from mxdp.plans.schedules import COPY

PIECE_BYTES = 4 << 20
"""Less costs calls and more misses the cache: 64 MiB on two devices took 0.55, 0.46 and 0.60 of the time of MXNet's
``device`` store with pieces of 1 MiB, 4 MiB and 32 MiB."""


def jobs(todo: Sequence[Move], places: Sequence[Sequence[NDArray]]) -> List[Call]:
    """The moves of a plan in which each chunk is the work of one device, as calls. Waits until the arrays are there.

    Args:
        todo: sums and copies from place to place, no boxes.
        places: ``places[device][chunk]``, views of one vector a device; on CPU devices.
    """
    guards = [_guard(next(chunk for chunk in chunks if chunk.size)) for chunks in places]
    workers = sorted({move.worker for move in todo})
    return [*guards, *[_job([move for move in todo if move.worker == worker], places) for worker in workers], *guards]


def _guard(x: NDArray) -> Call:
    """A write that changes nothing."""
    return prepare("_copy", [x[0:1]], x[0:1])


def _job(todo: Sequence[Move], places: Sequence[Sequence[NDArray]]) -> Call:
    chunk = places[todo[0].target.device][todo[0].target.chunk]
    piece = max(1, PIECE_BYTES // onp.dtype(chunk.dtype).itemsize)
    calls = []
    for start in range(0, chunk.size, piece):
        for move in todo:
            sources = [places[slot.device][slot.chunk][start : start + piece] for slot in move.sources]
            target = alias(places[move.target.device][move.target.chunk][start : start + piece])
            # Unlike _copyto, _copy can be a part of a bulk.
            calls.append(prepare("_copy", sources, target) if move.action == COPY else prepare_sum(sources, target))
    return _in_bulk(calls)


def _in_bulk(calls: Sequence[Call]) -> Call:
    """All of them as one piece of work for the engine, which knows of no order among them: a copy only reads what
    the sum before it has written under another name."""

    def bulk() -> None:
        with mx.engine.bulk(ALL):
            for call in calls:
                call()

    return bulk


def alias(x: NDArray) -> NDArray:
    """The same memory as another array: MXNet will not order work on one by work on the other. Waits for ``x``."""
    return mx.nd.from_dlpack(mx.nd.to_dlpack_for_write(x))
