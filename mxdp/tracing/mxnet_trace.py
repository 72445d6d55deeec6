"""Reads the Chrome trace that ``mx.profiler`` of MXNet 1.9.1 writes. Its peculiarities:

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
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from mxdp.errors import TraceError
from mxdp.tracing.events import (
    ALL_REDUCE,
    COMPUTE,
    DEVICE_KINDS,
    ENGINE,
    OTHER_THREADS,
    PYTHON,
    PYTHON_KINDS,
    SECTION,
    call_kind,
    operator_kind,
)
from mxdp.tracing.timeline import Timeline, build

CALLS = "MXNET_C_API"
PINNED, SHARED = "cpu pinned/", "cpu shared/"
RECORDED = "mxdp"
"""The key under which a file saved by mxdp keeps the length of its timeline."""
_DEVICE = re.compile(r"(cpu|gpu)/(\d+)$")
_MARK = "instant_marker"


@dataclass(frozen=True)
class Pair:
    """A begin and its end, in microseconds of MXNet's clock. ``process`` is the number of the device."""

    process: int
    thread: int
    name: str
    begin: int
    end: int


@dataclass
class Trace:
    """The contents of a trace. ``marks``: name to time; ``thread``: the thread that set the first mark."""

    names: Mapping[int, str]
    operators: List[Pair] = field(default_factory=list)
    calls: List[Pair] = field(default_factory=list)
    tasks: List[Pair] = field(default_factory=list)
    marks: Dict[str, int] = field(default_factory=dict)
    thread: Optional[int] = None

    def events(self, kinds: Optional[Mapping[str, str]] = None) -> List[Tuple[str, str, str, int, int]]:
        """All events as :func:`mxdp.tracing.timeline.build` takes them, on MXNet's clock."""
        devices = _device_names(self.names, self.operators)
        placed = [(devices[_place(pair)], operator_kind(pair.name, kinds), pair) for pair in self.operators]
        if len({device for device, kind, _ in placed if kind != ENGINE}) == 1:
            # A single device has no all-reduce, so its sums are compute.
            placed = [
                (device, COMPUTE if kind == ALL_REDUCE and pair.name not in (kinds or {}) else kind, pair)
                for device, kind, pair in placed
            ]
        found = [(device, pair.name, kind, pair.begin, pair.end) for device, kind, pair in placed]
        own = self.thread if self.thread is not None else _busiest_thread(self.calls)
        for pair in self.calls:
            lane = PYTHON if pair.thread == own else OTHER_THREADS
            found.append((lane, pair.name, call_kind(pair.name), pair.begin, pair.end))
        for pair in self.tasks:
            found.append((PYTHON if pair.thread == own else OTHER_THREADS, pair.name, SECTION, pair.begin, pair.end))
        return found


