"""What a timeline is made of: who did what, from when to when.

MXNet's profiler gives an operator's name and nothing of what it was for, so the kind is told by the name. A network of
``mx.np`` operators adds with ``_npi_add``; ``elemwise_add``, ``add_n`` and ``ElementwiseSum`` are what all-reduces are
made of, MXNet's own and ours. A network of classic operators may use them too: then say so with ``kinds={...}`` where a
recording is made or read. The copies of an all-reduce have the same name as all others and are copies here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Iterable, Iterator, List, Mapping, Optional, Tuple

COMPUTE = "compute"
COPY = "copy"
ALL_REDUCE = "all-reduce"
UPLOAD = "upload"
"""A copy from the host's memory to a GPU."""
ENGINE = "engine"
"""Housekeeping in a device's lane, MXNet's own (such as freeing memory) or mxdp's: no work, and not idle either."""
SECTION = "section"
"""Python, inside :func:`mxdp.tracing.section`."""
WAIT = "wait"
"""Python, in a call that waits for a device."""
CALL = "call"
"""Python, in any other call of MXNet: it may push work."""

DEVICE_KINDS = (COMPUTE, COPY, ALL_REDUCE, UPLOAD, ENGINE)
PYTHON_KINDS = (SECTION, WAIT, CALL)
COMMUNICATION = (COPY, ALL_REDUCE)
WORK = (COMPUTE, COPY, ALL_REDUCE, UPLOAD)

PYTHON = "python"
"""The lane of the thread that recorded."""
OTHER_THREADS = "python, other threads"

INPUT = "input"
"""A section of this name is the input path: :mod:`mxdp.tracing.breakdown` counts its time as input."""
STEP = "step"
"""A section of this name is one step."""

JOB = "mxdp job"
"""Python that mxdp has the engine call between operators, such as to note the time. It is in ``cpu(0)``'s lane, on a
thread of its own."""

_SUMS = frozenset({"elemwise_add", "add_n", "ElementwiseSum"})
_COPIES = ("Copy", "_copyto", "_CrossDeviceCopy")
_ENGINE = frozenset({"DeleteVariable", "DeleteOperator", "WaitForVar", "SetupExec", JOB})

_WAITS = ("MXNDArrayWait", "MXNDArraySync", "MXNDArraySave", "MXNDArrayGetSharedMem", "MXKVStoreBarrier")


@dataclass(frozen=True)
class Event:
    """``device`` was busy with ``name`` from ``start`` to ``end``, in seconds since the recording began.

    ``device`` is a device's name as MXNet prints it, such as ``cpu(0)``, or :data:`PYTHON`; ``kind`` is one of the
    constants of this module. Times are whole microseconds, as MXNet's are.
    """

    device: str
    name: str
    kind: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return self.end - self.start


def tracks(events: Iterable[Event]) -> Iterator[Tuple[int, Event]]:
    """Each of ``events``, which come by start, with the first track in which nothing runs when it starts: so no two on
    one track overlap, and there are as many tracks as events at the same time.

    >>> first, second, third = (Event("cpu(0)", "dot", COMPUTE, *span) for span in ((0, 2), (1, 3), (2, 4)))
    >>> [track for track, _ in tracks([first, second, third])]
    [0, 1, 0]
    """
    ends: List[float] = []
    for event in events:
        track = next((number for number, end in enumerate(ends) if end <= event.start), len(ends))
        ends[track : track + 1] = [event.end]
        yield track, event


def operator_kind(name: str, kinds: Optional[Mapping[str, str]] = None) -> str:
    """What an operator of this name is for; ``kinds`` (name to kind) goes first."""
    if kinds and name in kinds:
        return kinds[name]
    if name in _ENGINE or name.startswith("Resource"):
        return ENGINE
    if name.startswith(_COPIES):
        return UPLOAD if "CPU2GPU" in name else COPY
    return ALL_REDUCE if name in _SUMS or name.startswith("KVStore") else COMPUTE


def call_kind(name: str) -> str:
    """:data:`WAIT` for a call of MXNet's C interface that waits for a device, else :data:`CALL`."""
    return WAIT if name.startswith(_WAITS) else CALL


def seconds(microseconds: int) -> float:
    """Microseconds as seconds: the float that every event at that time has."""
    return microseconds / 1e6


def microseconds(seconds: float) -> int:
    """The other way round."""
    return round(seconds * 1e6)
