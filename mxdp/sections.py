"""Sections name what Python does: ``with section("input"): ...``.

Without a recording a section costs one function call, so it can stay in the code. MXNet has one profiler a process, so
there is one recording at a time. This module holds it, in mxdp's only global variable for tracing.
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from types import TracebackType
from typing import ContextManager, List, Optional, Tuple, Type, Union

from mxdp.errors import TraceError

Marked = Tuple[str, float, float, bool]
"""Name, start and end on ``time.perf_counter``, and whether the recording's own thread ran it."""

JOB = "mxdp job"
"""Python code of mxdp that the engine calls between operators, for example to note the time. It appears in the lane of
``cpu(0)``, on a thread of its own."""
RANK_SUM = "mxdp sum over ranks"
"""The same, where it sums an array over all processes."""

_NOTHING: ContextManager[None] = nullcontext()


class Sections:
    """Collects the sections of one recording."""

    def __init__(self) -> None:
        self.marked: List[Marked] = []
        self.thread = threading.get_ident()


class _Section:
    """One recorded section."""

    def __init__(self, name: str, sections: Sections) -> None:
        self._name = name
        self._sections = sections
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = time.perf_counter()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        own = threading.get_ident() == self._sections.thread
        self._sections.marked.append((self._name, self._start, time.perf_counter(), own))


_recording: Optional[Sections] = None


def section(name: str) -> Union[ContextManager[None], _Section]:
    """A context manager that names what Python does in it, for the timeline of a recording, if there is one.

    ``"input"`` names the input path: a device that is idle during this section waits for input. Sections may be nested.
    Doesn't wait.
    """
    return _NOTHING if _recording is None else _Section(name, _recording)


def start() -> Sections:
    """Start to collect sections.

    Raises:
        TraceError: another recording collects sections.
    """
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
