"""A plan played through on paper: what each device's worker does when, and so how long the whole takes.

Unlike the textbook's formula this knows what a plan meets in MXNet: a worker does one thing after another, in the
order in which they can begin; what writes an array waits for what reads it, and the chunks of a vector are one array;
Python pushes one operation after another; sums cost time; and devices share the machine's cores and its memory.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Dict, Hashable, List, Sequence, Set, Tuple

from mxdp.plans.collective.operations import Operation, Slot, adds_in_place, operations
from mxdp.plans.collective.schedule import COPY, Schedule

Curve = Tuple[Tuple[float, float], ...]
"""(bytes in use in all, seconds a byte), by rising bytes: what fits into the caches is faster."""


@dataclass(frozen=True)
class Rate:
    """What a kind of operation costs: ``start`` seconds, and seconds a byte of its result.

    ``alone``: when nothing else runs; ``together``: when as many run as there are cores.
    """

    start: float
    alone: Curve
    together: Curve

    def seconds(self, nbytes: float, footprint: float, others: bool) -> float:
        """For a result of ``nbytes``, while ``footprint`` bytes are in use in all.

        >>> Rate(1e-6, ((1e6, 1e-9),), ((1e6, 2e-9),)).seconds(1000, footprint=1e6, others=True)
        3e-06
        """
        return self.start + nbytes * _at(self.together if others else self.alone, footprint)


def _at(curve: Curve, footprint: float) -> float:
    """Between two points of the curve: a straight line over the logarithm of the bytes. Beyond its ends: the end."""
    if footprint <= curve[0][0]:
        return curve[0][1]
    for (x0, y0), (x1, y1) in zip(curve, curve[1:]):
        if footprint <= x1:
            return y0 + (y1 - y0) * math.log(footprint / x0) / math.log(x1 / x0)
    return curve[-1][1]


@dataclass(frozen=True)
class Machine:
    """What a plan runs on. Times in seconds.

    ``push``: Python's time for one operation; ``copy``: a copy between devices; ``add``: a sum of two; ``add_more``:
    what each further part of a sum adds to ``add``, as a share of it; ``cores``: operations that can run at the same
    time.
    """

    push: float
    copy: Rate
    add: Rate
    add_more: float
    cores: int
    measured_on: str = ""

    def with_cores(self, cores: int) -> Machine:
        """The same speeds, on another number of cores."""
        return replace(self, cores=cores)

    def seconds(self, operation: Operation, nbytes: float, footprint: float, others: bool) -> float:
        """One operation whose result has ``nbytes`` bytes."""
        if operation.action == COPY:
            return self.copy.seconds(nbytes, footprint, others)
        more = 1 + self.add_more * (len(operation.sources) - 2)
        return self.add.seconds(nbytes * more, footprint, others)


def predict(schedule: Schedule, nbytes: int, machine: Machine) -> float:
    """Seconds for the plan over vectors of ``nbytes`` bytes, from the first push to the last operation's end.

    >>> from mxdp.plans.collective.algorithms import plan
    >>> flat = ((1.0, 1e-9),)
    >>> machine = Machine(0.0, Rate(0.0, flat, flat), Rate(0.0, flat, flat), 0.0, cores=2)
    >>> [round(predict(plan(name, 2), 2_000_000, machine) * 1e3, 3) for name in ("naive", "direct")]
    [6.0, 4.0]
    """
    if not nbytes:
        return 0.0
    length = sum(schedule.sizes) or nbytes
    unit = nbytes / length
    sizes = [(stop - start) * unit for start, stop in schedule.borders(length)]
    jobs = adds_in_place(schedule, nbytes)
    todo = [operation for operation in operations(schedule, jobs) if sizes[operation.target.chunk]]
    return _Replay(todo, sizes, machine, whole_arrays=bool(schedule.sizes) or jobs).run()


@dataclass
class _Replay:
    todo: List[Operation]
    sizes: Sequence[float]
    machine: Machine
    whole_arrays: bool
    running: Dict[int, float] = field(default_factory=dict)
    """Moves that run now, with the share of each that is still to do."""

    def run(self) -> float:
        waits_for = self._dependencies()
        footprint = self._footprint()
        waiting, done, queue = list(range(len(self.todo))), set(), []  # type: ignore[var-annotated]
        now = 0.0
        while waiting or queue or self.running:
            for number in [n for n in waiting if self._pushed(n) <= now and waits_for[n] <= done]:
                waiting.remove(number)
                queue.append(number)
            self._start(queue)
            others = len(self.running) > 1
            seconds = {
                number: self.machine.seconds(
                    self.todo[number], self.sizes[self.todo[number].target.chunk], footprint, others
                )
                for number in self.running
            }
            ahead = [left * seconds[number] for number, left in self.running.items()]
            ahead += [self._pushed(number) - now for number in waiting if self._pushed(number) > now]
            step = min(ahead)
            now += step
            for number in list(self.running):
                self.running[number] -= step / seconds[number] if seconds[number] else 1.0
                if self.running[number] <= 1e-12:
                    del self.running[number]
                    done.add(number)
        return now

    def _pushed(self, number: int) -> float:
        return (number + 1) * self.machine.push

    def _start(self, queue: List[int]) -> None:
        """Start what has a worker and a core, in the order in which it became ready."""
        busy = {self.todo[number].worker for number in self.running}
        for number in list(queue):
            worker = self.todo[number].worker
            if worker not in busy and len(self.running) < self.machine.cores:
                queue.remove(number)
                self.running[number] = 1.0
            busy.add(worker)

    def _dependencies(self) -> List[Set[int]]:
        """For each operation, those that must have ended: the writers of what it reads, all users of what it writes."""
        wrote: Dict[Hashable, int] = {}
        read: Dict[Hashable, Set[int]] = {}
        result = []
        for number, operation in enumerate(self.todo):
            sources, target = {self._array(slot) for slot in operation.sources}, self._array(operation.target)
            before = {wrote[array] for array in sources | {target} if array in wrote} | read.get(target, set())
            result.append(before - {number})
            for array in sources:
                read.setdefault(array, set()).add(number)
            wrote[target], read[target] = number, set()
        return result

    def _array(self, slot: Slot) -> Hashable:
        """What MXNet takes as one array: a box, or a whole vector."""
        return slot if slot.box or self.whole_arrays else slot.device

    def _footprint(self) -> float:
        slots = {slot for operation in self.todo for slot in (*operation.sources, operation.target)}
        return sum(self.sizes[slot.chunk] for slot in slots)
