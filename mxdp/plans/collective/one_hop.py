"""One-hop all-reduces: the device that adds receives all parts directly and sends the sum directly to all devices.

Each function raises a ValueError for less than one device (:func:`server`: two).
"""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send, Step, check_devices


def naive(devices: int) -> Schedule:
    """The book's all-reduce: every device sends its vector to device 0, which adds them up and sends the sum back.

    ::

        device     0         1         2
        start      0         1         2
        step 1     0+1+2     1         2          1 -> 0   2 -> 0     add
        step 2     0+1+2     0+1+2     0+1+2      0 -> 1   0 -> 2     copy

    Two steps, but all traffic passes device 0: it receives n - 1 vectors and sends n - 1, while the others wait.
    Source: Dive into Deep Learning, "Training on Multiple GPUs".
    """
    check_devices(devices)
    return Schedule("naive", devices, 1, _gather_and_scatter(devices, [0], ADD))


def sharded(devices: int, sizes: Sequence[int] = (1,)) -> Schedule:
    """Naive, but the arrays are added up on different devices: each on the least loaded one, the largest arrays first.

    Five arrays of 5, 4, 3, 3 and 1 elements on three devices::

        array            0    1    2    3    4
        elements         5    4    3    3    1          device 0 adds 5, device 1 adds 4 + 1, device 2 adds 3 + 3
        added up on      0    1    2    2    1

    Two steps. If the load is even, each device sends 2 (n - 1) / n of all elements, like the ring. With a single array
    it is the naive plan. It answers an exercise of the book's "Parameter Servers"; MXNet's ``device`` store does it.
    """
    check_devices(devices)
    steps = _gather_and_scatter(devices, owners(devices, sizes), ADD)
    return Schedule("sharded", devices, len(sizes), steps, tuple(sizes))


def owners(devices: int, sizes: Sequence[int]) -> List[int]:
    """The device that adds up each array: the largest first, each on the least loaded device. The largest load is at
    most 4/3 of the best: Graham, "Bounds on multiprocessing timing anomalies", SIAM J. Appl. Math. 17 (1969)."""
    load = [0] * devices
    owner = [0] * len(sizes)
    for array in sorted(range(len(sizes)), key=lambda array: -sizes[array]):
        owner[array] = load.index(min(load))
        load[owner[array]] += sizes[array]
    return owner


def loads(devices: int, sizes: Sequence[int]) -> List[int]:
    """The elements that each of :func:`owners` adds up; without devices that have none."""
    sums = [0] * devices
    for size, device in zip(sizes, owners(devices, sizes)):
        sums[device] += size
    return [elements for elements in sums if elements]


def direct(devices: int) -> Schedule:
    """Every device adds up one chunk: it receives this chunk from all others and sends the sum to all.

    ::

                  device 0        device 1        device 2
        start     a0  b0  c0      a1  b1  c1      a2  b2  c2
        step 1    A   b0  c0      a1  B   c1      a2  b2  C      1 -a-> 0   2 -b-> 1   0 -c-> 2   and 3 more: add
        step 2    A   B   C       A   B   C       A   B   C      0 -a-> 1   1 -b-> 2   2 -c-> 0   and 3 more: copy

    Each device sends 2 (n - 1) / n of the vector, as in the ring, but in two steps instead of 2 (n - 1). It is better
    than the ring where all links are equally fast, and worse where only neighbours have a fast link.
    """
    check_devices(devices)
    return Schedule("direct", devices, devices, _gather_and_scatter(devices, range(devices), ADD))


def shared_memory(devices: int) -> Schedule:
    """:func:`direct` without its first messages: a device reads its chunk in the memory of all others and adds it up.

    ::

                  device 0        device 1
        start     a0  b0          a1  b1
        step 1    A   b0          a1  B          0 reads a1   1 reads b0    (each sum is made in a staging buffer)
        step 2    A   B           A   B          0 -a-> 1     1 -b-> 0      copy

    Each device sends (n - 1) / n of the vector, half of what an all-reduce by messages needs. MXNet's CPU devices can
    do this; its GPUs can't read each other's memory. Large vectors are summed in place, without staging buffers
    (:mod:`mxdp.collectives.in_place`).
    """
    check_devices(devices)
    steps = _gather_and_scatter(devices, range(devices), READ)
    return Schedule("shared-memory", devices, devices, steps)


def server(devices: int) -> Schedule:
    """A parameter server: the last device has no part of its own, adds up the others' vectors and sends the sum back.

    ::

        device     0         1         2         3
        start      0         1         2         3
        step 1     0         1         2         0          0 -> 3                    copy
        step 2     0         1         2         0+1+2      1 -> 3   2 -> 3           add
        step 3     0+1+2     0+1+2     0+1+2     0+1+2      3 -> 0   3 -> 1   3 -> 2  copy

    The server's first content (3) is overwritten. One more vector is sent in each direction than in the naive plan over
    the devices without the server. This is no all-reduce of all ``devices``.
    Source: Dive into Deep Learning, "Parameter Servers", which adds up the GPUs' gradients on the CPU.
    """
    if devices < 2:
        raise ValueError(f"a server needs at least one other device: two in all, not {devices}")
    last = devices - 1
    first = (Send(0, last, 0, COPY),)
    adding = tuple(Send(device, last, 0, ADD) for device in range(1, last))
    copying = tuple(Send(last, device, 0, COPY) for device in range(last))
    steps = tuple(step for step in (first, adding, copying) if step)
    return Schedule("server", devices, 1, steps)


def _gather_and_scatter(devices: int, owner: Sequence[int], gather: str) -> Tuple[Step, ...]:
    """All devices send each chunk to its owner, which sends the sum back. The sends are ordered by distance, so that
    not all devices send to the same owner at once."""
    if devices == 1 or not owner:
        return ()
    there = []
    back = []
    for distance in range(1, devices):
        for chunk, device in enumerate(owner):
            other = (device + distance) % devices
            there.append(Send(other, device, chunk, gather))
            back.append(Send(device, other, chunk, COPY))
    return tuple(there), tuple(back)
