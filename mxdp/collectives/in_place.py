"""An all-reduce in shared memory as one job a device: each job sums its chunk in place and copies it to all vectors.

A CPU device can sum its chunk in place and write the sum into the other devices' vectors itself, since no other job
touches this chunk. But MXNet orders work by whole arrays, so a write to a vector would wait for every device that reads
another chunk of it. A job therefore *reads* the vectors themselves and *writes* each chunk through an alias: a second
MXNet array over the same memory. Guards restore the ordering that the aliases hide from the engine::

    device 0   guard v0     job 0: reads v0, v1; writes chunk 0 of both     guard v0
    device 1   guard v1     job 1: reads v0, v1; writes chunk 1 of both     guard v1

- A guard writes one element of a vector back to itself. The opening guard waits for all earlier work on the vector, and
  the jobs wait for the guard.
- A closing guard also reads an alias, so it waits for the job that wrote this alias. All later work on the vector waits
  for the guard. If a job fails, its error reaches every vector in this way.
- Within a job, each copy also reads the alias that the sum has written, so MXNet runs the copy after the sum.

A job is pushed as one bulk, which is faster but does not change the result. It works piece by piece, so that each sum
is copied while it is still in the cache.
"""

from __future__ import annotations

from typing import List, Mapping, Sequence

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.engine import Call, prepare, prepare_sum
from mxdp.plans.collective.operations import Operation, Slot
from mxdp.plans.collective.schedule import COPY

PIECE_BYTES = 4 << 20
"""Smaller pieces cost more calls, and larger ones miss the cache: 64 MiB on two devices took 0.55, 0.46 and 0.60 of the
time of MXNet's ``device`` store with pieces of 1 MiB, 4 MiB and 32 MiB."""


def jobs(todo: Sequence[Operation], places: Sequence[Sequence[NDArray]]) -> List[Call]:
    """The calls for the operations of a plan in which one device works on each chunk. Waits for the arrays.

    Args:
        todo: sums and copies without staging buffers.
        places: ``places[device][chunk]``: views of one vector a device, on CPU devices.
    """
    aliases = {operation.target: alias(places[operation.target.device][operation.target.chunk]) for operation in todo}
    vectors = [next(chunk for chunk in chunks if chunk.size) for chunks in places]
    opening = [_guard(vector, vector) for vector in vectors]
    workers = sorted({operation.worker for operation in todo})
    work = [
        _job([operation for operation in todo if operation.worker == worker], places, aliases) for worker in workers
    ]
    closing = [_guard(vectors[slot.device], written) for slot, written in aliases.items()]
    return [*opening, *work, *closing]


def _guard(vector: NDArray, behind: NDArray) -> Call:
    """To MXNet, a write to ``vector`` that also reads ``behind``. In fact it copies one element to itself."""
    return _copy_behind(vector[0:1], behind[0:1], vector[0:1])


def _copy_behind(source: NDArray, behind: NDArray, target: NDArray) -> Call:
    """A copy on the device of ``source``, after all writes to ``behind``. Unlike ``_copyto`` it fits in a bulk."""
    return prepare("_identity_with_attr_like_rhs", [source, behind], target)


def _job(todo: Sequence[Operation], places: Sequence[Sequence[NDArray]], aliases: Mapping[Slot, NDArray]) -> Call:
    chunk = aliases[todo[0].target]
    piece = max(1, PIECE_BYTES // onp.dtype(chunk.dtype).itemsize)
    calls = []
    for start in range(0, chunk.size, piece):
        part = slice(start, start + piece)
        for operation in todo:
            # MXNet runs an operator on the device of its first input, and the aliases lie on cpu(0): so read the views.
            sources = [places[slot.device][slot.chunk][part] for slot in operation.sources]
            target = aliases[operation.target][part]
            if operation.action == COPY:
                calls.append(_copy_behind(sources[0], aliases[operation.sources[0]][part], target))
            else:
                calls.append(prepare_sum(sources, target))
    return _in_bulk(calls)


def _in_bulk(calls: Sequence[Call]) -> Call:
    """All calls as one operation of the engine."""

    def bulk() -> None:
        with mx.engine.bulk(len(calls)):
            for call in calls:
                call()

    return bulk


def alias(x: NDArray) -> NDArray:
    """A second array on ``cpu(0)`` over the memory of ``x``. MXNet orders work on each of the two alone.

    Waits for ``x``.
    """
    return mx.nd.from_dlpack(mx.nd.to_dlpack_for_write(x))
