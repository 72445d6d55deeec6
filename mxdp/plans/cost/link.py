"""The textbook's cost model: a message of ``m`` bytes over one link takes ``alpha + m * beta`` seconds.

``alpha`` is the start-up time, ``beta`` the seconds a byte: one over the bandwidth. Source: Hockney, "The communication
challenge for MPP", Parallel Computing 20 (1994); applied to collectives by Thakur, Rabenseifner and Gropp, Int. J. High
Perform. Comput. Appl. 19 (2005). :mod:`mxdp.plans.cost.simulate` is a finer model, of one machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Sequence, Tuple

from mxdp.plans.collective.schedule import READ, Schedule


@dataclass(frozen=True)
class Link:
    """``alpha``: seconds to start a message; ``beta``: seconds a byte."""

    alpha: float
    beta: float

    def seconds(self, nbytes: float) -> float:
        """One message of ``nbytes`` bytes."""
        return self.alpha + nbytes * self.beta


def fit_link(samples: Sequence[Tuple[float, float]]) -> Link:
    """Fit a link to ``samples``, each (bytes, seconds), by least squares of the *relative* errors: a sample weighs one
    over seconds², so 4 bytes count as much as 64 MiB. A negative ``alpha`` or ``beta`` becomes zero, and the other is
    fitted again. Raises a ValueError for fewer than two different sizes, or a time that is not positive."""
    if len({nbytes for nbytes, _ in samples}) < 2 or not all(seconds > 0 for _, seconds in samples):
        raise ValueError(
            "a link is fitted to times of more than zero, of messages of at least two different sizes"
        )
    # Choose alpha and beta so that alpha * x + beta * y is close to 1 for all samples.
    x = [1 / seconds for _, seconds in samples]
    y = [nbytes / seconds for nbytes, seconds in samples]
    xx = sum(a * a for a in x)
    xy = sum(a * b for a, b in zip(x, y))
    yy = sum(b * b for b in y)
    determinant = xx * yy - xy * xy
    alpha = (sum(x) * yy - sum(y) * xy) / determinant
    beta = (sum(y) * xx - sum(x) * xy) / determinant
    if alpha < 0:
        return Link(0.0, sum(y) / yy)
    return Link(alpha, beta) if beta > 0 else Link(sum(x) / xx, 0.0)


def allreduce_seconds(schedule: Schedule, nbytes: int, link: Link) -> float:
    """Predicted time of a collective over vectors of ``nbytes`` bytes. In a step a device sends its messages one after
    another, while it receives others likewise. Sums cost nothing, nor do chunks that are read in place."""
    sizes = schedule.sizes or (1,) * schedule.chunks
    unit = nbytes / sum(sizes)
    total = 0.0
    for step in schedule.steps:
        sending = [0.0] * schedule.devices
        receiving = [0.0] * schedule.devices
        for send in step:
            if send.action != READ:
                seconds = link.seconds(sizes[send.chunk] * unit)
                sending[send.source] += seconds
                receiving[send.target] += seconds
        total += max(*sending, *receiving)
    return total


def bus_bandwidth(nbytes: float, seconds: float, devices: int) -> float:
    """``busbw``: the bandwidth of each device's link, if it carried the least, 2 (n - 1) / n of the vector. So it can
    be compared with the link's for any n. Source: NVIDIA's nccl-tests, "Performance reported by NCCL tests"."""
    return nbytes / seconds * 2 * (devices - 1) / devices


def speedup(devices: int, cores: int) -> float:
    """Predicted time of one device over that of ``devices`` devices, one core each, for the same whole batch."""
    return float(min(devices, cores))


def jobs_ratio(jobs: int, cores: int) -> float:
    """Predicted time of ``jobs`` equal independent jobs, one on each device, over the time of one job alone."""
    return max(1.0, jobs / cores)
