"""Records a few steps and splits the wall clock of a step into its parts."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Tuple

from mxdp.backend import Devices
from mxdp.sections import section
from mxdp.tracing.breakdown import Parts, split
from mxdp.tracing.events import STEP, Kinds
from mxdp.tracing.recording import record
from mxdp.tracing.timeline import Timeline

THREADS = Path("/proc/self/task")
"""Where Linux tells, for each thread, how long it ran."""
ThreadTimes = Mapping[int, Tuple[int, int]]
"""For each thread the nanoseconds that it ran, and that it was ready to run but had no processor."""


@dataclass(frozen=True)
class TimeSplit(Parts):
    """Seconds a step of the critical device, the one that worked longest.

    The parts (:class:`mxdp.tracing.Parts`) add up to ``wall_clock``, the time from fence to fence divided by the number
    of steps. ``by_device`` has the parts of every device. ``timeline`` is the recording.

    ``on_processor`` is the share of the devices' working time in which they had a processor, which the profiler doesn't
    see; in the rest other threads or programs ran. None for GPUs, and where the system does not tell: only Linux does.
    """

    wall_clock: float = 0.0
    steps: int = 0
    device: str = ""
    by_device: Mapping[str, Parts] = field(default_factory=dict)
    timeline: Timeline = field(default_factory=lambda: Timeline(0.0, ()), repr=False)
    on_processor: Optional[float] = None

    def as_dict(self) -> Dict[str, float]:
        """The parts by name, in seconds a step."""
        return {name: getattr(self, name) for name in Parts().as_dict()}


def where_the_time_went(
    step: Callable[[], Any],
    steps: int = 10,
    warm_up: int = 2,
    devices: Devices = (),
    kinds: Kinds = None,
) -> TimeSplit:
    """Split the wall clock of a step: call ``step`` ``warm_up`` times, then ``steps`` times in a recording.

    It waits only before the first and after the last step, so Python may run ahead of the devices as usual. Mark the
    input path inside the step with ``section("input")``. It works for any number of devices and for pipelines: the
    result is the split of the device that worked longest. ``devices``, ``kinds``: as in :func:`mxdp.tracing.record`.
    Raises a ValueError for less than one step, and a TraceError as :func:`mxdp.tracing.record`, or if nothing ran.
    """
    if steps < 1:
        raise ValueError(f"where_the_time_went needs at least one step, not {steps}")
    for _ in range(warm_up):
        step()
    with record(devices, kinds) as recording:
        before = _threads()
        for _ in range(steps):
            with section(STEP):
                step()
    times = split_steps(recording.timeline, steps)
    if all(device.startswith("cpu") for device in times.by_device):
        return replace(times, on_processor=on_processor(before, _threads()))
    return times


def on_processor(before: ThreadTimes, after: ThreadTimes) -> Optional[float]:
    """The share of the threads' working time in which they had a processor; None if nothing is known.

    >>> on_processor({1: (100, 50)}, {1: (400, 50), 2: (300, 200)})
    0.75
    """
    ran = 0
    waited = 0
    for thread, now in after.items():
        then = before.get(thread, (0, 0))
        ran += now[0] - then[0]
        waited += now[1] - then[1]
    return ran / (ran + waited) if ran > 0 else None


def _threads() -> ThreadTimes:
    """All threads but Python's, which are those of the devices; none where the system does not tell."""
    pythons = {thread.native_id for thread in threading.enumerate()}
    times = {}
    with contextlib.suppress(OSError):
        for path in THREADS.iterdir():
            with contextlib.suppress(OSError, ValueError):  # it has just ended
                ran, waited = map(int, (path / "schedstat").read_text().split()[:2])
                times[int(path.name)] = (ran, waited)
    return {thread: pair for thread, pair in times.items() if thread not in pythons}


def split_steps(timeline: Timeline, steps: int) -> TimeSplit:
    """The split of a timeline that holds ``steps`` steps. Raises a TraceError if no device worked."""
    by_device = {}
    for name, parts in split(timeline).items():
        of_a_step = {part: seconds / steps for part, seconds in parts.as_dict().items()}
        by_device[name] = Parts(**of_a_step)
    device = timeline.critical
    return TimeSplit(
        **by_device[device].as_dict(),
        wall_clock=timeline.length / steps,
        steps=steps,
        device=device,
        by_device=by_device,
        timeline=timeline,
    )
