"""Honest times. MXNet returns before it has computed, so the clock is read only after ``npx.waitall``."""

from __future__ import annotations

import time
from typing import List, Optional

from mxdp.backend import npx
from mxdp.errors import plural


class Timer:
    """A stopwatch that waits for all devices before it starts and before it stops; ``times`` has all its seconds. It is
    a context manager, too. Source: the book's ``d2l.Timer``, which has no fence."""

    def __init__(self) -> None:
        self.times: List[float] = []
        self._started: Optional[float] = None

    def __repr__(self) -> str:
        mean = f", {self.avg():.4g} s on average" if self.times else ""
        return f"<{type(self).__name__}: {plural(len(self.times), 'time')}{mean}>"

    def start(self) -> None:
        """Wait for everything that was pushed, then start."""
        npx.waitall()
        self._started = time.perf_counter()

    def stop(self) -> float:
        """Wait for all that was pushed, then stop. Returns the seconds; raises a RuntimeError if it was not started."""
        if self._started is None:
            raise RuntimeError("Timer.stop() without Timer.start()")
        npx.waitall()
        self.times.append(time.perf_counter() - self._started)
        self._started = None
        return self.times[-1]

    def sum(self) -> float:
        """The sum of all times, in seconds."""
        return sum(self.times)

    def avg(self) -> float:
        """The mean time, in seconds; 0.0 if there is none."""
        return self.sum() / len(self.times) if self.times else 0.0

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self.stop()
        else:
            self._started = None


class Benchmark(Timer):
    """``with Benchmark("on both"):`` prints ``on both: 0.1234 sec`` afterwards. One sample is no measurement. Source:
    the book's ``d2l.Benchmark``, which has no fence."""

    def __init__(self, description: str = "Done") -> None:
        super().__init__()
        self.description = description

    def stop(self) -> float:
        """Stop as :meth:`Timer.stop` does, and print the line."""
        seconds = super().stop()
        print(f"{self.description}: {seconds:.4f} sec")
        return seconds
