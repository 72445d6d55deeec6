"""All-reduce: afterwards every device holds the sum of what all devices held."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence

from mxdp.backend import NDArray, np
from mxdp.plans.bounds import cuts
from mxdp.plans.schedules import ADD, Schedule, naive, ring

ALGORITHMS: Dict[str, Callable[[int], Schedule]] = {"naive": naive, "ring": ring}
"""By name, the plan for n devices. ``naive`` is the oracle of the others."""


def allreduce(data: Sequence[NDArray], algorithm: str = "ring") -> None:
    """Sum ``data``, in place: one array on each device, all of one shape and dtype; each becomes the sum of all.

    Returns None and doesn't wait: MXNet starts each sum when its inputs are there. The sums of ``ring`` are the same
    bits on every device (each chunk is summed once, in one order), but not always the bits of ``naive``, whose order
    differs.

    Args:
        data: at least one array; any shape, also an empty one; float16/32/64 or int32/64.
        algorithm: a name in ``ALGORITHMS``.

    Raises:
        ValueError: an empty list, different shapes or dtypes, or an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"no all-reduce is called {algorithm!r}; there are: {', '.join(sorted(ALGORITHMS))}")
    _check(data)
    if len(data) == 1 or data[0].size == 0:
        return
    schedule = ALGORITHMS[algorithm](len(data))
    if schedule.chunks == 1:
        execute(schedule, [[x] for x in data])
        return
    pieces = [_split(x, schedule.chunks) for x in data]
    execute(schedule, pieces)
    for x, parts in zip(data, pieces):
        np.concatenate(parts).reshape(x.shape).copyto(x)


def execute(schedule: Schedule, chunks: List[List[NDArray]]) -> None:
    """Carry out a plan, in place, on ``chunks[device][chunk]``. Doesn't wait.

    Each chunk must be an array of its own, not a view into one buffer: MXNet orders work by whole arrays, so steps on
    two views of one array would run one after the other. Empty chunks are skipped.
    """
    for step in schedule.steps:
        for send in step:
            source, target = chunks[send.source][send.chunk], chunks[send.target][send.chunk]
            if source.size == 0:
                continue
            if send.action == ADD:
                target += source.copyto(target.ctx)
            else:
                source.copyto(target)


def _split(x: NDArray, parts: int) -> List[NDArray]:
    return list(np.split(x.reshape(-1), cuts(x.size, parts)))


def _check(data: Sequence[NDArray]) -> None:
    if not data:
        raise ValueError("allreduce needs at least one array, and the list is empty")
    for what, values in (("shape", [x.shape for x in data]), ("dtype", [str(x.dtype) for x in data])):
        if any(value != values[0] for value in values):
            raise ValueError(f"allreduce needs arrays of one {what}, not {', '.join(map(str, values))}")
