"""How much memory does a piece of work take? On each device by MXNet's own count, or in all by the system's.

:func:`peak_bytes` has MXNet's profiler write down each array that is made or freed, on CPU devices too, with the
operators' temporary space. The profiler's counters go on from one recording of a process to the next, but miss what is
freed in between. So an array of known size is made first, which shows where they stand.

:func:`grown` reads how much this process's resident memory grows. Memory that nobody has written is not resident.
"""

from __future__ import annotations

import ctypes
import gc
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

import psutil

from mxdp.backend import Device, mx, np, npx
from mxdp.errors import TraceError
from mxdp.tracing.mxnet_trace import records
from mxdp.tracing.recording import can_record, process_names, processors

MARK = 64
"""Bytes of the first array on each device."""
_COUNTER = "Memory: "
STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def grown(action: Callable[[], object]) -> int:
    """The most bytes by which this process grows while ``action`` runs. Waits for all devices at both ends. By the
    system's own record if that can be reset (Linux), else by a thread that looks every 2 ms."""
    give_back()
    try:
        CLEAR.write_text("5")  # forget the peak so far (proc(5), Linux 4.0)
    except OSError:
        return _sampled(action)
    start = _status("VmRSS")
    kept = action()
    npx.waitall()
    del kept
    return max(0, _status("VmHWM") - start)


def _sampled(action: Callable[[], object]) -> int:
    here = psutil.Process()
    over = threading.Event()
    sizes = [here.memory_info().rss]

    def look() -> None:
        while not over.wait(0.002):
            sizes.append(here.memory_info().rss)

    sampler = threading.Thread(target=look, daemon=True)
    sampler.start()
    try:
        kept = action()
        npx.waitall()
        sizes.append(here.memory_info().rss)
        del kept
    finally:
        over.set()
        sampler.join()
    return int(max(sizes) - sizes[0])


def _status(name: str) -> int:
    return int(STATUS.read_text().partition(f"\n{name}:")[2].split()[0]) * 1024


def taken(action: Callable[[], object], device: Device) -> int:
    """The most bytes that ``action`` takes: of a GPU by MXNet's own count, else of this process. Waits at both ends."""
    if device.device_type == "gpu":
        return peak_bytes(action, [device])[0]
    return grown(action)


def give_back() -> None:
    """Free what nobody uses any more and return it to the system, as far as its C library can (glibc). Freed memory may
    still belong to the process, by mxdp's settings of malloc, and would be used again unseen."""
    gc.collect()
    npx.waitall()
    time.sleep(0.02)  # MXNet drops an operator's arrays a moment after waitall
    npx.waitall()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def peak_bytes(work: Callable[[], object], devices: Sequence[Device]) -> List[int]:
    """Most bytes in use at a time on each of ``devices``, for what ``work`` makes, run once. Waits at both ends. Takes
    over MXNet's one profiler, and stops it. What ``work`` frees and has not made is missing. Raises a TraceError if the
    profiler does not know a device (:func:`mxdp.tracing.recording.can_record`)."""
    if not can_record(devices):
        raise TraceError(
            f"MXNet's profiler can't count the memory of {', '.join(map(str, devices))} on a machine with "
            f"{processors()}; use fewer devices"
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
            # One after the other: the first makes MXNet's counters, and another would meet half of them.
            for device in devices:
                marks.append(np.zeros(MARK, dtype="int8", ctx=device))
                npx.waitall()
            kept = work()
            npx.waitall()
        finally:
            mx.profiler.set_state("stop")
            mx.profiler.dump()
        del kept, marks
        peaks = read_peaks(path.read_text(encoding="utf-8"))
    cpus = process_names()
    most = []
    for device in devices:
        name = f"gpu/{device.device_id}"
        if device.device_type != "gpu":
            name = cpus[device.device_id]
        most.append(peaks.get(name, 0))
    return most


def read_peaks(text: str) -> Dict[str, int]:
    """How far each of the trace's counters of memory rose after its first array, by MXNet's name of the device."""
    counts: Dict[str, List[Tuple[int, int]]] = {}
    for record in records(text):
        name: Any = record.get("name", "")
        if record.get("ph") == "C" and name.startswith(_COUNTER):
            (value,) = record["args"].values()
            counts.setdefault(name[len(_COUNTER) :], []).append((record["ts"], value))
    rose = {}
    for device, points in counts.items():
        _, first = min(points)
        rose[device] = max(value for _, value in points) - first
    return rose
