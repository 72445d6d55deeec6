"""When does another device pay? Predicts a data-parallel step from times of one device, and the break-even's batch.

On k devices each has 1 / k of the batch. The time of a step on one device is nearly a line, ``a + c n`` for ``n``
samples: ``a`` is the update, Python and what else does not depend on the batch, and each device pays it. The all-reduce
comes on top. So a further device pays where the compute that it takes over, ``c`` times its samples, is more than the
all-reduce: few parameters, much compute a sample, a large batch.
"""

from __future__ import annotations

import math
from typing import List, Optional, Tuple

from mxdp.plans.cost.link import Link


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
    >>> step_seconds(shard=1.0, python=1.0, devices=4, cores=None, allreduce=0.5)
    4.5
    """
    return max(slope * shard + fixed for slope, fixed in _bounds(python, devices, cores)) + allreduce


def break_even(
    device: Link, python: float, devices: int, cores: Optional[int], allreduce: float
) -> float:  # fmt: skip
    """Samples a device from which on a step on ``devices`` devices is predicted to be faster than on one; ``math.inf``
    if it never is, and at least 0.

    ``device``: a step on one device, fitted as a link is: ``alpha`` seconds, and ``beta`` for each sample (both more
    than 0). The other arguments are those of :func:`step_seconds`.

    >>> round(break_even(Link(1e-3, 1e-4), 0.0, devices=2, cores=2, allreduce=2e-3), 1)
    20.0
    >>> break_even(Link(1e-3, 1e-4), 0.0, devices=2, cores=1, allreduce=2e-3)
    inf
    """
    least = 0.0
    for slope, fixed in _bounds(python, devices, cores):
        # alpha + beta devices n  >=  slope (alpha + beta n) + fixed + allreduce
        gain, loss = device.beta * (devices - slope), (slope - 1) * device.alpha + fixed + allreduce
        least = max(least, loss / gain if gain > 0 else 0.0 if loss <= 0 else math.inf)
    return least


def _bounds(python: float, devices: int, cores: Optional[int]) -> List[Tuple[float, float]]:
    """A step takes at least ``slope`` times the shard's seconds and ``fixed`` more: the slowest device, Python, and all
    work on the cores."""
    shared = [(devices / cores, devices * python / cores)] if cores else []
    return [(1.0, 0.0), (0.0, devices * python), *shared]
