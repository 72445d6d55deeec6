"""All-reduce: afterwards every device holds the sum of what all devices held."""

from __future__ import annotations

from typing import Callable, Dict, List, Sequence, Tuple

from mxdp.backend import NDArray, np
from mxdp.plans.bounds import cuts
from mxdp.plans.schedules import ADD, COPY, Schedule, doubling, naive, ring

ALGORITHMS: Dict[str, Callable[[int], Schedule]] = {"doubling": doubling, "naive": naive, "ring": ring}
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
    _check(data)
    reduce(plan(algorithm, len(data)), data, {})


def plan(algorithm: str, devices: int) -> Schedule:
    """The schedule of that name for so many devices.

    Raises:
        ValueError: there is no such algorithm; the message names those that there are.
    """
    if algorithm not in ALGORITHMS:
        raise ValueError(f"no all-reduce is called {algorithm!r}; there are: {', '.join(sorted(ALGORITHMS))}")
    return ALGORITHMS[algorithm](devices)


Inboxes = Dict[Tuple[int, int], NDArray]
"""Where what is to be added arrives, by (device, chunk). Keep them, and the next all-reduce need not allocate."""


def reduce(schedule: Schedule, data: Sequence[NDArray], inboxes: Inboxes) -> None:
    """Carry out a plan, in place, on whole arrays, cut into its chunks and joined again. Doesn't wait."""
    if schedule.chunks == 1:
        execute(schedule, [[x] for x in data], inboxes)
        return
    if data[0].size == 0:
        return
    pieces = [_split(x, schedule.chunks) for x in data]
    execute(schedule, pieces, inboxes)
    for x, parts in zip(data, pieces):
        np.concatenate(parts).reshape(x.shape).copyto(x)


def execute(schedule: Schedule, chunks: Sequence[Sequence[NDArray]], inboxes: Inboxes) -> None:
    """Carry out a plan, in place, on ``chunks[device][chunk]``. Doesn't wait.

    Each chunk must be an array of its own, not a view into one buffer: MXNet orders work by whole arrays, so steps on
    two views of one array would run one after the other. Empty chunks are skipped. ``inboxes`` are made where missing.
    """
    for step in schedule.steps:
        sends = [send for send in step if chunks[send.source][send.chunk].size]
        # A step's sends happen at once: all that leaves is taken before anything that arrives is added.
        for send in sends:
            source, target = chunks[send.source][send.chunk], chunks[send.target][send.chunk]
            if send.action == COPY:
                source.copyto(target)
            elif (send.target, send.chunk) in inboxes:
                source.copyto(inboxes[send.target, send.chunk])
            else:
                inboxes[send.target, send.chunk] = source.copyto(target.ctx)
        for send in sends:
            if send.action == ADD:
                target = chunks[send.target][send.chunk]
                target += inboxes[send.target, send.chunk]


def _split(x: NDArray, parts: int) -> List[NDArray]:
    return list(np.split(x.reshape(-1), cuts(x.size, parts)))


def _check(data: Sequence[NDArray]) -> None:
    if not data:
        raise ValueError("allreduce needs at least one array, and the list is empty")
    for what, values in (("shape", [x.shape for x in data]), ("dtype", [str(x.dtype) for x in data])):
        if any(value != values[0] for value in values):
            raise ValueError(f"allreduce needs arrays of one {what}, not {', '.join(map(str, values))}")
