"""Who sends which chunk to whom, step by step.

A ring of three devices, each of which holds its own vector in chunks a, b, c (written here as ``a0`` for device 0's)::

              device 0        device 1        device 2
    start     a0  b0  c0      a1  b1  c1      a2  b2  c2
                                                                  reduce-scatter: add what arrives
    step 1    a0  b0  c02     a01 b1  c1      a2  b12 c2          0 -a-> 1   1 -b-> 2   2 -c-> 0
    step 2    a0  B   c02     a01 b1  C       A   b12 c2          0 -c-> 1   1 -a-> 2   2 -b-> 0
                                                                  all-gather: overwrite with what arrives
    step 3    A   B   c02     a01 B   C       A   b12 C           0 -b-> 1   1 -c-> 2   2 -a-> 0
    step 4    A   B   C       A   B   C       A   B   C           0 -a-> 1   1 -b-> 2   2 -c-> 0

Capitals are complete sums. Every device sends one chunk a step, 2 (n - 1) steps: 2 (n - 1) / n of the vector in all,
which no all-reduce can beat. Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of
workstations", J. Parallel Distrib. Comput. 69 (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import List, Tuple

ADD = "add"
COPY = "copy"


@dataclass(frozen=True)
class Send:
    """``chunk`` goes from device ``source`` to ``target``, which adds it to its own or overwrites its own with it."""

    source: int
    target: int
    chunk: int
    action: str

    def __str__(self) -> str:
        arrow = "+>" if self.action == ADD else "->"
        return f"{self.source} {arrow} {self.target} chunk {self.chunk}"


Step = Tuple[Send, ...]


@dataclass(frozen=True)
class Schedule:
    """An all-reduce over ``devices`` vectors, each cut into ``chunks``; sends of one step may run side by side."""

    name: str
    devices: int
    chunks: int
    steps: Tuple[Step, ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.devices} devices, {self.chunks} chunks, {len(self.steps)} steps"]
        lines += [f"step {number}: " + ", ".join(map(str, step)) for number, step in enumerate(self.steps, 1)]
        return "\n".join(lines)


def _check(devices: int) -> None:
    if devices < 1:
        raise ValueError(f"an all-reduce needs at least one device, not {devices}")


def ring(devices: int) -> Schedule:
    """Reduce-scatter, then all-gather, around a ring. The steps drawn above are ``ring(3)``.

    >>> print(ring(2))
    ring: 2 devices, 2 chunks, 2 steps
    step 1: 0 +> 1 chunk 0, 1 +> 0 chunk 1
    step 2: 0 -> 1 chunk 1, 1 -> 0 chunk 0

    Raises:
        ValueError: ``devices`` is less than one.
    """
    _check(devices)
    steps: List[Step] = []
    for first_chunk, action in ((0, ADD), (1, COPY)):
        for step in range(devices - 1):
            sends = (
                Send(source, (source + 1) % devices, (source + first_chunk - step) % devices, action)
                for source in range(devices)
            )
            steps.append(tuple(sends))
    return Schedule("ring", devices, devices, tuple(steps))


def doubling(devices: int) -> Schedule:
    """Recursive doubling: partners exchange all they have and both add it; the distance to the partner doubles.

    ::

        device     0         1         2         3
        start      0         1         2         3
        step 1     0+1       0+1       2+3       2+3          0 <-> 1   2 <-> 3
        step 2     0+1+2+3   0+1+2+3   0+1+2+3   0+1+2+3      0 <-> 2   1 <-> 3

    log2(n) steps of whole vectors: the fewest steps there can be, and so the least waiting for small vectors. Devices
    beyond a power of two hand theirs to a device below it first, and get the sum last. Both partners add the same two
    numbers, so all devices end with the same bits.

    >>> print(doubling(2))
    doubling: 2 devices, 1 chunks, 1 steps
    step 1: 0 +> 1 chunk 0, 1 +> 0 chunk 0

    Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", Int. J. High
    Perform. Comput. Appl. 19 (2005).

    Raises:
        ValueError: ``devices`` is less than one.
    """
    _check(devices)
    core = 1 << (devices.bit_length() - 1)
    beyond = range(core, devices)
    steps: List[Step] = [tuple(Send(device, device - core, 0, ADD) for device in beyond)]
    for bit in range(core.bit_length() - 1):
        steps.append(tuple(Send(device, device ^ (1 << bit), 0, ADD) for device in range(core)))
    steps.append(tuple(Send(device - core, device, 0, COPY) for device in beyond))
    return Schedule("doubling", devices, 1, tuple(step for step in steps if step))


def naive(devices: int) -> Schedule:
    """The book's: every device sends the whole vector to device 0, which adds them up and sends the sum back.

    >>> print(naive(3))
    naive: 3 devices, 1 chunks, 4 steps
    step 1: 1 +> 0 chunk 0
    step 2: 2 +> 0 chunk 0
    step 3: 0 -> 1 chunk 0
    step 4: 0 -> 2 chunk 0

    All traffic crosses device 0: 2 (n - 1) whole vectors, one after the other.
    Source: Dive into Deep Learning, "Training on Multiple GPUs".

    Raises:
        ValueError: ``devices`` is less than one.
    """
    _check(devices)
    gather = tuple((Send(source, 0, 0, ADD),) for source in range(1, devices))
    broadcast = tuple((Send(0, target, 0, COPY),) for target in range(1, devices))
    return Schedule("naive", devices, 1, gather + broadcast)
