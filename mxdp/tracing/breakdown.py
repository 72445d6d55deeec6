"""Where the time went: every moment of a device belongs to one part, so that the parts add up to the wall clock.

A moment in which the device works is told by what works::

    compute alone                   compute
    compute and communication       hidden_communication
    communication alone             exposed_communication
    an upload alone                 input

A moment in which it is idle ends when its next operator starts, and is told by what that operator had to wait for. It
had been pushed at the latest when Python's last call before it ended::

                                         last push        start
    device   ...operator |    idle, perhaps    |  idle, surely  | operator...
                         |   not pushed yet    |     pushed     |

Surely pushed: it waits for another device's result if one works (``waiting``), else for MXNet's engine (``rest``); less
than :data:`DISPATCH` is always the engine's. Perhaps not pushed: if another device finished something just before the
start, the operator waited for that, while that device worked (``waiting``). Otherwise it waited for Python:

    Python is in the section "input"                            input
    Python is in a call that waits (waitall, asnumpy ...)       waiting
    Python came out of such a call late                         waiting
    else Python is about to push                                front_end

"Came out late": a wait that lasted w seconds delays all that Python does afterwards by w seconds. So after a wait in
which the device ran dry, as many of the next idle seconds as the device had still worked during the wait are the
wait's, not the front end's: without it Python would have had that lead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass, fields
from typing import Dict, List, Mapping, Optional, Sequence, Tuple

from mxdp.errors import TraceError
from mxdp.tracing.events import CALL, COMMUNICATION, COMPUTE, ENGINE, INPUT, PYTHON, SECTION, STEP, UPLOAD, WAIT, WORK
from mxdp.tracing.events import microseconds as us
from mxdp.tracing.intervals import intersect, merge, subtract, total, within
from mxdp.tracing.timeline import Timeline

DISPATCH = 20
"""Microseconds: a gap after which an operator that was surely pushed starts is MXNet's own (2 to 10 were usual)."""
TRIGGER = 50
"""Microseconds: an operator that starts within them after another device's may have waited for that one."""

Span = Tuple[int, int]
Spans = List[Span]


@dataclass(frozen=True)
class Parts:
    """Seconds of one device; they add up to the wall clock. What counts where: :mod:`mxdp.tracing.breakdown`."""

    compute: float = 0.0
    exposed_communication: float = 0.0
    hidden_communication: float = 0.0
    input: float = 0.0
    front_end: float = 0.0
    waiting: float = 0.0
    rest: float = 0.0

    @property
    def total(self) -> float:
        """All of them: the wall clock."""
        return sum(self.as_dict().values())

    def as_dict(self) -> Dict[str, float]:
        """Name to seconds."""
        return {part.name: getattr(self, part.name) for part in fields(self)}

    def shares(self) -> Dict[str, float]:
        """Name to the part of the wall clock: they add up to 1."""
        whole = self.total
        return {name: value / whole if whole else 0.0 for name, value in self.as_dict().items()}


@dataclass(frozen=True)
class _Python:
    """What Python did, in microseconds. ``calls`` are those of MXNet that don't wait: each may push something."""

    input: Spans
    waits: Spans
    calls: Spans
    steps: Spans

    @classmethod
    def of(cls, timeline: Timeline) -> _Python:
        lane = timeline.lanes.get(PYTHON, ())

        def spans(kind: str, name: Optional[str] = None) -> Spans:
            return [(us(e.start), us(e.end)) for e in lane if e.kind == kind and name in (None, e.name)]

        return cls(merge(spans(SECTION, INPUT)), merge(spans(WAIT)), spans(CALL), spans(SECTION, STEP))

    def last_push(self, before: int) -> int:
        """The latest moment up to ``before`` at which Python may have pushed an operator that started then."""
        number = bisect_right(self.calls, (before, before))
        return min(before, self.calls[number - 1][1]) if number else 0

    def waited(self, start: int, end: int) -> int:
        """How long Python had been in a wait when a gap began, if that wait was over before the gap; else 0."""
        number = bisect_right(self.waits, (start, start)) - 1
        return start - self.waits[number][0] if number >= 0 and start < self.waits[number][1] <= end else 0


def split(timeline: Timeline) -> Dict[str, Parts]:
    """Each device's parts, in seconds of the whole timeline. Pure Python; needs Python's calls in the timeline.

    Steps that are marked (``section("step")``) make it sharper: what a device did is dealt out to them in turn, and an
    operator of a step is pushed when the step's Python has ended.

    Raises:
        TraceError: no device worked.
    """
    if not timeline.devices:
        raise TraceError("no device worked in this timeline, so there is no time to split: record some work")
    python = _Python.of(timeline)
    worked = {device: _in_us(timeline.spans(device)) for device in timeline.devices}
    found = {}
    for device in timeline.devices:
        others = merge(span for name, spans in worked.items() if name != device for span in spans)
        found[device] = _split_device(timeline, device, others, python)
    return found


