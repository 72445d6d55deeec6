"""Honest times: MXNet returns before it has computed, so a clock is read only after ``npx.waitall``."""

from __future__ import annotations

import time
from types import TracebackType
from typing import List, Optional, Type

from mxdp.backend import npx


class Timer:
    """A stopwatch that waits for all devices before it starts and before it stops; it keeps every time in ``times``.

    Usable as a context manager, again and again. Source: the book's ``d2l.Timer``, which has no fence.
    """

    def __init__(self) -> None:
        self.times: List[float] = []
        self._started: Optional[float] = None

    def start(self) -> None:
        """Wait for everything that was pushed, then start."""
        npx.waitall()
        self._started = time.perf_counter()

    def stop(self) -> float:
        """Wait for everything that was pushed, then stop: seconds since ``start``.

        Raises:
            RuntimeError: the timer was not started.
        """
        if self._started is None:
            raise RuntimeError("Timer.stop() without Timer.start()")
        npx.waitall()
        self.times.append(time.perf_counter() - self._started)
        self._started = None
        return self.times[-1]

    def sum(self) -> float:
        """All times together, in seconds."""
        return sum(self.times)

    def avg(self) -> float:
        """Their mean, in seconds; 0.0 if there are none."""
        return self.sum() / len(self.times) if self.times else 0.0

    def __enter__(self) -> Timer:
        self.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is None:
            self.stop()
        else:
            self._started = None


class Benchmark(Timer):
    """``with Benchmark("on both"):`` prints ``on both: 0.1234 sec`` afterwards. Source: the book's ``d2l.Benchmark``.

    Fenced on both sides, unlike the book's; still one sample, and so a look, not a measurement.
    """

    def __init__(self, description: str = "Done") -> None:
        super().__init__()
        self.description = description

    def stop(self) -> float:
        """As :meth:`Timer.stop`, and print the line."""
        seconds = super().stop()
        print(f"{self.description}: {seconds:.4f} sec")
        return seconds
