"""Trees: few steps with whole vectors, which suits small vectors on many devices.

Each function raises a ValueError for less than one device, or a source that is none of them.
"""

from __future__ import annotations

from typing import List

from mxdp.plans.collective.schedule import ADD, COPY, Schedule, Send, Step, check_devices


def tree(devices: int) -> Schedule:
    """Add up a binomial tree to its root, then copy the sum down the tree.

    ::

        device     0         1         2         3
        start      0         1         2         3
        step 1     0+1       1         2+3       3           1 -> 0   3 -> 2      add
        step 2     0+1+2+3   1         2+3       3           2 -> 0               add
        step 3     0+1+2+3   1         0+1+2+3   3           0 -> 2               copy
        step 4     0+1+2+3   0+1+2+3   0+1+2+3   0+1+2+3     0 -> 1   2 -> 3      copy

    2 ceil(log2(n)) steps with whole vectors; 2 (n - 1) vectors are sent in all. Source: Thakur, Rabenseifner and Gropp,
    "Optimization of collective communication operations in MPICH", Int. J. High Perform. Comput. Appl. 19 (2005).
    """
    down = broadcast(devices).steps
    up = []
    for step in reversed(down):
        up.append(tuple(Send(send.target, send.source, 0, ADD) for send in step))
    return Schedule("tree", devices, 1, (*up, *down))


def broadcast(devices: int, source: int = 0) -> Schedule:
    """Copy the vector of ``source`` to all: every device that has it forwards it, so their number doubles each step. It
    has ceil(log2(n)) steps; n - 1 vectors are sent in all.

    >>> print(broadcast(4, source=3))
    broadcast: 4 devices, 1 chunk, 2 steps
    step 1: 3 -> 1 chunk 0
    step 2: 3 -> 0 chunk 0, 1 -> 2 chunk 0
    """
    check_devices(devices)
    if not 0 <= source < devices:
        raise ValueError(
            f"there is no device {source} among {devices}: source is 0 to {devices - 1}"
        )
    steps = []
    distance = 1 << (devices - 1).bit_length()
    while distance > 1:
        between = distance  # neighbouring devices that have the vector
        distance //= 2
        step = []
        for near in range(0, devices - distance, between):
            has = (near + source) % devices
            step.append(Send(has, (has + distance) % devices, 0, COPY))
        steps.append(tuple(step))
    return Schedule("broadcast", devices, 1, tuple(steps))


def doubling(devices: int) -> Schedule:
    """Recursive doubling: partners exchange their sums and both add them; the distance to the partner doubles.

    ::

        device     0         1         2         3
        start      0         1         2         3
        step 1     0+1       0+1       2+3       2+3          0 <-> 1   2 <-> 3
        step 2     0+1+2+3   0+1+2+3   0+1+2+3   0+1+2+3      0 <-> 2   1 <-> 3

    log2(n) steps with whole vectors, the smallest possible number, which suits small vectors; but n log2(n) vectors are
    sent in all. If n is no power of two, the devices beyond the largest power first send their vectors to a device
    below it, and receive the sum last: two more steps. Both partners add the same two numbers, so all devices end with
    the same bits. Source: as for :func:`tree`.
    """
    check_devices(devices)
    core = 1 << (devices.bit_length() - 1)
    beyond = range(core, devices)
    steps: List[Step] = [tuple(Send(device, device - core, 0, ADD) for device in beyond)]
    distance = 1
    while distance < core:
        # One bit of the number tells partners apart.
        steps.append(tuple(Send(device, device ^ distance, 0, ADD) for device in range(core)))
        distance *= 2
    steps.append(tuple(Send(device - core, device, 0, COPY) for device in beyond))
    return Schedule("doubling", devices, 1, tuple(step for step in steps if step))