def _split_device(timeline: Timeline, device: str, others: Spans, python: _Python) -> Parts:
    length = us(timeline.length)
    compute = _in_us(timeline.spans(device, (COMPUTE,)))
    moving = _in_us(timeline.spans(device, (*COMMUNICATION, UPLOAD)))
    communication = _in_us(timeline.spans(device, COMMUNICATION))
    work = _in_us(timeline.spans(device))
    engine = subtract(_in_us(timeline.spans(device, (ENGINE,))), work)
    ended = sorted(
        us(e.end) for name in timeline.devices if name != device for e in timeline.lanes[name] if e.kind in WORK
    )
    gaps = _Gaps(python, others, ended, engine)
    limits = _push_limits(timeline, device, python)
    for start, end in subtract([(0, length)], work):
        gaps.sort_out(start, end, None if end == length else limits.get(end, end))
    hidden = total(intersect(compute, moving))
    parts = gaps.parts
    parts["compute"] += total(compute) - hidden
    parts["hidden_communication"] += hidden
    parts["exposed_communication"] += total(subtract(communication, compute))
    parts["input"] += total(subtract(moving, merge([*compute, *communication])))
    return Parts(**{name: value / 1e6 for name, value in parts.items()})


class _Gaps:
    """Sorts out the idle moments of one device, gap by gap, in their order."""

    def __init__(self, python: _Python, others: Spans, ended: Sequence[int], engine: Spans) -> None:
        self._python = python
        self._others = others
        self._ended = ended
        self._engine = engine
        self._lead_lost = 0
        self.parts = {part.name: 0 for part in fields(Parts)}

    def sort_out(self, start: int, end: int, limit: Optional[int]) -> None:
        """The gap from ``start`` to ``end``, whose operator is pushed by ``limit``; None: no operator follows."""
        own = within(self._engine, start, end)
        self.parts["rest"] += total(own)
        gap = subtract([(start, end)], own)
        self._lead_lost = self._python.waited(start, end) or self._lead_lost
        if limit is None:
            self._at_the_end(gap)
            return
        pushed = max(start, min(end, limit, self._python.last_push(end)))
        self._surely_pushed(intersect(gap, [(pushed, end)]))
        open_ = intersect(gap, [(start, pushed)])
        if self._triggered(end):
            open_ = self._take("waiting", open_, self._others)
        self._pythons(open_)

    def _surely_pushed(self, gap: Spans) -> None:
        long = [span for span in gap if span[1] - span[0] >= DISPATCH]
        waiting = total(_both(long, self._others))
        self.parts["waiting"] += waiting
        self.parts["rest"] += total(gap) - waiting

    def _pythons(self, gap: Spans) -> None:
        """Moments in which the device has nothing, since Python has not pushed it."""
        gap = self._take("input", gap, self._python.input)
        self._late(self._take("waiting", gap, self._python.waits))

    def _late(self, gap: Spans) -> None:
        """The device worked on while Python was waiting: for so long, Python would have been ahead of it."""
        late = min(self._lead_lost, total(gap))
        self._lead_lost -= late
        self.parts["waiting"] += late
        self.parts["front_end"] += total(gap) - late

    def _at_the_end(self, gap: Spans) -> None:
        """After the device's last operator: only the fence is to come, or work that is none of this device's."""
        gap = self._take("input", gap, self._python.input)
        fence = _both(gap, self._python.waits)
        waiting = total(_both(fence, self._others))
        self.parts["waiting"] += waiting
        self.parts["rest"] += total(fence) - waiting
        self._late(subtract(gap, fence))

    def _take(self, part: str, gap: Spans, where: Spans) -> Spans:
        """Count the moments of ``gap`` that are in ``where``; what remains."""
        taken = _both(gap, where)
        self.parts[part] += total(taken)
        return subtract(gap, taken)

    def _triggered(self, start: int) -> bool:
        number = bisect_right(self._ended, start)
        return number > 0 and start - self._ended[number - 1] <= TRIGGER


def _push_limits(timeline: Timeline, device: str, python: _Python) -> Mapping[int, int]:
    """Start of an operator -> when its step's Python ended. Empty unless each step did the same on this device."""
    work = [event for event in timeline.lanes[device] if event.kind in WORK]
    steps = len(python.steps)
    if not steps or len(work) % steps:
        return {}
    each = len(work) // steps
    shares = [Counter(event.name for event in work[number * each : (number + 1) * each]) for number in range(steps)]
    if any(share != shares[0] for share in shares):
        return {}
    return {us(event.start): python.steps[number // each][1] for number, event in enumerate(work)}


def _both(gap: Spans, where: Spans) -> Spans:
    """``intersect``, for few spans and many."""
    return intersect(gap, within(where, gap[0][0], gap[-1][1])) if gap else []


def _in_us(spans: Sequence[Tuple[float, float]]) -> Spans:
    return [(us(start), us(end)) for start, end in spans]
