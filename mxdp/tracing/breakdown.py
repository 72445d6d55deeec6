"""Where the time went: every moment of a device belongs to one part, so the parts add up to the wall clock.

A moment in which the device works is classified by its work::

    compute alone                   compute
    compute and communication       hidden_communication
    communication alone             exposed_communication
    an upload alone                 input

An idle gap ends when the next operator starts, and is classified by what this operator waited for. Python pushed the
operator at the latest by its last call before the start::

                                         last push        start
    device   ...operator |    idle, maybe      |  idle, surely  | operator...
                         |   not pushed yet    |     pushed     |

Surely pushed: while another device works, the operator waits for its result (``waiting``), otherwise for MXNet's engine
(``rest``). A gap shorter than :data:`DISPATCH` always counts for the engine. Maybe not pushed: if another device
finished something just before the start, the operator waited for this device while it worked (``waiting``). Otherwise
it waited for Python:

    Python is in the section "input"                            input
    Python is in a call that waits (waitall, asnumpy ...)       waiting
    Python is late because of such a call                       waiting
    else Python is about to push                                front_end

"Late": a wait of w seconds delays everything that Python does afterwards by w seconds. If the device worked for v
seconds of a wait and then became idle, its next v idle seconds count for the wait and not for the front end. Without
the wait, Python would have been v seconds ahead of the device.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mxdp.errors import TraceError
from mxdp.tracing.events import (
    CALL,
    COMMUNICATION,
    COMPUTE,
    ENGINE,
    INPUT,
    PYTHON,
    SECTION,
    STEP,
    UPLOAD,
    WAIT,
    WORK,
    Event,
)
from mxdp.tracing.events import to_microseconds as us
from mxdp.tracing.intervals import intersect, merge, subtract, total, within
from mxdp.tracing.timeline import Timeline

DISPATCH = 20
"""Microseconds. A shorter gap before a surely pushed operator counts for MXNet's engine (2 to 10 are usual)."""
TRIGGER = 50
"""Microseconds. An operator that starts this soon after the end of another device's may have waited for that one."""

Spans = List[Tuple[int, int]]


