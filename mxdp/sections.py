"""Sections name what Python does: ``with section("input"): ...``.

Without a recording a section costs one function call, so it can stay in the code. MXNet has one profiler a process, so
there is one recording at a time. This module holds it, in mxdp's only global variable for tracing.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager, nullcontext
from typing import ContextManager, Iterator, List, Optional, Tuple

from mxdp.errors import TraceError

Marked = Tuple[str, float, float, bool]
"""Name, start and end on ``time.perf_counter``, and whether the recording's own thread ran it."""

JOB = "mxdp job"
"""Python code of mxdp that the engine calls between operators, such as to note the time; in the lane of ``cpu(0)``."""
RANK_SUM = "mxdp sum over ranks"
"""The same, where it sums an array over all processes."""

_NOTHING: ContextManager[None] = nullcontext()


class Sections:
    """Collects the sections of one recording."""

    def __init__(self) -> None:
        self.marked: List[Marked] = []
        self.thread = threading.get_ident()

    @contextmanager
    def section(self, name: str) -> Iterator[None]:
        """Note the time in which the block runs."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.marked.append(
                (name, start, time.perf_counter(), threading.get_ident() == self.thread)
            )


_recording: Optional[Sections] = None


def section(name: str) -> ContextManager[None]:
    """Name what Python does inside, in the timeline of a recording, if there is one. Sections may be nested. Doesn't
    wait. ``"input"`` names the input path: a device that is idle meanwhile waits for input."""
    return _NOTHING if _recording is None else _recording.section(name)


def start() -> Sections:
    """Start to collect sections. Raises a TraceError if another recording does."""
    global _recording
    if _recording is not None:
        raise TraceError(
            "a recording is already running, and MXNet has one profiler for the whole process: end that recording first"
        )
    _recording = Sections()
    return _recording


def stop() -> None:
    """Stop collecting sections."""
    global _recording
    _recording = None
