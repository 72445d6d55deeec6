"""From a plan to the work of each device: which array is copied where, and what is added to what.

A plan says who sends which chunk to whom; MXNet wants arrays. What arrives to be added lands in a *box* beside the
device's own vector, since it must not overwrite anything, and all that arrives for one chunk in one step is added at
once. MXNet orders work by whole arrays, and the chunks of a vector are one array to it, so that two things decide how
much can run at the same time:

- In a ring's second half every device receives a chunk while it passes another on. If both were in the vector, each
  send would wait for the next one's. There the chunk lands in a box, goes on from it, and is put in its place last.
- A sum out of the others' memory (``READ``) goes to a box: in its place, it would wait for all who read that vector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Tuple

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send

MAX_PARTS = 4
"""Arrays in one sum. MXNet's ``add_n`` goes once over up to four, but over more once for each (source:
src/operator/tensor/elemwise_sum.h)."""

IN_PLACE_BYTES = 8 << 20
"""From this size of a vector on, a sum out of the others' memory is made in place (:func:`adds_in_place`)."""


@dataclass(frozen=True)
class Slot:
    """Where a chunk can lie on a device: ``box`` 0 is its place in the device's vector, the others are beside it."""

    device: int
    chunk: int
    box: int = 0

    def __str__(self) -> str:
        where = f"{self.device}.{self.chunk}"
        return f"box {where}.{self.box}" if self.box else where


@dataclass(frozen=True)
class Operation:
    """``COPY``: one source to the target. ``ADD``: the sum of all sources, the first of which may be the target."""

    action: str
    sources: Tuple[Slot, ...]
    target: Slot

    @property
    def worker(self) -> int:
        """The device that does the work: MXNet's CPU copies run on their source's worker."""
        return self.sources[0].device if self.action == COPY else self.target.device

    def __str__(self) -> str:
        return f"{self.target} = {' + '.join(map(str, self.sources))}"


def adds_in_place(schedule: Schedule, nbytes: int) -> bool:
    """Are the sums of a vector of ``nbytes`` made where they stay, out of the others' memory? Then each device has one
    job, of which nothing waits for another's (:mod:`mxdp.collectives.in_place`); below :data:`IN_PLACE_BYTES` the boxes
    cost less than what keeps the jobs apart from other work."""
    reads = any(send.action == READ for step in schedule.steps for send in step)
    return reads and nbytes >= IN_PLACE_BYTES


def operations(schedule: Schedule, in_place: bool = False) -> List[Operation]:
    """The plan's operations, in an order in which one after the other would do; what needn't wait may run side by side.

    ``in_place``: sums out of the others' memory go to their place, not to a box.

    >>> from mxdp.plans.collective.rings import ring
    >>> for operation in operations(ring(2)):
    ...     print(operation)
    box 1.1.1 = 0.1
    box 0.0.1 = 1.0
    1.1 = 1.1 + box 1.1.1
    0.0 = 0.0 + box 0.0.1
    1.0 = 0.0
    0.1 = 1.1
    """
    done: List[Operation] = []
    moved: Dict[Tuple[int, int], Slot] = {}  # chunks that are not in their place now

    def here(device: int, chunk: int) -> Slot:
        return moved.get((device, chunk), Slot(device, chunk))

    for number, step in enumerate(schedule.steps):
        arrivals: Dict[Tuple[int, int], List[Slot]] = {}
        landed: Dict[Tuple[int, int], Slot] = {}
        for send in step:
            key, source = (send.target, send.chunk), here(send.source, send.chunk)
            if send.action == READ:
                arrivals.setdefault(key, []).append(source)
                continue
            box = 0
            if send.action == ADD:
                box = len(arrivals.setdefault(key, [])) + 1
                arrivals[key].append(Slot(*key, box))
            elif _passed_on_while_receiving(schedule, number, send):
                box = 1
            landed[key] = Slot(*key, box)
            done.append(Operation(COPY, (source,), landed[key]))
        for key, parts in arrivals.items():
            own = all(part.device == key[0] for part in parts)
            target = here(*key) if own or in_place else Slot(*key, 1)
            done += _sum([here(*key), *parts], target)
            landed[key] = target
        moved.update(landed)
    done += [Operation(COPY, (slot,), Slot(*key)) for key, slot in moved.items() if slot.box]
    return done


def _sum(parts: List[Slot], target: Slot) -> List[Operation]:
    """``target`` = the sum of ``parts``, in operations of at most ``MAX_PARTS`` each."""
    result = [Operation(ADD, tuple(parts[:MAX_PARTS]), target)]
    for first in range(MAX_PARTS, len(parts), MAX_PARTS - 1):
        result.append(Operation(ADD, (target, *parts[first : first + MAX_PARTS - 1]), target))
    return result


def _passed_on_while_receiving(schedule: Schedule, number: int, send: Send) -> bool:
    """Does the target send this chunk on, in a later step, in which something arrives there too?"""
    return any(
        any(later.source == send.target and later.chunk == send.chunk for later in step)
        and any(later.target == send.target for later in step)
        for step in schedule.steps[number + 1 :]
    )
