"""Records what the devices and Python do in a block of code, with MXNet's own profiler.

MXNet has one profiler a process, with these limits (source: ``src/profiler/``, ``src/c_api/c_api_profile.cc``):

- Its state can't be read. A recording leaves it stopped, so don't use it yourself at the same time.
- A CPU device without a place in it (:func:`can_record`) aborts the process, or appears as a GPU.
- A start while another thread is inside a call of MXNet aborts the process.
- Only its first dump is well-formed (see :mod:`mxdp.tracing.mxnet_trace`), and a dump ends the recording.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from functools import lru_cache
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from mxdp import process, sections
from mxdp.backend import Devices, mx, npx
from mxdp.errors import TraceError, plural
from mxdp.tracing.chrome import write_chrome_trace
from mxdp.tracing.events import OTHER_THREADS, PYTHON, SECTION, WORK, Kinds
from mxdp.tracing.mxnet_trace import PINNED, SHARED, Trace, parse
from mxdp.tracing.timeline import Timeline, build

MARKS = 3
"""Both clocks, MXNet's and Python's, are read this many times at each end of a recording. The closest pair counts."""
CLOCK_LIMIT = 0.001
"""Seconds by which the two clocks may drift apart in a recording. More means that the system's clock was set."""

Reading = Tuple[str, float, float]
"""The name of a mark, Python's time, and the seconds that it took to set the mark."""


class Recording:
    """The result of :func:`record`: a context manager, and after the block the recorded timeline."""

    def __init__(self, devices: Devices, kinds: Kinds) -> None:
        self._devices = list(devices)
        self._kinds = kinds
        self._timeline: Optional[Timeline] = None
        self._problem = "the block has not been run: use `with mxdp.tracing.record() as recording:`"
        self._readings: Dict[str, List[Reading]] = {}

    def __repr__(self) -> str:
        return f"<Recording: {self._problem if self._timeline is None else self._timeline}>"

    @property
    def timeline(self) -> Timeline:
        """The recorded timeline, from the fence before the block to the fence after it. Raises a TraceError if the
        block has not ended or has failed, or nothing ran in it."""
        if self._timeline is None:
            raise TraceError(f"nothing is recorded: {self._problem}")
        return self._timeline

    def save(self, path: Union[str, Path]) -> Path:
        """Write a Chrome trace to ``path``, which https://ui.perfetto.dev and chrome://tracing open; returns ``path``.
        Raises a TraceError as :attr:`timeline` does, or if the file can't be written."""
        return write_chrome_trace(self.timeline, Path(path))

    def __enter__(self) -> Recording:
        for device in self._devices:
            if not can_record([device]):
                raise TraceError(
                    f"MXNet's profiler can't record {device}: with {processors()} it records CPU devices"
                    f" up to cpu({_cpu_devices() - 1}), and aborts at others; use fewer devices"
                )
        if os.environ.get("MXNET_PROFILER_AUTOSTART", "0") not in ("", "0"):
            raise TraceError(
                "MXNET_PROFILER_AUTOSTART is set, so MXNet's one profiler is in use: unset it before Python starts"
            )
        with ExitStack() as ending:
            self._sections = sections.start()
            ending.callback(sections.stop)
            self._timeline = None
            self._problem = "the block has not ended yet"
            folder = ending.enter_context(tempfile.TemporaryDirectory(prefix="mxdp-trace-"))
            self._file = Path(folder, "trace.json")
            npx.waitall()
            _check_threads()
            mx.profiler.set_config(
                filename=str(self._file),
                profile_imperative=True,
                profile_symbolic=True,
                profile_api=True,
                profile_memory=False,
                aggregate_stats=False,  # it would switch bulk execution off
                continuous_dump=False,
            )
            mx.profiler.set_state("run")
            # Closed at the end of the block, or where something fails: else its events appear in the next recording.
            self._profiler = ending.enter_context(ExitStack())
            self._profiler.callback(mx.profiler.dump)
            self._profiler.callback(mx.profiler.set_state, "stop")
            self._readings["begin"] = _read_clocks("begin")
            self._ending = ending.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._problem = "the block failed"
        with self._ending:
            npx.waitall()
            self._readings["end"] = _read_clocks("end")
            self._profiler.close()
            text = self._file.read_text(encoding="utf-8")
        if error[0] is None:
            trace = parse(text, process_names())
            marked = self._sections.marked
            found = assemble(trace, marked, self._readings, self._kinds)
            self._timeline, self._problem = found


