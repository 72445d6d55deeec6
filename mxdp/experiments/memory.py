"""How much memory does a piece of work take? On each device by MXNet's own count, or in all by the system's.

:func:`peak_bytes` has MXNet's profiler write down each array that is made or freed, on CPU devices too, with the
operators' temporary space. The profiler's counters go on from one recording of a process to the next, but miss what is
freed in between. So an array of known size is made first, which shows where they stand.

:class:`Peak` reads the resident memory of this process, beyond what it had at the start. Three things would spoil that
number. Memory that was freed before may still belong to the process (mxdp's own settings of malloc see to that) and
would be used again unseen: so it is returned first. MXNet drops an operator's arrays a moment after ``waitall``: so
there is a short wait. And memory that nobody has written is not resident yet: it does not count, nor should it.
"""

from __future__ import annotations

import ctypes
import gc
import json
import re
import tempfile
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Type

import psutil

from mxdp import process
from mxdp.backend import Device, mx, np, npx
from mxdp.errors import TraceError
from mxdp.tracing.recording import can_record

MARK = 64
_COUNTER = "Memory: "
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


def peak_bytes(work: Callable[[], object], devices: Sequence[Device]) -> List[int]:
    """Most bytes in use at a time on each of ``devices``, for what ``work`` makes. Waits at both ends.

    ``work`` runs once. MXNet's one profiler is taken over for it, and is stopped afterwards. If ``work`` frees what it
    has not made, that is missing from the count.

    Raises:
        TraceError: the profiler does not know one of them (:func:`mxdp.tracing.recording.can_record`).
    """
    if not can_record(devices):
        raise TraceError(
            f"MXNet's profiler can't count the memory of {', '.join(map(str, devices))} on a machine with "
            f"{process.cores()} processors; use fewer devices"
        )
    give_back()  # what is freed while the first array is made would shift the count
    with tempfile.TemporaryDirectory(prefix="mxdp-memory-") as folder:
        path = Path(folder, "memory.json")
        mx.profiler.set_config(
            filename=str(path),
            profile_memory=True,
            profile_imperative=False,
            profile_symbolic=False,
            profile_api=False,
            aggregate_stats=False,
            continuous_dump=False,
        )
        mx.profiler.set_state("run")
        try:
            marks = []
            for device in devices:  # in turn: the first makes MXNet's counters, and another would meet half of them
                marks.append(np.zeros(MARK, dtype="int8", ctx=device))
                npx.waitall()
            kept = work()
            npx.waitall()
        finally:
            mx.profiler.set_state("stop")
            mx.profiler.dump()
        del kept, marks
        peaks = read_peaks(path.read_text(encoding="utf-8"))
    return [peaks.get(_name(device), 0) for device in devices]


def read_peaks(text: str) -> Dict[str, int]:
    """How far each of the trace's counters of memory rose, by MXNet's name of the device. The first array that was made
    on a device was of ``MARK`` bytes and doesn't count."""
    # Every trace of a process but its first begins with a comma.
    document = json.loads(re.sub(r'\A(\s*\{\s*"traceEvents":\s*\[)\s*,', r"\1", text))
    counts: Dict[str, List[Tuple[int, int]]] = {}
    for record in document["traceEvents"]:
        name: Any = record.get("name", "")
        if record.get("ph") == "C" and name.startswith(_COUNTER):
            (value,) = record["args"].values()
            counts.setdefault(name[len(_COUNTER) :], []).append((record["ts"], value))
    return {device: max(value for _, value in seen) - min(seen)[1] for device, seen in counts.items()}


def _name(device: Device) -> str:
    """The profiler's name: a CPU build calls the two CPU devices behind the last processor after other memories."""
    number = device.device_id
    if device.device_type == "cpu" and number >= process.cores():
        return ("cpu pinned/", "cpu shared/")[number - process.cores()]
    return f"{device.device_type}/{number}"