def read_trace(path: Union[str, Path], kinds: Optional[Mapping[str, str]] = None) -> Timeline:
    """The timeline in a trace file of ``mx.profiler`` or of :meth:`mxdp.tracing.Recording.save`.

    A trace of MXNet does not say when the recording began and ended, so its timeline reaches from the first event to
    the last. ``kinds``: kinds of operators by name, to override :mod:`mxdp.tracing.events`.

    Raises:
        TraceError: there is no such file, it is empty, cut off or damaged, or it is another kind of file.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise TraceError(f"can't read the trace {path}: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise TraceError(f"{path} is not a trace: it is not text; give the JSON file that mx.profiler wrote") from error
    document = document_of(text, str(path))
    if RECORDED in document.get("otherData", {}):
        return _saved(document, str(path))
    found = parse(document, str(path)).events(kinds)
    if not any(kind in DEVICE_KINDS for _, _, kind, _, _ in found):
        raise TraceError(f"{path} holds no operator: nothing ran while the profiler was on; record some work")
    first, last = min(event[3] for event in found), max(event[4] for event in found)
    return build(last - first, [(*event[:3], event[3] - first, event[4] - first) for event in found])


def parse(document: Mapping[str, Any], source: str, names: Optional[Mapping[int, str]] = None) -> Trace:
    """Parse the JSON of MXNet's trace. ``names``: the names of its processes, if the file has none.

    Raises:
        TraceError: it is not such a trace; the message begins with ``source``.
    """
    records = document["traceEvents"]
    try:
        named = {r["pid"]: r["args"]["name"] for r in records if r["ph"] == "M" and r["name"] == "process_name"}
        trace = Trace({**(names or {}), **named})
        if not any(_DEVICE.match(name) for name in trace.names.values()):
            raise TraceError(_no_devices(records, source))
        _sort_out(records, trace)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(
            f"{source} is damaged: an event is not as MXNet writes it ({type(error).__name__}: {error});"
            " record the trace again"
        ) from error
    return trace


def document_of(text: str, source: str) -> Mapping[str, Any]:
    """The JSON in the text of a trace. Raises a TraceError as :func:`parse` does."""
    if not text.strip():
        raise TraceError(f"{source} is empty: the profiler has written nothing; stop it with mx.profiler.dump()")
    # Every trace of a process after the first begins with a comma.
    text = re.sub(r'\A(\s*\{\s*"traceEvents":\s*\[)\s*,', r"\1", text)
    try:
        document = json.loads(text)
    except ValueError as error:
        at = getattr(error, "pos", 0)
        if at >= len(text.rstrip()) or "Unterminated" in str(error):
            raise TraceError(
                f"{source} is cut off: the profiler still runs (stop it with mx.profiler.dump()), or the file was not"
                " copied whole"
            ) from error
        raise TraceError(
            f"{source} is damaged or no trace: it is not JSON ({error}); record the trace again"
        ) from error
    if not isinstance(document, dict) or not isinstance(document.get("traceEvents"), list):
        raise TraceError(f"{source} is JSON, but not a trace: it has no list of traceEvents; give mx.profiler's file")
    return document


def _sort_out(records: Sequence[Mapping[str, Any]], trace: Trace) -> None:
    """Fill ``trace``. In the file each end follows its begin, so the order of times does not matter."""
    open_: Dict[Tuple[int, int, str, str], int] = {}
    for record in records:
        phase = record["ph"]
        if phase == "n" and str(record["cat"]).endswith(_MARK):
            trace.marks[record["name"]] = int(record["ts"])
            trace.thread = record["tid"] if trace.thread is None else trace.thread
        if phase not in ("B", "E", "b", "e"):
            continue
        process, thread, name, category = record["pid"], record["tid"], record["name"], record["cat"]
        key = (process, thread, name, f"{'device' if phase in 'BE' else 'other'} {category}")
        if phase in "Bb":
            if key in open_:
                raise ValueError(f"two begins of {name} and no end")
            open_[key] = int(record["ts"])
            continue
        pair = Pair(process, thread, name, open_.pop(key), int(record["ts"]))
        if pair.end < pair.begin:
            raise ValueError(f"{name} ends before it begins")
        if phase == "E" and _is_device(trace.names.get(process, "")):
            trace.operators.append(pair)
        elif category == CALLS:
            trace.calls.append(pair)
        elif category not in ("operator", "Custom Operator"):
            trace.tasks.append(pair)
    if open_:
        raise ValueError(f"{len(open_)} events begin and do not end, the first of them {next(iter(open_))[2]}")


def _is_device(name: str) -> bool:
    return bool(_DEVICE.match(name)) or name in (PINNED, SHARED)


Place = Tuple[int, int]


def _place(pair: Pair) -> Place:
    return pair.process, pair.thread


def _device_names(names: Mapping[int, str], operators: Sequence[Pair]) -> Dict[Place, str]:
    """The device of each pair's process and thread, named as MXNet prints a context.

    A CPU build with n processors puts ``cpu(n)`` under "cpu pinned/" and ``cpu(n + 1)`` under "cpu shared/". The worker
    of ``cpu(0)`` also handles pinned memory, which MXNet's key-value store uses even there; its thread identifies it.
    """
    cpus = sum(1 for name in names.values() if name.startswith("cpu/"))
    has_gpus = any(name.startswith("gpu/") for name in names.values())
    of_first = {p.thread for p in operators if names.get(p.process) == "cpu/0" and operator_kind(p.name) != ENGINE}
    found = {}
    for process, thread in {_place(pair) for pair in operators}:
        match = _DEVICE.match(names[process])
        if match:
            found[process, thread] = f"{match.group(1)}({match.group(2)})"
        elif has_gpus or thread in of_first:
            found[process, thread] = "cpu(0)"
        else:
            found[process, thread] = f"cpu({cpus + (names[process] == SHARED)})"
    return found


def _busiest_thread(calls: Sequence[Pair]) -> Optional[int]:
    threads = [pair.thread for pair in calls]
    return max(set(threads), key=threads.count) if threads else None


def _no_devices(records: Sequence[Mapping[str, Any]], source: str) -> str:
    if any(record.get("cat") in ("operator", CALLS) for record in records):
        return (
            f"{source} does not name its devices: MXNet does so in a process's first trace only, so record with"
            " mxdp.tracing.record(), or in a process of its own"
        )
    return f"{source} is a trace, but none of MXNet's: it has no process cpu/0 or gpu/0; give the file of mx.profiler"


def _saved(document: Mapping[str, Any], source: str) -> Timeline:
    """The timeline in a file of :meth:`mxdp.tracing.Recording.save`."""
    try:
        lanes: Dict[int, str] = {}
        events = []
        for record in document["traceEvents"]:
            if record["ph"] == "M" and record["name"] == "process_name":
                lanes[record["pid"]] = record["args"]["name"]
            elif record["ph"] == "X":
                if record["cat"] not in (*DEVICE_KINDS, *PYTHON_KINDS):
                    raise ValueError(f"{record['name']} is of the kind {record['cat']!r}")
                end = record["ts"] + record["dur"]
                events.append((lanes[record["pid"]], record["name"], record["cat"], record["ts"], end))
        return build(document["otherData"][RECORDED]["microseconds"], events)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(
            f"{source} is damaged: an event is not as mxdp writes it ({type(error).__name__}: {error});"
            " record the trace again"
        ) from error
