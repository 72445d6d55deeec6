"""How much memory did a block take at its worst? Resident memory of this process, beyond what it had at the start.

Three things would spoil the number. What was freed before may still be with the process (mxdp's own settings of malloc
see to that) and would be used again unseen: so it is given back first. MXNet drops an operator's arrays a moment after
``waitall``: so a moment is waited. And memory that nobody has written is not there yet: it does not count, nor should
it. Loads MXNet: import it inside ``oracle`` and ``run``.
"""

from __future__ import annotations

import ctypes
import gc
import re
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Callable, Optional, Type

import psutil

from mxdp.backend import Device, npx
from mxdp.experiments.measure.device_memory import peak_bytes

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""What ``clear_refs`` takes to forget the peak so far (proc(5), Linux 4.0)."""
MOMENT, SAMPLE_SECONDS = 0.02, 0.002


class Peak:
    """``with Peak() as peak:`` measures the block; then ``peak.bytes``. Waits for all devices at both ends.

    The system's own record where it has one that can be reset (Linux), else a thread that looks every 2 ms.
    """

    def __init__(self, status: Path = STATUS, clear: Path = CLEAR) -> None:
        self.bytes = 0
        self._status, self._clear = status, clear
        self._start = 0
        self._sampler: Optional[_Sampler] = None

    def __enter__(self) -> Peak:
        give_back()
        try:
            self._clear.write_text(RESET_PEAK)
            self._start = self._read("VmRSS")
        except OSError:
            self._sampler = _Sampler()
            self._start = self._sampler.peak
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if error is None:
            npx.waitall()
        peak = self._sampler.stop() if self._sampler else self._read("VmHWM")
        self.bytes = max(0, peak - self._start)

    def _read(self, name: str) -> int:
        found = re.search(rf"^{name}:\s+(\d+) kB", self._status.read_text(), re.M)
        assert found is not None
        return int(found.group(1)) * 1024


def taken(action: Callable[[], object], device: Device) -> int:
    """The most bytes that ``action`` takes: of a GPU by MXNet's own count, else of this process. Waits at both ends."""
    if device.device_type == "gpu":
        return peak_bytes(action, [device])[0]
    with Peak() as peak:
        action()
    return peak.bytes


class _Sampler:
    """Looks at this process's resident memory again and again, in a thread of its own."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self.peak = self._now()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """The most that it has seen."""
        self._over.set()
        self._thread.join()
        self.peak = max(self.peak, self._now())
        return self.peak

    def _look(self) -> None:
        while not self._over.wait(SAMPLE_SECONDS):
            self.peak = max(self.peak, self._now())

    def _now(self) -> int:
        return int(self._process.memory_info().rss)


def give_back() -> None:
    """Free what nobody uses any more and return it to the system, as far as its C library can (glibc)."""
    gc.collect()
    npx.waitall()
    time.sleep(MOMENT)
    npx.waitall()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
