"""The operations of a plan: each device's copies and sums of arrays.

A plan says who sends which chunk to whom; MXNet works on arrays. A chunk that is to be added is received into a
*staging buffer* beside the device's own vector, where it overwrites nothing. All that arrives for one chunk in one step
is added at once. MXNet orders work by whole arrays, and all chunks of a vector are one array. Hence:

- In the second half of a ring every device receives a chunk while it forwards another. If both lay in the vector, each
  send would wait for the next device's send. So the chunk is received into a staging buffer, forwarded from there, and
  copied into place last.
- A sum that reads the other devices' memory (``READ``) is written to a staging buffer. Written into the vector, it
  would wait for all devices that read that vector. (A vector of one element has no other reader.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Tuple

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send

MAX_PARTS = 4
"""Arrays in one sum. MXNet's ``add_n`` adds up to four in one pass, but makes one pass for each if there are more
(source: src/operator/tensor/elemwise_sum.h)."""

IN_PLACE_BYTES = 2 << 20
"""Vectors of this size and more are summed in place where memory is shared (:func:`adds_in_place`)."""


Place = Tuple[int, int]
"""A device, and a chunk."""


@dataclass(frozen=True)
class Slot:
    """A chunk on a device. ``buffer`` 0 is its place in the device's vector; others are staging buffers."""

    device: int
    chunk: int
    buffer: int = 0

    def __str__(self) -> str:
        where = f"{self.device}.{self.chunk}"
        return f"buffer {where}.{self.buffer}" if self.buffer else where


@dataclass(frozen=True)
class Operation:
    """``COPY``: one source to the target. ``ADD``: the sum of all sources, the first of which may be the target."""

    action: str
    sources: Tuple[Slot, ...]
    target: Slot

    @property
    def worker(self) -> int:
        """The device that does the work. MXNet runs a CPU copy on the worker of its source."""
        return self.sources[0].device if self.action == COPY else self.target.device

    def __str__(self) -> str:
        return f"{self.target} = {' + '.join(map(str, self.sources))}"


def adds_in_place(schedule: Schedule, nbytes: int) -> bool:
    """True if a vector of ``nbytes`` is summed in place, with the other devices' memory as input: then each device has
    one job, and no job waits for another (:mod:`mxdp.collectives.in_place`). Below :data:`IN_PLACE_BYTES` staging
    buffers cost less than the guards that keep the jobs apart from other work."""
    return schedule.reads and nbytes >= IN_PLACE_BYTES


def operations(
    schedule: Schedule, in_place: bool = False, filled: Optional[Sequence[bool]] = None
) -> List[Operation]:
    """The plan's operations, in an order in which they could run one after the other. Independent ones may overlap.

    ``in_place``: a sum that reads other devices' memory is written to its place, not to a staging buffer. ``filled``:
    which chunks have elements; nothing is done with the others. Where only one has some, sums are written to their
    place, too: no device reads another chunk of that vector.

    >>> from mxdp.plans.collective.rings import ring
    >>> for operation in operations(ring(2)):
    ...     print(operation)
    buffer 1.1.1 = 0.1
    buffer 0.0.1 = 1.0
    1.1 = 1.1 + buffer 1.1.1
    0.0 = 0.0 + buffer 0.0.1
    1.0 = 0.0
    0.1 = 1.1
    """
    done = []
    latest: Dict[Place, Slot] = {}  # where a chunk lies after it was received or summed
    in_place = in_place or (filled is not None and sum(filled) == 1)

    def here(device: int, chunk: int) -> Slot:
        return latest.get((device, chunk), Slot(device, chunk))

    for number, step in enumerate(schedule.steps):
        arrivals: Dict[Place, List[Slot]] = {}
        received: Dict[Place, Slot] = {}
        for send in step:
            key = (send.target, send.chunk)
            source = here(send.source, send.chunk)
            if send.action == READ:
                arrivals.setdefault(key, []).append(source)
                continue
            buffer = 0
            if send.action == ADD:
                buffer = len(arrivals.setdefault(key, [])) + 1
                arrivals[key].append(Slot(*key, buffer))
            elif _forwarded_while_receiving(schedule, number, send):
                buffer = 1
            received[key] = Slot(*key, buffer)
            done.append(Operation(COPY, (source,), received[key]))
        for key, parts in arrivals.items():
            staged = all(part.device == key[0] for part in parts)
            target = here(*key) if staged or in_place else Slot(*key, 1)
            done += _sum([here(*key), *parts], target)
            received[key] = target
        latest.update(received)
    for key, slot in latest.items():
        if slot.buffer:
            done.append(Operation(COPY, (slot,), Slot(*key)))
    return [operation for operation in done if filled is None or filled[operation.target.chunk]]


def _sum(parts: List[Slot], target: Slot) -> List[Operation]:
    """``target`` = the sum of ``parts``, at most ``MAX_PARTS`` of them in each operation."""
    result = [Operation(ADD, tuple(parts[:MAX_PARTS]), target)]
    more = MAX_PARTS - 1  # beside the sum so far
    for first in range(MAX_PARTS, len(parts), more):
        result.append(Operation(ADD, (target, *parts[first : first + more]), target))
    return result


def _forwarded_while_receiving(schedule: Schedule, number: int, send: Send) -> bool:
    """True if the target forwards this chunk in a later step in which it also receives something."""
    forwarded = (send.target, send.chunk)
    for step in schedule.steps[number + 1 :]:
        receives = any(later.target == send.target for later in step)
        if receives and any((later.source, later.chunk) == forwarded for later in step):
            return True
    return False
