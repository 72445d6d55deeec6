"""Names for what Python does: ``with section("input"): ...``.

A section costs a function call when nothing is recorded, so that it can stay where it stands. MXNet has one profiler a
process, and so there is one recording at a time: who it is stands here, the one thing that this package keeps globally.
"""

from __future__ import annotations

import threading
import time
from contextlib import nullcontext
from types import TracebackType
from typing import ContextManager, List, Optional, Tuple, Type, Union

from mxdp.errors import TraceError

Marked = Tuple[str, float, float, bool]
"""Name, start and end on ``time.perf_counter``, and whether it was the recording's own thread."""

_NOTHING: ContextManager[None] = nullcontext()


class Sections:
    """Collects the sections of one recording."""

    def __init__(self) -> None:
        self.marked: List[Marked] = []
        self.thread = threading.get_ident()


class _Section:
    """One section that is recorded."""

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
    """A context manager: what Python does in it is ``name`` in the timeline of the recording, if there is one.

    ``"input"`` is the input path: a device that has nothing to do meanwhile waits for input. Sections may lie in each
    other. Doesn't wait.
    """
    return _NOTHING if _recording is None else _Section(name, _recording)


def start() -> Sections:
    """Collect from now on.

    Raises:
        TraceError: somebody collects already.
    """
    global _recording
    if _recording is not None:
        raise TraceError(
            "a recording is running already, and MXNet has one profiler for the whole process: end that one first"
        )
    _recording = Sections()
    return _recording


def stop() -> None:
    """Stop to collect."""
    global _recording
    _recording = None
