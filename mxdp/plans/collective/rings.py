"""Rings: in each step every device sends one chunk to its neighbour, all at the same time.

Three devices, each with a vector of its own in chunks a, b, c (``a0`` is chunk a of device 0)::

              device 0        device 1        device 2
    start     a0  b0  c0      a1  b1  c1      a2  b2  c2
                                                                  reduce-scatter: add what arrives
    step 1    a0  b02 c0      a1  b1  c01     a12 b2  c2          0 -c-> 1   1 -a-> 2   2 -b-> 0
    step 2    A   b02 c0      a1  B   c01     a12 b2  C           0 -b-> 1   1 -c-> 2   2 -a-> 0
                                                                  all-gather: overwrite with what arrives
    step 3    A   b02 C       A   B   c01     a12 B   C           0 -a-> 1   1 -b-> 2   2 -c-> 0
    step 4    A   B   C       A   B   C       A   B   C           0 -c-> 1   1 -a-> 2   2 -b-> 0

Capitals are complete sums. Every device sends one chunk in each of 2 (n - 1) steps, 2 (n - 1) / n of the vector in all.
In no all-reduce by messages does the busiest device send less. Source: Patarasuk and Yuan, "Bandwidth optimal
all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69 (2009).

Each function raises a ValueError for less than one device.
"""

from __future__ import annotations

from typing import Tuple

from mxdp.plans.collective.schedule import ADD, COPY, Schedule, Send, Step, check_devices


def reduce_scatter(devices: int) -> Schedule:
    """The first half of the ring: afterwards device i holds the sum of chunk i; its other chunks hold partial sums. It
    has n - 1 steps, and each device sends (n - 1) / n of the vector."""
    check_devices(devices)
    return Schedule("reduce-scatter", devices, devices, _round_trip(devices, ADD))


def all_gather(devices: int) -> Schedule:
    """The second half of the ring: chunk i of device i is copied to all others. It costs as much as the first."""
    check_devices(devices)
    return Schedule("all-gather", devices, devices, _round_trip(devices, COPY))


def ring(devices: int) -> Schedule:
    """Reduce-scatter, then all-gather, around a ring. The steps drawn above are ``ring(3)``."""
    steps = reduce_scatter(devices).steps + all_gather(devices).steps
    return Schedule("ring", devices, devices, steps)


def bidirectional_ring(devices: int) -> Schedule:
    """Two rings at once, one for each half of the vector, in opposite directions.

    Three devices, with chunks a, b, c as in the ring above and d, e, f in the opposite direction::

        step 1   0 -c-> 1   1 -a-> 2   2 -b-> 0      0 -e-> 2   1 -f-> 0   2 -d-> 1    add
        step 2   0 -b-> 1   1 -c-> 2   2 -a-> 0      0 -f-> 2   1 -d-> 0   2 -e-> 1    add
        step 3   0 -a-> 1   1 -b-> 2   2 -c-> 0      0 -d-> 2   1 -e-> 0   2 -f-> 1    copy
        step 4   0 -c-> 1   1 -a-> 2   2 -b-> 0      0 -e-> 2   1 -f-> 0   2 -d-> 1    copy

    As many steps as the ring and as many bytes, but over both links of each device. A step takes half the time if links
    carry traffic in both directions at once. Otherwise nothing is gained, nor on two devices, which have one link.
    """
    check_devices(devices)
    steps = []
    for action in (ADD, COPY):
        forward = _round_trip(devices, action)
        for step in forward:
            # The opposite direction is the mirror image: device and chunk i become -i.
            mirrored = (
                Send(
                    -send.source % devices,
                    -send.target % devices,
                    devices + -send.chunk % devices,
                    action,
                )
                for send in step
            )
            steps.append(step + tuple(sorted(mirrored, key=lambda send: send.source)))
    return Schedule("bidirectional-ring", devices, 2 * devices, tuple(steps))


def _round_trip(devices: int, action: str) -> Tuple[Step, ...]:
    """n - 1 steps to the next device. Sums of chunk i end on device i; copies of chunk i begin there."""
    ahead = 1 if action == ADD else 0
    return tuple(
        tuple(
            Send(source, (source + 1) % devices, (source - step - ahead) % devices, action)
            for source in range(devices)
        )
        for step in range(devices - 1)
    )
