"""A timeline: what ran on which device and when, with its busy shares and overlap. Pure Python, no MXNet."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple

from mxdp.errors import TraceError
from mxdp.tracing import intervals
from mxdp.tracing.events import (
    COMMUNICATION,
    COMPUTE,
    DEVICE_KINDS,
    OTHER_THREADS,
    PYTHON,
    PYTHON_KINDS,
    SECTION,
    WORK,
    Event,
    Row,
    to_microseconds,
    to_seconds,
)

Span = Tuple[float, float]
FORMAT = "mxdp timeline 1"


@dataclass(frozen=True)
class Overlap:
    """``communication`` counts the seconds with any copy or all-reduce, ``hidden`` those of them with compute."""

    communication: float
    hidden: float

    @property
    def share(self) -> float:
        """The share of the communication that was hidden: 0.0 to 1.0, and 0.0 without communication."""
        return self.hidden / self.communication if self.communication else 0.0


@dataclass(frozen=True)
class Timeline:
    """All events of a recording of ``length`` seconds, ordered by start. Times are seconds since its begin."""

    length: float
    events: Tuple[Event, ...] = field(repr=False)

    @property
    def lanes(self) -> Dict[str, Tuple[Event, ...]]:
        """The events of each device, ordered by start. Python's lanes come last."""
        return dict(self._lanes)

    @cached_property
    def _lanes(self) -> Dict[str, Tuple[Event, ...]]:
        lanes: Dict[str, List[Event]] = {}
        for event in self.events:
            lanes.setdefault(event.device, []).append(event)
        return {name: tuple(lanes[name]) for name in sorted(lanes, key=_lane_order)}

    @property
    def devices(self) -> List[str]:
        """The devices that did any work, such as ``["cpu(0)", "cpu(1)"]``."""
        return [
            name
            for name, events in self.lanes.items()
            if not _is_python(name) and any(e.kind in WORK for e in events)
        ]

    def spans(self, device: Optional[str] = None, kinds: Sequence[str] = WORK) -> List[Span]:
        """When ``device`` (None: any device) ran events of these kinds: intervals that do not touch. Raises a
        ValueError if no device with events has this name."""
        if device not in (None, *self.lanes):
            raise ValueError(
                f"there is no event on {device!r}; there are events on {', '.join(self.lanes) or 'none'}"
            )
        if device is None:
            events = [event for event in self.events if not _is_python(event.device)]
        else:
            events = list(self.lanes[device])
        return intervals.merge((event.start, event.end) for event in events if event.kind in kinds)

    def python(self, kind: str = SECTION, name: Optional[str] = None) -> List[Span]:
        """When the thread that recorded was in an event of this kind (and name): intervals that do not touch."""
        lane = self.lanes.get(PYTHON, ())
        chosen = [event for event in lane if event.kind == kind and name in (None, event.name)]
        return intervals.merge((event.start, event.end) for event in chosen)

    def busy(self, device: str) -> float:
        """The share of the time in which ``device`` worked: 0.0 to 1.0."""
        return intervals.total(self.spans(device)) / self.length if self.length else 0.0

    def together(self, count: int = 2) -> float:
        """Seconds in which at least ``count`` devices worked at the same time."""
        spans = [self.spans(device) for device in self.devices]
        return intervals.total(intervals.at_least(count, spans))

    def overlap(self, device: Optional[str] = None) -> Overlap:
        """Communication and its overlap with compute: on ``device``, or (None) with each of them on any device."""
        communication = self.spans(device, COMMUNICATION)
        hidden = intervals.intersect(communication, self.spans(device, (COMPUTE,)))
        return Overlap(intervals.total(communication), intervals.total(hidden))

    @property
    def critical(self) -> str:
        """The device that worked longest; the first of equals. Raises a TraceError if no device worked."""
        if not self.devices:
            raise TraceError(
                "no device worked in this timeline, so none is critical: record some work"
            )
        return max(self.devices, key=self.busy)

    def between(self, start: float, stop: float) -> Timeline:
        """The part from ``start`` to ``stop``. Its times count from ``start``, and events are cut at both ends. Raises
        a ValueError unless 0 <= start < stop <= length."""
        if not 0 <= start < stop <= self.length:
            raise ValueError(
                f"a part lies between 0 and {self.length} s, and has a length, not {start} to {stop} s"
            )
        first = to_microseconds(start)
        last = to_microseconds(stop)
        cut = []
        for event in self.events:
            begin = max(to_microseconds(event.start), first)
            end = min(to_microseconds(event.end), last)
            if begin < end or (begin == end and first < begin < last):
                cut.append((event.device, event.name, event.kind, begin - first, end - first))
        # It sorts them: events that began before the part now share its start.
        return build(last - first, cut)

    def to_json(self) -> Dict[str, Any]:
        """A compact dict for ``json.dump``, about 12 bytes an event. :meth:`from_json` gives an equal timeline."""
        labels: Dict[Tuple[str, str], int] = {}
        lanes = []
        for name, events in self.lanes.items():
            numbers = [labels.setdefault((event.name, event.kind), len(labels)) for event in events]
            starts = [to_microseconds(event.start) for event in events]
            steps = [after - before for before, after in zip([0, *starts], starts)]
            lengths = [to_microseconds(event.end) - start for event, start in zip(events, starts)]
            lanes.append({"lane": name, "labels": numbers, "steps": steps, "lengths": lengths})
        return {
            "format": FORMAT,
            "microseconds": to_microseconds(self.length),
            "labels": [list(label) for label in labels],
            "lanes": lanes,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Timeline:
        """The timeline of a dict that :meth:`to_json` made. Raises a TraceError if it is no such dict."""
        if not isinstance(data, Mapping) or data.get("format") != FORMAT:
            raise TraceError(
                f"this is not a timeline that mxdp has written (format {FORMAT!r}): record it again"
            )
        try:
            return build(data["microseconds"], _events(data))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise TraceError(
                f"this timeline is damaged ({type(error).__name__}: {error}): take the original, or record it again"
            ) from error


def build(length: int, events: Sequence[Row]) -> Timeline:
    """A timeline of ``length`` microseconds from events (device, name, kind, start, end), also in microseconds. Events
    are cut at both ends, and events outside are left out."""
    inside = []
    for device, name, kind, start, end in events:
        if start <= length and end >= 0:
            inside.append((max(start, 0), min(end, length), device, name, kind))
    made = []
    for start, end, device, name, kind in sorted(inside):
        made.append(Event(device, name, kind, to_seconds(start), to_seconds(end)))
    return Timeline(to_seconds(length), tuple(made))


def _events(data: Mapping[str, Any]) -> List[Row]:
    events = []
    for lane in data["lanes"]:
        device = str(lane["lane"])
        time = 0
        columns = (lane["labels"], lane["steps"], lane["lengths"])
        if len({len(column) for column in columns}) != 1:
            raise ValueError("columns of different length")
        for number, step, length in zip(*columns):
            name, kind = data["labels"][number]
            time += step
            if length < 0 or kind not in (*DEVICE_KINDS, *PYTHON_KINDS):
                raise ValueError(f"an event of {length} microseconds, and of the kind {kind!r}")
            events.append((device, str(name), str(kind), int(time), int(time + length)))
    return events


def _is_python(lane: str) -> bool:
    return lane in (PYTHON, OTHER_THREADS)


def _lane_order(lane: str) -> Tuple[bool, str, int, str]:
    """Devices by kind and number, then Python."""
    kind, _, digits = lane.rstrip(")").partition("(")
    number = int(digits) if digits.isdecimal() else 0
    return _is_python(lane), kind, number, lane
