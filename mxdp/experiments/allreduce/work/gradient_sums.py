"""A plan carried out, timed and compared. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

from typing import List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, mx
from mxdp.collectives.program import Program, places
from mxdp.experiments.measure.oracle import count_wrong, whole_numbers
from mxdp.plans.collective.schedule import Schedule
from mxdp.timing import Timer

TIMED = 2
"""Sums that are timed, after one that warms up. Each multiplies the numbers by the replicas, so there can't be many."""


def summed(
    schedule: Schedule, devices: Sequence[Device], replicas: int, elements: int, seed: int
) -> Tuple[float, int, int]:
    """Sum vectors of ``elements`` whole numbers by ``schedule``, again and again in place.

    The first ``replicas`` devices hold parts of the sum. Any other is a server: what it holds at first is overwritten.
    All arrays are made here and dropped at the end. Waits.

    Returns:
        Seconds of one sum, numbers compared (all of every replica), and how many of them were wrong.
    """
    total = onp.zeros(elements, "float32")
    spots = []
    for rank, device in enumerate(devices):
        numbers = whole_numbers(rank, elements, seed)
        if rank < replicas:
            total += numbers
        spots.append(_load(schedule, numbers, device))
    program = Program(schedule, spots)
    program()
    timer = Timer()
    with timer:
        for _ in range(TIMED):
            program()
    total *= replicas**TIMED  # what was a sum on every replica has been summed again
    counts = [
        count_wrong(array.asnumpy(), total[start:stop], tolerance=0.0)
        for chunks in spots[:replicas]
        for array, (start, stop) in zip(chunks, schedule.borders(elements))
        if array.size
    ]
    return timer.times[-1] / TIMED, sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)


def _load(schedule: Schedule, numbers: HostArray, device: Device) -> List[NDArray]:
    """The schedule's chunks on ``device``: arrays of their own where it deals in whole arrays, else parts of one."""
    if schedule.sizes:
        return [mx.nd.array(numbers[start:stop], ctx=device) for start, stop in schedule.borders(numbers.size)]
    return places(schedule, mx.nd.array(numbers, ctx=device))
