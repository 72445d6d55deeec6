"""Times of work that is pushed, once or repeatedly."""

from __future__ import annotations

import time
from typing import Callable, NamedTuple

from mxdp.backend import npx
from mxdp.timing import Timer

FEWEST = 2


class Mean(NamedTuple):
    """Seconds until the calls had returned (the front end's part), and until their work was done."""

    pushed: float
    done: float


def seconds_of(push: Callable[[], None]) -> float:
    """Time of what ``push`` pushes. Waits at both ends."""
    timer = Timer()
    with timer:
        push()
    return timer.times[-1]


def mean_seconds(push: Callable[[], None], at_least: float) -> Mean:
    """Means of ``push``, called repeatedly for about ``at_least`` seconds. Waits at both ends, not between calls."""
    push()
    times = max(FEWEST, round(at_least / max(seconds_of(push), 1e-6)))
    started = time.perf_counter()
    for _ in range(times):
        push()
    pushed = time.perf_counter() - started
    npx.waitall()
    return Mean(pushed / times, (time.perf_counter() - started) / times)
