"""Records what a block of code makes the devices and Python do, with MXNet's own profiler.

MXNet has one profiler a process, and it has its ways (source: ``src/profiler/``, ``src/c_api/c_api_profile.cc``):

- Its state can't be asked for. A recording leaves it stopped, whatever it was before; don't mix the two.
- A CPU device that it has no place for (:func:`can_record`) aborts the process, or is taken for a GPU.
- So does a start while another thread is inside a call of MXNet.
- Its first dump alone is well-formed (see :mod:`mxdp.tracing.mxnet_trace`), and it puts an end to what was recorded.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
import time
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Type, Union

from mxdp import process, sections
from mxdp.backend import Device, mx, npx
from mxdp.errors import TraceError
from mxdp.tracing.chrome import write_chrome_trace
from mxdp.tracing.events import OTHER_THREADS, PYTHON, SECTION, WORK
from mxdp.tracing.mxnet_trace import PINNED, SHARED, Trace, parse_text
from mxdp.tracing.timeline import Timeline, build

MARKS = 3
"""Moments at each end of a recording at which both clocks are read, MXNet's and Python's; the closest pair counts."""
CLOCK_LIMIT = 0.001
"""Seconds that the two clocks may differ over a recording; more means that the system's clock was set."""

Reading = Tuple[str, float, float]
"""A mark's name, Python's time, and how long it took to set the mark."""


class Recording:
    """What :func:`record` gives: first the context manager, and after the block what was recorded."""

    def __init__(self, devices: Sequence[Device] = (), kinds: Optional[Mapping[str, str]] = None) -> None:
        self._devices = list(devices)
        self._kinds = kinds
        self._timeline: Optional[Timeline] = None
        self._problem = "the block has not been run: use `with mxdp.tracing.record() as recording:`"
        self._sections: Optional[sections.Sections] = None
        self._readings: Dict[str, List[Reading]] = {}
        self._folder: Optional[tempfile.TemporaryDirectory[str]] = None
        self._running = False

    @property
    def timeline(self) -> Timeline:
        """What was recorded; from the fence before the block to the fence after it.

        Raises:
            TraceError: the block has not ended, has failed, or nothing ran in it.
        """
        if self._timeline is None:
            raise TraceError(f"nothing is recorded: {self._problem}")
        return self._timeline

    def save(self, path: Union[str, Path]) -> Path:
        """Write a Chrome trace to ``path``, which https://ui.perfetto.dev and chrome://tracing open; returns ``path``.

        Written beside and renamed. :func:`mxdp.tracing.read_trace` gives the same timeline again.

        Raises:
            TraceError: as :attr:`timeline`; or the file can't be written.
        """
        return write_chrome_trace(self.timeline, Path(path))

    def __enter__(self) -> Recording:
        check_devices(self._devices)
        _check_environment()
        self._sections = sections.start()
        try:
            self._timeline, self._problem = None, "the block has not ended yet"
            self._folder = tempfile.TemporaryDirectory(prefix="mxdp-trace-")
            npx.waitall()
            _check_threads()
            mx.profiler.set_config(
                filename=os.path.join(self._folder.name, "trace.json"),
                profile_imperative=True,
                profile_symbolic=True,
                profile_api=True,
                profile_memory=False,
                aggregate_stats=False,  # it would switch bulk execution off
                continuous_dump=False,
            )
            mx.profiler.set_state("run")
            self._running = True
            self._readings["begin"] = _read_clocks("begin")
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        assert self._sections is not None
        assert self._folder is not None
        self._problem = "the block failed"
        try:
            npx.waitall()
            self._readings["end"] = _read_clocks("end")
            self._stop()
            text = Path(self._folder.name, "trace.json").read_text(encoding="utf-8")
        finally:
            self._close()
        if error is None:
            found = parse_text(text, "MXNet's trace", process_names())
            self._timeline, self._problem = assemble(found, self._sections.marked, self._readings, self._kinds)

    def _stop(self) -> None:
        if self._running:
            self._running = False
            mx.profiler.set_state("stop")
            mx.profiler.dump()

    def _close(self) -> None:
        """Stop the profiler if it runs, so that what it has does not come up in the next recording; and tidy up."""
        try:
            self._stop()
        finally:
            sections.stop()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None


