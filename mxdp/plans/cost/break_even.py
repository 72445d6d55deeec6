"""When does another device pay? Predicts a data-parallel step from times of one device, and the break-even's batch.

On k devices each has 1 / k of the batch. The time of a step on one device is nearly a line, ``a + c n`` for ``n``
samples: ``a`` is the update, Python and what else does not depend on the batch, and each device pays it. The all-reduce
comes on top. So a further device pays where the compute that it takes over, ``c`` times its samples, is more than the
all-reduce: few parameters, much compute a sample, a large batch.
"""

from __future__ import annotations

import math
from typing import Optional

from mxdp.plans.cost.link import Link


def node_seconds(slowest: float, mean: float, python: float, devices: int, cores: Optional[int]) -> float:
    """Seconds of work that all ``devices`` of a node do at once: of the ``slowest`` device, or more where one Python
    must drive them all, or where they share the cores. ``mean`` and ``python``: for a device, in the mean."""
    work = devices * (mean + python) / cores if cores else 0.0
    return max(slowest, devices * python, work)


def step_seconds(shard: float, python: float, devices: int, cores: Optional[int], allreduce: float) -> float:
    """Predicted seconds of a step on ``devices`` devices, in steps that follow one another without a wait.

    Args:
        shard: seconds of one device for 1 / devices of the batch, with the update.
        python: processor time of Python for this, which works ahead of the device and needs a core as well.
        cores: shared by CPU devices and Python; None: devices that need none, such as GPUs.
        allreduce: seconds of the all-reduce of all gradients.

    >>> step_seconds(shard=2.0, python=0.1, devices=2, cores=4, allreduce=0.5)
    2.5
    >>> step_seconds(shard=2.0, python=0.1, devices=4, cores=2, allreduce=0.5)
    4.7
    """
    return node_seconds(shard, shard, python, devices, cores) + allreduce


def break_even(device: Link, python: float, devices: int, cores: Optional[int], allreduce: float) -> float:
    """Samples a device from which on a step on ``devices`` devices is predicted to be faster than on one; ``math.inf``
    if it never is, and at least 0.

    ``device``: a step on one device, fitted as a link is: ``alpha`` seconds, and ``beta`` for each sample (both more
    than 0). The other arguments are those of :func:`step_seconds`.

    >>> [round(break_even(Link(1e-3, 1e-4), 0.0, 2, cores, allreduce=2e-3), 1) for cores in (1, 2)]
    [inf, 20.0]
    """
    # Each of node_seconds' bounds is slope * shard + fixed.
    bounds = [(1.0, 0.0), (0.0, devices * python)]
    bounds += [(devices / cores, devices * python / cores)] if cores else []
    least = 0.0
    for slope, fixed in bounds:
        # alpha + beta devices n  >=  slope (alpha + beta n) + fixed + allreduce
        gain, loss = device.beta * (devices - slope), (slope - 1) * device.alpha + fixed + allreduce
        least = max(least, loss / gain if gain > 0 else 0.0 if loss <= 0 else math.inf)
    return least
