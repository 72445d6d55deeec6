"""Measures what a copy and a sum cost on this machine, for the cost model.

- In an all-reduce a device works on what another device's core has just written. While arrays fit into the caches, this
  takes up to twice as long as work on arrays of its own. So the measured arrays go back and forth between two devices.
- A rate depends on the total memory in use (caches are several times faster) and on the other cores (all share the
  memory's bandwidth). So it is measured with several total sizes, for one pair of arrays and for a pair on each core.
- For some tenths of a second the system may run the workers of two devices on one core, and two sums take twice as
  long; or a worker sleeps deeply, and each copy starts some 20 microseconds later. So all is measured in several turns,
  and the second fastest counts; of a push and of a sum's further arrays the median.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from itertools import chain, product
from typing import Callable, DefaultDict, List, Sequence, Tuple

from mxdp import process
from mxdp.backend import Device, NDArray, mx, npx
from mxdp.collectives.program import Program, chunk_views
from mxdp.engine import Call, prepare, prepare_sum
from mxdp.plans.collective.rings import bidirectional_ring
from mxdp.plans.cost.machine import Curve, Machine, Rate
from mxdp.timing import Timer

MEBIBYTE = 1 << 20
FOOTPRINTS = tuple(int(size * MEBIBYTE) for size in (0.5, 4, 16, 48, 320))
"""Bytes in use on all devices together: from what takes about as long as its start, up to more than any cache holds."""
ENOUGH = 32 * MEBIBYTE
"""Bytes in use times repeats. Small footprints are repeated more often, so that each measured time is long enough."""
TURNS = 7
LARGE = 64 * MEBIBYTE
"""Larger footprints are measured in every third turn: their buffers take long to make."""
ROUNDS = 3
SHORT_ROUNDS = 5
"""Rounds in a turn; short ones are of what takes about a millisecond."""
LEAST = 1e-12
"""Seconds a byte, where a call takes no longer than its start."""

Work = Callable[[Device, Device, int], List[Call]]
"""Makes two calls with new buffers of this many elements: one on the first device, and then one back on the other."""


def calibrate(devices: Sequence[Device], footprints: Sequence[int] = FOOTPRINTS) -> Machine:
    """Measure copies between ``devices`` and sums on them, with ``footprints`` bytes in use. Takes about six seconds;
    waits. Raises a ValueError for fewer than two devices."""
    if len(devices) < 2:
        raise ValueError(f"a link needs two devices, not {len(devices)}")
    cores = process.cores() if devices[0].device_type == "cpu" else len(devices)
    together = max(1, min(cores, len(devices)))
    middle = footprints[len(footprints) // 2]
    pushes = []
    starts = []
    more = []
    seconds: DefaultDict[Tuple[Work, int, int], List[float]] = defaultdict(list)
    for turn in range(TURNS):
        pushes.append(push_seconds(devices))
        starts.append(start_seconds(devices[0], devices[1]))
        sizes = [size for size in footprints if size <= LARGE or turn % 3 == 0]
        for size, work, active in product(sizes, (_copies, _sums_of_two), {1, together}):
            taken = call_seconds(work, devices, active, size)
            seconds[work, active, size].append(taken)
        two = seconds[_sums_of_two, together, middle][-1]
        four = call_seconds(_sums_of_four, devices, together, middle)
        more.append(max(0.0, (four / two - 1) / 2))
    start = sorted(starts)[1]

    def curve(work: Work, active: int) -> Curve:
        points = []
        for size in footprints:
            behind_start = sorted(seconds[work, active, size])[1] - start
            a_byte = behind_start / (4 * _elements(size, active))
            points.append((float(size), max(LEAST, a_byte)))
        return tuple(points)

    copy = Rate(start, curve(_copies, 1), curve(_copies, together))
    add = Rate(start, curve(_sums_of_two, 1), curve(_sums_of_two, together))
    return Machine(statistics.median(pushes), copy, add, statistics.median(more), cores)


def push_seconds(devices: Sequence[Device]) -> float:
    """Python's seconds for one operation of a plan, while the workers do the operations before it: of many on tiny
    arrays. On two cores a push takes 7 to 10 microseconds if it has to wake a worker, else 4."""
    plan = bidirectional_ring(len(devices))
    chunks = [chunk_views(plan, _buffer(device, plan.chunks)) for device in devices]
    program = Program(plan, chunks)
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
    return _median_seconds(_copies(one, other, elements=1) * (hops // 2), SHORT_ROUNDS) / hops


def call_seconds(work: Work, devices: Sequence[Device], active: int, footprint: int) -> float:
    """Seconds of one call of ``work`` while ``active`` of them run, with ``footprint`` bytes in use in all."""
    elements = _elements(footprint, active)
    neighbours = [*devices[1:], devices[0]]
    pairs = list(zip(devices, neighbours))[:active]
    calls = [work(one, other, elements) for one, other in pairs]
    there_and_back = list(chain(*zip(*calls)))
    repeats = max(1, ENOUGH // footprint)
    return _median_seconds(there_and_back * repeats) / (2 * repeats)


def _elements(footprint: int, active: int) -> int:
    """The elements of each of the two arrays of an active pair."""
    return max(1, footprint // (4 * 2 * active))


def _copies(one: Device, other: Device, elements: int) -> List[Call]:
    here = _buffer(one, elements)
    there = _buffer(other, elements)
    return [prepare("_copyto", [here], there), prepare("_copyto", [there], here)]


def _sums_of_two(one: Device, other: Device, elements: int) -> List[Call]:
    here = _buffer(one, elements)
    there = _buffer(other, elements)
    return [prepare_sum([here, there], here), prepare_sum([there, here], there)]


def _sums_of_four(one: Device, other: Device, elements: int) -> List[Call]:
    here = [_buffer(one, elements) for _ in range(2)]
    there = [_buffer(other, elements) for _ in range(2)]
    back = prepare_sum([*there, *here], there[0])
    return [prepare_sum([*here, *there], here[0]), back]


def _buffer(device: Device, elements: int) -> NDArray:
    return mx.nd.zeros((elements,), ctx=device)


def _median_seconds(calls: Sequence[Call], rounds: int = ROUNDS) -> float:
    timer = Timer()
    for _ in range(1 + rounds):
        with timer:
            for call in calls:
                call()
    return statistics.median(timer.times[1:])
