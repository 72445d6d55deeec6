"""The events of a timeline and their kinds.

MXNet's profiler gives the name of an operator but not its purpose, so the name decides the kind. A network of ``mx.np``
operators adds with ``_npi_add``, all-reduces with ``broadcast_add`` and ``add_n`` (mxdp's), ``elemwise_add`` and
``ElementwiseSum`` (MXNet's). If a network of classic operators uses these too, pass ``kinds={...}`` when you record or
read. The copies of an all-reduce count as copies, since their name is that of all copies.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator, List, Mapping, Optional, Tuple

from mxdp.sections import JOB, RANK_SUM

COMPUTE = "compute"
COPY = "copy"
ALL_REDUCE = "all-reduce"
UPLOAD = "upload"
"""A copy from the host's memory to a GPU."""
ENGINE = "engine"
"""Housekeeping in a device's lane by MXNet (such as freeing memory) or mxdp: neither work nor idle time."""
SECTION = "section"
"""Python, inside :func:`mxdp.tracing.section`."""
WAIT = "wait"
"""Python, in a call that waits for a device."""
CALL = "call"
"""Python, in any other call of MXNet, which may push work."""

DEVICE_KINDS = (COMPUTE, COPY, ALL_REDUCE, UPLOAD, ENGINE)
PYTHON_KINDS = (SECTION, WAIT, CALL)
COMMUNICATION = (COPY, ALL_REDUCE)
WORK = (COMPUTE, COPY, ALL_REDUCE, UPLOAD)

PYTHON = "python"
"""The lane of the thread that recorded."""
OTHER_THREADS = "python, other threads"

Row = Tuple[str, str, str, int, int]
"""An event as a device (or a lane of Python's), name, kind, start and end, in microseconds."""

Kinds = Optional[Mapping[str, str]]
"""Kinds of operators by name, which take precedence."""

INPUT = "input"
"""The section of the input path: :mod:`mxdp.tracing.breakdown` counts its time as input."""
STEP = "step"

_SUMS = frozenset({"broadcast_add", "elemwise_add", "add_n", "ElementwiseSum", RANK_SUM})
_COPIES = ("Copy", "_copyto", "_CrossDeviceCopy")
_ENGINE = frozenset({"DeleteVariable", "DeleteOperator", "WaitForVar", "SetupExec", JOB})
_WAITS = (
    "MXNDArrayWait",
    "MXNDArraySync",
    "MXNDArraySave",
    "MXNDArrayGetSharedMem",
    "MXKVStoreBarrier",
)


@dataclass(frozen=True)
class Event:
    """``device`` was busy with ``name`` from ``start`` to ``end``: seconds since the recording began, in whole
    microseconds. ``device`` is a name such as ``cpu(0)``, or :data:`PYTHON`; ``kind`` is a constant of this module."""

    device: str
    name: str
    kind: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.end - self.start


def tracks(events: Iterable[Event]) -> Iterator[Tuple[int, Event]]:
    """Each event with the first track that is free when it starts, so that there are as many tracks as events at the
    same time. ``events`` are in order of their starts.

    >>> events = [Event("cpu(0)", "dot", COMPUTE, *span) for span in ((0, 2), (1, 3), (2, 4), (2, 3))]
    >>> [track for track, _ in tracks(events)]
    [0, 1, 0, 2]
    """
    ends: List[float] = []
    for event in events:
        track = next((number for number, end in enumerate(ends) if end <= event.start), len(ends))
        ends[track : track + 1] = [event.end]
        yield track, event


def operator_kind(name: str, kinds: Kinds = None) -> str:
    """The kind of an operator by its name. ``kinds`` (name to kind) takes precedence."""
    if kinds and name in kinds:
        return kinds[name]
    if name in _ENGINE or name.startswith("Resource"):
        return ENGINE
    if name.startswith(_COPIES):
        return UPLOAD if "CPU2GPU" in name else COPY
    if name in _SUMS or name.startswith("KVStore"):
        return ALL_REDUCE
    return COMPUTE


def call_kind(name: str) -> str:
    """:data:`WAIT` for a call of MXNet's C interface that waits for a device, else :data:`CALL`."""
    return WAIT if name.startswith(_WAITS) else CALL


def to_seconds(microseconds: int) -> float:
    """Microseconds as seconds. All events at the same time get the same float."""
    return microseconds / 1e6


def to_microseconds(seconds: float) -> int:
    """Seconds as whole microseconds."""
    return round(seconds * 1e6)
