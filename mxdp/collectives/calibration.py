"""Measures what a copy and a sum cost on this machine, for the cost model.

A rate depends on the total memory in use (memory that fits into the caches is several times faster) and on whether the
other cores are busy too (they share the memory's bandwidth). So each rate is measured with several total sizes of
buffers, which are used alternately, on one device and on as many devices as there are cores.
"""

from __future__ import annotations

import statistics
import time
from typing import Callable, Sequence

from mxdp import process
from mxdp.backend import Device, NDArray, mx, npx
from mxdp.collectives.program import Program, places
from mxdp.engine import Call, prepare, prepare_sum
from mxdp.plans.collective.rings import bidirectional_ring
from mxdp.plans.cost.machine import Curve, Machine, Rate
from mxdp.timing import Timer

MEBIBYTE = 1 << 20
FOOTPRINTS = tuple(size * MEBIBYTE for size in (4, 16, 48, 160, 320))
"""Bytes in use on all devices together, up to more than any cache holds. With fewer than 4 MiB, the calls take longer
than the work."""
ENOUGH = 32 * MEBIBYTE
"""Bytes in use times repeats. Small footprints are repeated more often, so that each measured time is long enough."""
ROUNDS = 5
SHORT_ROUNDS = 25
"""Rounds of what takes about a millisecond: a disturbance of some milliseconds must not be in most of them."""

PAIRS = 2
"""Pairs of buffers, source and target, that each device uses alternately."""

Work = Callable[[Device, Device, int], Call]
"""Makes one call on the first device (a copy goes to the second), with new buffers of this many elements."""


def calibrate(devices: Sequence[Device], footprints: Sequence[int] = FOOTPRINTS) -> Machine:
    """Measure copies between ``devices`` and sums on them. Takes about two seconds; waits.

    ``footprints``: the bytes in use at which each rate is measured.

    Raises:
        ValueError: fewer than two devices.
    """
    if len(devices) < 2:
        raise ValueError(f"a link needs two devices, not {len(devices)}")
    cores = process.cores() if devices[0].device_type == "cpu" else len(devices)
    active = max(1, min(cores, len(devices)))
    start = start_seconds(devices[0], devices[1])

    def rate(work: Work) -> Rate:
        return Rate(start, _curve(work, devices, 1, footprints), _curve(work, devices, active, footprints))

    middle = footprints[len(footprints) // 2]
    two, four = (seconds_a_byte(work, devices, active, middle) for work in (_sum_of_two, _sum_of_four))
    return Machine(push_seconds(devices), rate(_copy), rate(_sum_of_two), max(0.0, (four / two - 1) / 2), cores)


def push_seconds(devices: Sequence[Device]) -> float:
    """Python's seconds for one operation of a plan, while the workers do the operations before it.

    It is measured with a plan of many operations on tiny arrays. A push to a worker that sleeps has to wake it: on two
    cores this takes 7 to 10 microseconds. One push after another to the same device takes 4.
    """
    plan = bidirectional_ring(len(devices))
    program = Program(plan, [places(plan, _buffer(device, plan.chunks)) for device in devices])
    seconds = []
    for _ in range(1 + SHORT_ROUNDS):
        npx.waitall()
        started = time.perf_counter()
        program()
        seconds.append((time.perf_counter() - started) / len(program.calls))
    npx.waitall()
    return statistics.median(seconds[1:])


def start_seconds(one: Device, other: Device, hops: int = 200) -> float:
    """Start-up seconds of a copy: four bytes go back and forth, and each copy waits for the one before."""
    here, there = _buffer(one, 1), _buffer(other, 1)
    calls = [prepare("_copyto", [here], there), prepare("_copyto", [there], here)] * (hops // 2)
    return _median_seconds(calls, SHORT_ROUNDS) / hops


def seconds_a_byte(work: Work, devices: Sequence[Device], active: int, footprint: int) -> float:
    """Seconds for a byte of results on each of the first ``active`` devices, with ``footprint`` bytes in use in all."""
    elements = max(1, footprint // (4 * 2 * PAIRS * active))
    turns = [(devices[rank], devices[(rank + 1) % len(devices)]) for rank in range(active)]
    calls = [work(device, other, elements) for _ in range(PAIRS) for device, other in turns]
    repeats = max(1, ENOUGH // footprint)
    return _median_seconds(calls * repeats) / (repeats * PAIRS * elements * 4)


def _curve(work: Work, devices: Sequence[Device], active: int, footprints: Sequence[int]) -> Curve:
    return tuple((float(size), seconds_a_byte(work, devices, active, size)) for size in footprints)


def _copy(device: Device, other: Device, elements: int) -> Call:
    return prepare("_copyto", [_buffer(device, elements)], _buffer(other, elements))


def _sum_of_two(device: Device, other: Device, elements: int) -> Call:
    mine, other = _buffer(device, elements), _buffer(device, elements)
    return prepare_sum([mine, other], mine)


def _sum_of_four(device: Device, other: Device, elements: int) -> Call:
    buffers = [_buffer(device, elements) for _ in range(4)]
    return prepare_sum(buffers, buffers[0])


def _buffer(device: Device, elements: int) -> NDArray:
    return mx.nd.zeros((elements,), ctx=device)


def _median_seconds(calls: Sequence[Call], rounds: int = ROUNDS) -> float:
    timer = Timer()
    for _ in range(1 + rounds):
        with timer:
            for call in calls:
                call()
    return statistics.median(timer.times[1:])