def record(devices: Devices = (), kinds: Kinds = None) -> Recording:
    """Record a block: ``with record() as recording: ...``, then ``recording.timeline`` and ``recording.save(path)``.

    It records every operator on every device, every call of MXNet from Python, and each :func:`mxdp.tracing.section`.
    It waits for all devices before and after the block, and leaves MXNet's profiler stopped.

    An operator with its calls takes some 4 microseconds more: a LeNet step of batch 256 takes at most 1.5 % longer, a
    stream of tiny operators 25 %. To read the trace afterwards takes 25 microseconds for each event.

    Args:
        devices: the devices that will work, if known: one at which MXNet's profiler would abort the process is refused.
        kinds: kinds of operators by name, such as ``{"elemwise_add": "compute"}``; see :mod:`mxdp.tracing.events`.

    Raises a TraceError if another recording is running, a device can't be recorded, another thread is inside a call of
    MXNet, or ``MXNET_PROFILER_AUTOSTART`` is set.
    """
    return Recording(devices, kinds)


def can_record(devices: Devices) -> bool:
    """Whether MXNet's profiler can record these devices: it records every GPU, and the first few CPU devices."""
    return all(
        device.device_type != "cpu" or device.device_id < _cpu_devices() for device in devices
    )


def _cpu_devices() -> int:
    """The number of CPU devices that the profiler records: one for each processor, and in a CPU build two more, which
    take the places of pinned and shared memory (source: ``src/profiler/profiler.h``)."""
    return process.cores() + (0 if mx.runtime.Features().is_enabled("CUDA") else 2)


def processors() -> str:
    """How many processors this process may use, in words, and why only one."""
    count = process.cores()
    pinned = process.pinning() if count == 1 else ""
    return plural(count, "processor") + (f" (because of {pinned})" if pinned else "")


def process_names() -> Dict[int, str]:
    """The names of a trace's "processes" by number. MXNet writes them into the first trace only."""
    names = [f"cpu/{number}" for number in range(process.cores())]
    if mx.runtime.Features().is_enabled("CUDA"):
        names += [f"gpu/{number}" for number in range(32)]
    return dict(enumerate([*names, PINNED, SHARED]))


def assemble(
    trace: Trace,
    marked: Sequence[sections.Marked],
    readings: Mapping[str, Sequence[Reading]],
    kinds: Kinds = None,
) -> Tuple[Optional[Timeline], str]:
    """The timeline between the marks, with Python's sections on MXNet's clock; or None and the reason. Raises a
    TraceError if the system's clock was set meanwhile."""
    before = _offset(trace, readings["begin"])
    after = _offset(trace, readings["end"])
    drift = abs(after - before) / 1e6
    if drift > CLOCK_LIMIT:
        raise TraceError(
            f"the system's clock moved by {drift:.3f} s while this was recorded: record it again"
        )
    offset = (before + after) / 2
    events = trace.events(kinds)
    for name, start, end, same_thread in marked:
        lane = PYTHON if same_thread else OTHER_THREADS
        began = round(start * 1e6 + offset)
        ended = round(end * 1e6 + offset)
        events.append((lane, name, SECTION, began, ended))
    # From the last mark before the block to the first one after it.
    first = trace.marks[readings["begin"][-1][0]]
    last = trace.marks[readings["end"][0][0]]
    moved = []
    for lane, name, kind, began, ended in events:
        moved.append((lane, name, kind, began - first, ended - first))
    timeline = build(last - first, moved)
    if not any(event.kind in WORK for event in timeline.events):
        problem = "no operator ran in the block (MXNet's key-value stores on other machines can't be recorded)"
        return None, problem
    return timeline, ""


def _offset(trace: Trace, readings: Sequence[Reading]) -> float:
    """Microseconds to add to Python's clock for MXNet's, by the mark that was set fastest."""
    name, at, _ = min(readings, key=lambda reading: reading[2])
    return trace.marks[name] - at * 1e6


def _read_clocks(end: str) -> List[Reading]:
    readings = []
    for number in range(MARKS):
        name = f"{end} {number}"
        marker = _domain().new_marker(name)
        before = time.perf_counter()
        marker.mark()
        after = time.perf_counter()
        readings.append((name, (before + after) / 2, after - before))
    return readings


@lru_cache(maxsize=None)
def _domain() -> Any:
    """One for all recordings: MXNet never destroys a domain."""
    return mx.profiler.Domain("mxdp")


def _check_threads() -> None:
    """Refuse to start while another thread is inside a call of MXNet, whose begin is not recorded: at its end the
    profiler would abort the process. A thread that waits in C still has MXNet's Python function as its frame. A call
    that begins after this check is not found."""
    home = os.path.dirname(mx.__file__)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        if number != threading.get_ident() and frame.f_code.co_filename.startswith(home):
            raise TraceError(
                f"the thread {names.get(number, number)!r} is inside a call of MXNet, which aborts the process if its"
                " profiler starts meanwhile: start the recording before that thread, or let it finish"
            )
