"""Parses the Chrome trace that ``mx.profiler`` of MXNet 1.9.1 writes. Its peculiarities:

- A "process" of the trace is a device: ``cpu/0, cpu/1 ... gpu/0 ..., cpu pinned/, cpu shared/``. There are as many
  ``cpu/`` as processors. In a CPU build the next two CPU contexts appear under the last two names.
- An operator is a begin and an end (``B``, ``E``). A second pair (``b``, ``e``) of the category "operator" repeats it
  without the device. Calls of the C interface are such pairs with a category of their own.
- Names are written without escapes, and times are microseconds of the system's clock.
- Only the first trace of a process names its devices. Every later trace begins with ``[,``, which is not JSON.

Source: ``src/profiler/profiler.cc`` and ``profiler.h``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from mxdp.errors import TraceError
from mxdp.tracing.events import (
    ALL_REDUCE,
    COMPUTE,
    ENGINE,
    OTHER_THREADS,
    PYTHON,
    SECTION,
    Kinds,
    Row,
    call_kind,
    operator_kind,
)

CALLS = "MXNET_C_API"
PINNED = "cpu pinned/"
SHARED = "cpu shared/"
_DEVICE = re.compile(r"(cpu|gpu)/(\d+)$")
_MARK = "instant_marker"


@dataclass(frozen=True)
class TracePair:
    """A begin and its end, in microseconds of MXNet's clock. ``process`` is the number of the device."""

    process: int
    thread: int
    name: str
    begin: int
    end: int


@dataclass
class Trace:
    """The contents of a trace. ``marks`` has times by name; ``thread`` is the thread that set the first mark."""

    names: Mapping[int, str]
    operators: List[TracePair] = field(default_factory=list)
    calls: List[TracePair] = field(default_factory=list)
    tasks: List[TracePair] = field(default_factory=list)
    marks: Dict[str, int] = field(default_factory=dict)
    thread: Optional[int] = None

    def events(self, kinds: Kinds = None) -> List[Row]:
        """All events as :func:`mxdp.tracing.timeline.build` takes them, on MXNet's clock."""
        given = kinds or {}
        devices = _device_names(self.names, self.operators)
        placed = []
        for pair in self.operators:
            device = devices[pair.process, pair.thread]
            placed.append((device, operator_kind(pair.name, given), pair))
        single = len({device for device, kind, _ in placed if kind != ENGINE}) == 1
        rows = []
        for device, kind, pair in placed:
            # A single device has no all-reduce, so its sums are compute.
            if single and kind == ALL_REDUCE and pair.name not in given:
                kind = COMPUTE
            rows.append((device, pair.name, kind, pair.begin, pair.end))
        for pair in self.calls:
            rows.append(self._of_python(pair, call_kind(pair.name)))
        for pair in self.tasks:
            rows.append(self._of_python(pair, SECTION))
        return rows

    def _of_python(self, pair: TracePair, kind: str) -> Row:
        lane = PYTHON if pair.thread == self.thread else OTHER_THREADS
        return lane, pair.name, kind, pair.begin, pair.end


def records(text: str) -> List[Dict[str, Any]]:
    """The records of a trace, in its order. Every trace of a process after the first begins with a comma."""
    text = re.sub(r'\A(\s*\{\s*"traceEvents":\s*\[)\s*,', r"\1", text)
    return list(json.loads(text)["traceEvents"])


def parse(text: str, names: Mapping[int, str]) -> Trace:
    """Parse a trace; ``names`` are its processes', if the text has none. Raises a TraceError if it is damaged."""
    try:
        lines = records(text)
        named = dict(names)
        for line in lines:
            if line["ph"] == "M" and line["name"] == "process_name":
                named[line["pid"]] = line["args"]["name"]
        trace = Trace(named)
        _sort_out(lines, trace)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(
            f"MXNet's trace is damaged or cut off ({type(error).__name__}: {error}): record it again"
        ) from error
    return trace


def _sort_out(records: Sequence[Mapping[str, Any]], trace: Trace) -> None:
    """Fill ``trace``. In the file each end follows its begin, so the order of times does not matter."""
    open_: Dict[Tuple[int, int, str, str], int] = {}
    for record in records:
        phase = record["ph"]
        if phase == "n" and str(record["cat"]).endswith(_MARK):
            trace.marks[record["name"]] = int(record["ts"])
            if trace.thread is None:
                trace.thread = record["tid"]
        if phase not in ("B", "E", "b", "e"):
            continue
        process = record["pid"]
        thread = record["tid"]
        name = record["name"]
        category = record["cat"]
        source = "device" if phase in "BE" else "other"
        key = (process, thread, name, f"{source} {category}")
        if phase in "Bb":
            if key in open_:
                raise ValueError(f"two begins of {name} and no end")
            open_[key] = int(record["ts"])
            continue
        pair = TracePair(process, thread, name, open_.pop(key), int(record["ts"]))
        if pair.end < pair.begin:
            raise ValueError(f"{name} ends before it begins")
        device = trace.names.get(process, "")
        if phase == "E" and (_DEVICE.match(device) or device in (PINNED, SHARED)):
            trace.operators.append(pair)
        elif category == CALLS:
            trace.calls.append(pair)
        elif category not in ("operator", "Custom Operator"):
            trace.tasks.append(pair)
    if open_:
        raise ValueError(
            f"{len(open_)} events begin and do not end, the first of them {next(iter(open_))[2]}"
        )


def _device_names(
    names: Mapping[int, str], operators: Sequence[TracePair]
) -> Dict[Tuple[int, int], str]:
    """The device of each pair's process and thread, named as MXNet prints a context. In a CPU build with n processors
    "cpu pinned/" is ``cpu(n)``, and "cpu shared/" ``cpu(n + 1)``. But the thread of ``cpu(0)`` also works in pinned
    memory, which MXNet's key-value store uses even there."""
    cpus = sum(1 for name in names.values() if name.startswith("cpu/"))
    has_gpus = any(name.startswith("gpu/") for name in names.values())
    on_first = [pair for pair in operators if names.get(pair.process) == "cpu/0"]
    of_first = {pair.thread for pair in on_first if operator_kind(pair.name) != ENGINE}
    places = {(pair.process, pair.thread) for pair in operators}
    devices = {}
    for process, thread in places:
        match = _DEVICE.match(names[process])
        if match:
            devices[process, thread] = f"{match.group(1)}({match.group(2)})"
        elif has_gpus or thread in of_first:
            devices[process, thread] = "cpu(0)"
        else:
            number = cpus + 1 if names[process] == SHARED else cpus
            devices[process, thread] = f"cpu({number})"
    return devices
