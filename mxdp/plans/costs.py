"""What it should cost: predictions made before anything is measured.

A message of ``m`` bytes over one link takes ``alpha + m * beta`` seconds (alpha: the start-up time; beta: seconds a
byte, one over the bandwidth). Source: Hockney, "The communication challenge for MPP", Parallel Computing 20 (1994);
applied to collectives by Thakur, Rabenseifner and Gropp, Int. J. High Perform. Comput. Appl. 19 (2005).
"""

from __future__ import annotations

from dataclasses import dataclass

from mxdp.plans.schedules import Schedule


@dataclass(frozen=True)
class Link:
    """``alpha``: seconds to start a message; ``beta``: seconds a byte."""

    alpha: float
    beta: float

    def seconds(self, nbytes: float) -> float:
        """One message of ``nbytes`` bytes.

        >>> Link(alpha=1e-5, beta=1e-9).seconds(1_000_000)
        0.00101
        """
        return self.alpha + nbytes * self.beta


def allreduce_seconds(schedule: Schedule, nbytes: int, link: Link) -> float:
    """Predicted time of an all-reduce over vectors of ``nbytes`` bytes: steps follow one another, sends of a step
    overlap.

    >>> from mxdp.plans.schedules import naive, ring
    >>> link = Link(alpha=0.0, beta=1e-9)
    >>> [round(allreduce_seconds(plan(4), 4_000_000, link) * 1e3, 3) for plan in (naive, ring)]
    [24.0, 6.0]
    """
    return len(schedule.steps) * link.seconds(nbytes / schedule.chunks)


def speedup(devices: int, cores: int, exposed: float = 0.0) -> float:
    """Predicted time of one device over time of ``devices`` devices, one core each, for the same whole batch.

    ``exposed`` is the part of the one-device time that splitting can't shorten (Amdahl: input, Python, communication
    that nothing hides). Devices beyond the cores bring nothing.

    >>> speedup(2, cores=2)
    2.0
    >>> round(speedup(2, cores=2, exposed=0.05), 2)
    1.9
    >>> speedup(2, cores=1)
    1.0
    """
    workers = min(devices, cores)
    return 1.0 / ((1.0 - exposed) / workers + exposed)


def jobs_ratio(jobs: int, cores: int) -> float:
    """Predicted time of ``jobs`` equal independent jobs, a device each, over the time of one alone.

    >>> [jobs_ratio(2, cores) for cores in (1, 2, 8)]
    [2.0, 1.0, 1.0]
    """
    return max(1.0, jobs / cores)
