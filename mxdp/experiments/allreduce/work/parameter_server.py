"""Carries out plans that sum vectors; every timed sum is compared, too."""

from __future__ import annotations

import itertools
from functools import lru_cache
from typing import Any, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, mx
from mxdp.collectives.calibration import calibrate
from mxdp.collectives.program import Program, places
from mxdp.experiments.allreduce.parameter_server import BOOK_LINK, schedule_of
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.links import measured_link
from mxdp.experiments.measure.oracle import count, whole_numbers
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.link import Link, allreduce_seconds
from mxdp.plans.cost.machine import Machine
from mxdp.plans.cost.simulate import predict
from mxdp.timing import Timer

Compared = Iterator[Tuple[Any, ...]]

ODD = 10_007
"""Elements that the oracle sums: a prime, so that the chunks are not equal for any number of devices."""
TIMED = 2
"""Sums that are timed, after one that warms up. Each multiplies the numbers by the replicas, so they must be few."""


def oracle(case: Case, settings: Settings) -> Compared:
    """An odd number of elements."""
    return summed(schedule_of(case, ODD), _devices(case, settings), case.devices, ODD, settings["seed"])[1]


def set_up(case: Case, settings: Settings) -> Work:
    """A round makes its own vectors: the cases share a process, and none may hold memory while another is measured."""
    devices, nbytes, seed = _devices(case, settings), settings["nbytes"] // 4 * 4, settings["seed"]
    schedule = schedule_of(case, nbytes // 4)
    numbers = itertools.count()

    def one_round() -> Round:
        machine, link = _measured(tuple(devices[: case.devices]), settings["nbytes"], seed, next(numbers))
        expected = {
            "predicted_ms": predict(schedule, nbytes, machine) * 1e3,
            "textbook_ms": allreduce_seconds(schedule, nbytes, link) * 1e3,
            "book_ms": allreduce_seconds(schedule, nbytes, BOOK_LINK) * 1e3,
            "sent_bytes_busiest": 4 * max(schedule.sent(nbytes // 4)),
        }
        seconds, compared = summed(schedule, devices, case.devices, nbytes // 4, seed)
        return Round(seconds, {**expected, "wrong": count(compared)[1]})

    return Work(devices, one_round)


def _devices(case: Case, settings: Settings) -> List[Device]:
    """The devices with gradients; for a server one CPU device more. Beside GPUs that is the book's own plan."""
    found = devices_of(case, settings)
    return [*found, mx.cpu(case.devices)] if case.settings["algorithm"] == "server" else found


@lru_cache(maxsize=None)
def _measured(devices: Tuple[Device, ...], nbytes: int, seed: int, number: int) -> Tuple[Machine, Link]:
    """This machine's speeds in round ``number``, and the link from the first device to the second, for all cases with
    these devices."""
    link = measured_link(devices[0], devices[1], nbytes, seed)
    return calibrate(devices), link


def summed(
    schedule: Schedule, devices: Sequence[Device], replicas: int, elements: int, seed: int
) -> Tuple[float, Compared]:
    """Sum vectors of ``elements`` whole numbers by ``schedule``, again and again in place.

    The first ``replicas`` devices hold parts of the sum. Any other is a server: what it holds at first is overwritten.
    All arrays are made here. Waits.

    Returns:
        Seconds of one sum; and for an oracle every chunk of every replica, with the exact sum.
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
    total *= replicas**TIMED  # the sum on every replica has been summed again
    return timer.times[-1] / TIMED, (
        (array.asnumpy(), total[start:stop], 0.0)
        for chunks in spots[:replicas]
        for array, (start, stop) in zip(chunks, schedule.borders(elements))
        if array.size
    )


def _load(schedule: Schedule, numbers: HostArray, device: Device) -> List[NDArray]:
    """The schedule's chunks on ``device``: arrays of their own if it sums whole arrays, otherwise parts of one."""
    if schedule.sizes:
        return [mx.nd.array(numbers[start:stop], ctx=device) for start, stop in schedule.borders(numbers.size)]
    return places(schedule, mx.nd.array(numbers, ctx=device))
