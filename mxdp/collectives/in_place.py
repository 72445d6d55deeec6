"""An all-reduce in shared memory as one job a device: each job sums its chunk in place and copies it to all vectors.

A CPU device can sum its chunk in place and write the sum into the other devices' vectors itself, since no other job
touches this chunk. But MXNet orders work by whole arrays, so a write to a vector would wait for every device that reads
another chunk of it. A job therefore *reads* the vectors themselves and *writes* each chunk through an alias: a second
MXNet array over the same memory. Guards restore the ordering that the aliases hide from the engine::

    device 0   guards of v0, v1     job 0: reads v0, v1; writes chunk 0 of both     guards of v0, v1
    device 1                        job 1: reads v0, v1; writes chunk 1 of both

- A guard writes one element of a vector back to itself. The opening guards wait for all earlier work on the vectors,
  and the jobs wait for the guards.
- The closing guards also read what was gathered from all aliases, so they wait for the jobs that wrote these. All later
  work on a vector waits for its guard. If a job fails, its error reaches every vector in this way.
- Within a job, each copy also reads the alias that the sum has written, so MXNet runs the copy after the sum.

A job is pushed as one bulk, and so are the guards at each end. A bulk is faster but does not change the result. A job
works piece by piece, so that each sum is copied while it is still in the cache.
"""

from __future__ import annotations

from typing import Dict, List, Mapping, Sequence

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.engine import Call, prepare, prepare_sum
from mxdp.plans.collective.operations import Operation, Slot
from mxdp.plans.collective.schedule import COPY

PIECE_BYTES = 4 << 20
"""Smaller pieces cost more calls, and larger ones miss the cache: 64 MiB on two devices took 0.55, 0.46 and 0.60 of the
time of MXNet's ``device`` store with pieces of 1 MiB, 4 MiB and 32 MiB."""


def jobs(todo: Sequence[Operation], places: Sequence[Sequence[NDArray]]) -> List[Call]:
    """The calls for ``todo``, sums and copies without staging buffers, of a plan in which one device works on each
    chunk. ``places[device][chunk]``: views of one vector a device, on CPU devices. Waits for the arrays."""
    aliases = {}
    of_worker: Dict[int, List[Operation]] = {}
    for operation in todo:
        target = operation.target
        aliases[target] = alias(places[target.device][target.chunk])
        of_worker.setdefault(operation.worker, []).append(operation)
    work = [_job(of_worker[worker], places, aliases) for worker in sorted(of_worker)]
    # The guards' one element is the first of a vector. Its first chunks may be empty.
    vectors = [next(chunk for chunk in chunks if chunk.size)[0:1] for chunks in places]
    like = vectors[0]
    written = [chunk[0:1] for chunk in aliases.values()]
    gathered = mx.nd.empty((len(written), 1), like.ctx, like.dtype)
    gather = prepare("stack", written, gathered, num_args=len(written))
    closing = [gather, *_guards(vectors, [gathered[0]] * len(vectors))]
    return [_in_bulk(_guards(vectors, vectors)), *work, _in_bulk(closing)]


def _guards(vectors: Sequence[NDArray], behind: Sequence[NDArray]) -> List[Call]:
    """To MXNet, writes to ``vectors`` that also read ``behind``, on the first device. Each keeps its one element."""
    # It comes first, since MXNet runs an operator on the device of its first input.
    yes = mx.nd.ones((1,), vectors[0].ctx)
    return [
        prepare("where", [yes, vector, other], vector) for vector, other in zip(vectors, behind)
    ]


def _copy_behind(source: NDArray, behind: NDArray, target: NDArray) -> Call:
    """A copy on the device of ``source``, after all writes to ``behind``. Unlike ``_copyto`` it fits in a bulk."""
    return prepare("_identity_with_attr_like_rhs", [source, behind], target)


def _job(
    todo: Sequence[Operation], places: Sequence[Sequence[NDArray]], aliases: Mapping[Slot, NDArray]
) -> Call:
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
                behind = aliases[operation.sources[0]][part]
                calls.append(_copy_behind(sources[0], behind, target))
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
    """A second array on ``cpu(0)`` over the memory of ``x``. MXNet orders work on each alone. Waits for ``x``."""
    return mx.nd.from_dlpack(mx.nd.to_dlpack_for_write(x))
