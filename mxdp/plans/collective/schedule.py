"""The schedule of a collective: who sends which chunk to whom, step by step.

Each device holds a vector, cut into chunks. A plan is a list of steps, and a step is a list of sends. All sends of a
step happen at once: each sends what its source held before the step. The modules beside this one make the plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

from mxdp.errors import plural
from mxdp.plans.partition import Bounds, bounds, offsets

ADD = "add"
COPY = "copy"
READ = "read"

_ARROWS = {ADD: "+>", COPY: "->", READ: "=>"}


@dataclass(frozen=True)
class Send:
    """Device ``source`` sends ``chunk`` to device ``target``, which adds it to its own (``ADD``), overwrites its own
    (``COPY``), or adds it without a message (``READ``): it reads the memory of the source, which both must share."""

    source: int
    target: int
    chunk: int
    action: str

    def __str__(self) -> str:
        return f"{self.source} {_ARROWS[self.action]} {self.target} chunk {self.chunk}"


Step = Tuple[Send, ...]


@dataclass(frozen=True)
class Schedule:
    """A collective over ``devices`` vectors, each cut evenly into ``chunks``. With ``sizes``, the chunks are whole
    arrays of so many elements, which need not lie side by side (:func:`mxdp.plans.collective.one_hop.sharded`)."""

    name: str
    devices: int
    chunks: int
    steps: Tuple[Step, ...]
    sizes: Tuple[int, ...] = ()

    def __str__(self) -> str:
        devices = plural(self.devices, "device")
        chunks = plural(self.chunks, "chunk")
        lines = [f"{self.name}: {devices}, {chunks}, {plural(len(self.steps), 'step')}"]
        for number, step in enumerate(self.steps, 1):
            lines.append(f"step {number}: " + ", ".join(map(str, step)))
        return "\n".join(lines)

    @property
    def reads(self) -> bool:
        """A device reads another's memory."""
        return any(send.action == READ for step in self.steps for send in step)

    def borders(self, length: int) -> List[Bounds]:
        """The (start, stop) of each chunk in ``length`` elements. Raises a ValueError if ``sizes`` have another sum."""
        if not self.sizes:
            return bounds(length, self.chunks)
        ends = offsets(self.sizes)
        if ends[-1] != length:
            raise ValueError(
                f"{self.name} was planned for {ends[-1]} elements in all, not {length}"
            )
        return list(zip(ends, ends[1:]))

    def sent(self, length: int) -> List[int]:
        """The number of elements that each device sends in all steps. What is read in place is not sent."""
        sizes = [stop - start for start, stop in self.borders(length)]
        total = [0] * self.devices
        for step in self.steps:
            for send in step:
                if send.action != READ:
                    total[send.source] += sizes[send.chunk]
        return total


def check_devices(devices: int) -> None:
    """Raise a ValueError for less than one device."""
    if devices < 1:
        raise ValueError(f"a collective needs at least one device, not {devices}")
