"""How much memory a piece of work takes on each device, by MXNet's own count. Loads MXNet: import it inside ``run``.

MXNet's profiler writes down each array that is made or freed, on CPU devices too, and the operators' temporary spaces
with them. Its counters go on from one recording of a process to the next, but what is freed in between they miss. So an
array of known size is made first, to see where they stand.
"""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence, Tuple

from mxdp import process
from mxdp.backend import Device, mx, np, npx
from mxdp.errors import TraceError
from mxdp.tracing.recording import can_record

MARK = 64
_COUNTER = "Memory: "


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
    npx.waitall()
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
            marks = [np.zeros(MARK, dtype="int8", ctx=device) for device in devices]
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