@dataclass(frozen=True)
class Parts:
    """Seconds of one device, which add up to the wall clock. :mod:`mxdp.tracing.breakdown` defines the parts."""

    compute: float = 0.0
    exposed_communication: float = 0.0
    hidden_communication: float = 0.0
    input: float = 0.0
    front_end: float = 0.0
    waiting: float = 0.0
    rest: float = 0.0

    @property
    def total(self) -> float:
        """The sum of all parts: the wall clock."""
        return sum(self.as_dict().values())

    def as_dict(self) -> Dict[str, float]:
        """Name to seconds."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def shares(self) -> Dict[str, float]:
        """Name to share of the wall clock. The shares add up to 1."""
        whole = self.total
        return {name: value / whole if whole else 0.0 for name, value in self.as_dict().items()}


@dataclass(frozen=True)
class _Python:
    """Python's spans, in microseconds. ``calls`` are calls of MXNet that don't wait; each may push an operator."""

    input: Spans
    waits: Spans
    calls: Spans
    steps: Spans

    @classmethod
    def of(cls, timeline: Timeline) -> _Python:
        lane = timeline.lanes.get(PYTHON, ())
        inputs = [(us(start), us(end)) for start, end in timeline.python(SECTION, INPUT)]
        calls = [_span(event) for event in lane if event.kind == CALL]
        steps = [_span(event) for event in lane if event.kind == SECTION and event.name == STEP]
        return cls(inputs, _busy(timeline, [PYTHON], WAIT), calls, steps)

    def last_push(self, before: int) -> int:
        """The latest moment at which Python may have pushed an operator that started at ``before``."""
        number = bisect_right(self.calls, (before, before))
        return min(before, self.calls[number - 1][1]) if number else 0

    def waited(self, start: int, end: int) -> int:
        """How long Python had waited when the gap began, if this wait ended before the gap did; else 0."""
        number = bisect_right(self.waits, (start, start))
        if number == 0:
            return 0
        began, ended = self.waits[number - 1]
        return start - began if start < ended <= end else 0


def split(timeline: Timeline) -> Dict[str, Parts]:
    """The parts of each device, in seconds, of a timeline with Python's calls. Raises a TraceError if no device worked.
    Marked steps (``section("step")``) make it more exact: each device's operators are assigned to the steps in order,
    and an operator of a step was pushed before Python ended this step."""
    if not timeline.devices:
        raise TraceError(
            "no device worked in this timeline, so there is no time to split: record some work"
        )
    python = _Python.of(timeline)
    return {device: _split_device(timeline, device, python) for device in timeline.devices}


def _split_device(timeline: Timeline, device: str, python: _Python) -> Parts:
    length = us(timeline.length)
    busy = partial(_busy, timeline, [device])
    compute = busy(COMPUTE)
    communication = busy(*COMMUNICATION)
    moving = busy(*COMMUNICATION, UPLOAD)
    work = busy(*WORK)
    others = [name for name in timeline.devices if name != device]
    elsewhere = [event for event in timeline.events if event.device in others]
    ended = sorted(us(event.end) for event in elsewhere if event.kind in WORK)
    engine = subtract(busy(ENGINE), work)
    gaps = _Gaps(python, _busy(timeline, others, *WORK), ended, engine)
    limits = _push_limits(timeline, device, python)
    for start, end in subtract([(0, length)], work):
        limit = None if end == length else limits.get(end, end)
        gaps.sort_out(start, end, limit)
    hidden = total(intersect(compute, moving))
    parts = gaps.parts
    parts["compute"] += total(compute) - hidden
    parts["hidden_communication"] += hidden
    parts["exposed_communication"] += total(subtract(communication, compute))
    parts["input"] += total(subtract(moving, merge([*compute, *communication])))
    return Parts(**{name: value / 1e6 for name, value in parts.items()})


@dataclass
class _Gaps:
    """Classifies the idle time of one device, gap by gap, in order of time. ``others`` are the spans in which other
    devices work, and ``ended`` the ends of their operators."""

    python: _Python
    others: Spans
    ended: Sequence[int]
    engine: Spans
    lead_lost: int = 0
    parts: Counter[str] = field(default_factory=Counter)

    def sort_out(self, start: int, end: int, limit: Optional[int]) -> None:
        """Classify the gap from ``start`` to ``end``. Its operator was pushed by ``limit``; None: none follows."""
        housekeeping = within(self.engine, start, end)
        self.parts["rest"] += total(housekeeping)
        gap = subtract([(start, end)], housekeeping)
        self.lead_lost = self.python.waited(start, end) or self.lead_lost
        if limit is None:
            self._at_the_end(gap)
            return
        pushed = max(start, min(end, limit, self.python.last_push(end)))
        surely = intersect(gap, [(pushed, end)])
        self._for_others(surely, [span for span in surely if span[1] - span[0] >= DISPATCH])
        open_ = intersect(gap, [(start, pushed)])
        number = bisect_right(self.ended, end)
        if number and end - self.ended[number - 1] <= TRIGGER:
            open_ = self._take("waiting", open_, self.others)
        # The device has no work, since Python has not pushed any.
        open_ = self._take("input", open_, self.python.input)
        self._late(self._take("waiting", open_, self.python.waits))

    def _for_others(self, gap: Spans, long: Spans) -> None:
        """Count ``gap`` as waiting where other devices work meanwhile in its ``long`` spans, and else as rest."""
        waiting = total(_both(long, self.others))
        self.parts["waiting"] += waiting
        self.parts["rest"] += total(gap) - waiting

    def _late(self, gap: Spans) -> None:
        """Time by which Python is late after a wait during which the device still worked."""
        late = min(self.lead_lost, total(gap))
        self.lead_lost -= late
        self.parts["waiting"] += late
        self.parts["front_end"] += total(gap) - late

    def _at_the_end(self, gap: Spans) -> None:
        """Time after the device's last operator: what follows is the fence, or work of other devices."""
        gap = self._take("input", gap, self.python.input)
        fence = _both(gap, self.python.waits)
        self._for_others(fence, fence)
        self._late(subtract(gap, fence))

    def _take(self, part: str, gap: Spans, where: Spans) -> Spans:
        """Count the time of ``gap`` inside ``where`` as ``part``, and return the rest of the gap."""
        taken = _both(gap, where)
        self.parts[part] += total(taken)
        return subtract(gap, taken)


def _push_limits(timeline: Timeline, device: str, python: _Python) -> Mapping[int, int]:
    """Start of each operator -> end of its step in Python. Empty unless all steps ran the same operators here."""
    work = [event for event in timeline.lanes[device] if event.kind in WORK]
    steps = len(python.steps)
    if not steps or len(work) % steps:
        return {}
    count = len(work) // steps
    names = [event.name for event in work]
    usual = Counter(names[:count])
    for first in range(count, len(work), count):
        if Counter(names[first : first + count]) != usual:
            return {}
    ends = [end for _, end in python.steps]
    return {us(event.start): ends[number // count] for number, event in enumerate(work)}


def _both(gap: Spans, where: Spans) -> Spans:
    """``intersect``, fast if ``gap`` has few spans and ``where`` many."""
    if not gap:
        return []
    return intersect(gap, within(where, gap[0][0], gap[-1][1]))


def _busy(timeline: Timeline, lanes: Sequence[str], *kinds: str) -> Spans:
    spans: Spans = []
    for lane in lanes:
        events = timeline.lanes.get(lane, ())
        spans += [_span(event) for event in events if event.kind in kinds]
    return merge(spans)


def _span(event: Event) -> Tuple[int, int]:
    return us(event.start), us(event.end)