def record(devices: Sequence[Device] = (), kinds: Optional[Mapping[str, str]] = None) -> Recording:
    """Record a block: ``with record() as recording: ...``, then ``recording.timeline`` and ``recording.save(path)``.

    Waits for all devices before the block and after it, and takes MXNet's profiler over: afterwards it is stopped. What
    is recorded: every operator on every device, every call of MXNet from Python, and each
    :func:`mxdp.tracing.section`.

    What it costs (:func:`mxdp.tracing.tracing_cost`; two cores, medians of nine rounds in turn): a LeNet step of batch
    256 took 0.0 to 0.4 % longer on one device and 0.5 to 1.5 % on two. It is 4.3 microseconds for an operator with
    its calls: a stream of tiny operators, 17.5 microseconds each, took 25 % longer. Reading the trace when the block
    has ended takes 25 microseconds for each event, and is in no time of the timeline.

    Args:
        devices: those that will work, if you know: MXNet aborts the process if it is to record a CPU device whose
            number is more than the number of processors plus one, and this is where that is refused in words.
        kinds: kinds of operators by name, such as ``{"elemwise_add": "compute"}``; see :mod:`mxdp.tracing.events`.

    Raises:
        TraceError: another recording is running; a device can't be recorded; another thread is inside a call of MXNet;
            or ``MXNET_PROFILER_AUTOSTART`` is set.
    """
    return Recording(devices, kinds)


def check_devices(devices: Sequence[Device]) -> None:
    """Can MXNet's profiler record these?

    Raises:
        TraceError: it would abort the process, or take a CPU device for a GPU.
    """
    for device in devices:
        if not can_record([device]):
            raise TraceError(
                f"MXNet's profiler can't record {device}: with {process.cores()} processors it records CPU devices up"
                f" to cpu({_cpu_devices() - 1}), and aborts at others; use fewer devices"
            )


def can_record(devices: Sequence[Device]) -> bool:
    """Does MXNet's profiler know these devices? It knows every GPU, and the first few CPU devices."""
    return all(device.device_type != "cpu" or device.device_id < _cpu_devices() for device in devices)


def _cpu_devices() -> int:
    """The profiler has a place for each processor, and after the GPUs two more for other memories (source:
    ``src/profiler/profiler.h``). Without GPUs, the next two CPU devices take these two places."""
    return process.cores() + (0 if mx.runtime.Features().is_enabled("CUDA") else 2)


def process_names() -> Dict[int, str]:
    """The names of a trace's "processes", by number: MXNet writes them into the first trace only."""
    names = [f"cpu/{number}" for number in range(process.cores())]
    if mx.runtime.Features().is_enabled("CUDA"):
        names += [f"gpu/{number}" for number in range(32)]
    return dict(enumerate([*names, PINNED, SHARED]))


def assemble(
    trace: Trace,
    marked: Sequence[sections.Marked],
    readings: Mapping[str, Sequence[Reading]],
    kinds: Optional[Mapping[str, str]] = None,
) -> Tuple[Optional[Timeline], str]:
    """The timeline of what lies between the marks, with Python's sections on MXNet's clock; else why there is none.

    Raises:
        TraceError: the system's clock was set meanwhile.
    """
    began, ended = trace.marks[readings["begin"][-1][0]], trace.marks[readings["end"][0][0]]
    offsets = [_offset(trace, readings[end]) for end in ("begin", "end")]
    if abs(offsets[1] - offsets[0]) > CLOCK_LIMIT * 1e6:
        raise TraceError(
            f"the system's clock moved by {abs(offsets[1] - offsets[0]) / 1e6:.3f} s while this was recorded:"
            " record it again"
        )
    offset = sum(offsets) / 2
    events = trace.events(kinds)
    for name, start, end, own in marked:
        times = (round(time * 1e6 + offset) for time in (start, end))
        events.append((PYTHON if own else OTHER_THREADS, name, SECTION, *times))  # type: ignore[arg-type]
    moved = [(*event[:3], event[3] - began, event[4] - began) for event in events]
    timeline = build(ended - began, moved)
    if not any(event.kind in WORK for event in timeline.events):
        return None, "no operator ran in the block (and MXNet's key-value stores on other machines are not seen)"
    return timeline, ""


def _offset(trace: Trace, readings: Sequence[Reading]) -> float:
    """Microseconds from Python's clock to MXNet's, by the mark that was set fastest."""
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
    """MXNet never destroys a domain, so there is one for all recordings."""
    return mx.profiler.Domain("mxdp")


def _check_environment() -> None:
    if os.environ.get("MXNET_PROFILER_AUTOSTART", "0") not in ("", "0"):
        raise TraceError(
            "MXNET_PROFILER_AUTOSTART is set, so MXNet's one profiler is in use: unset it before Python starts"
        )


def _check_threads() -> None:
    """Refuse where MXNet would abort the process: it finds the end of a call whose beginning it did not record.

    A thread that waits in C stands in the Python function that called it. A call that begins after this is not seen.
    """
    home = os.path.dirname(mx.__file__)
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    for number, frame in sys._current_frames().items():
        if number != threading.get_ident() and frame.f_code.co_filename.startswith(home):
            raise TraceError(
                f"the thread {names.get(number, number)!r} is inside a call of MXNet, which aborts the process if its"
                " profiler starts meanwhile: start the recording before that thread, or let it finish"
            )
