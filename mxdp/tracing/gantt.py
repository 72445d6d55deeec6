"""A timeline as a picture: one lane a device, and one for Python.

The upper part of a device's lane shows compute, the lower part copies and the sums of all-reduces, so overlap is
visible. If a device runs several operators of one part at once, this part is cut into strips::

    one worker     dot     dot     dot              two workers    dot   dot   dot
                       copy    copy    copy                          dot   dot
                                                                   copy        copy
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, List, Optional, Sequence, Tuple

from mxdp.tracing.events import (
    ALL_REDUCE,
    CALL,
    COMMUNICATION,
    COMPUTE,
    COPY,
    ENGINE,
    INPUT,
    PYTHON,
    SECTION,
    STEP,
    UPLOAD,
    WAIT,
    WORK,
    Event,
    to_microseconds,
    tracks,
)
from mxdp.tracing.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito, "Color Universal Design" (2008), as in all pictures of this project.
LOOKS: Dict[str, Tuple[str, str]] = {
    COMPUTE: ("compute", "#0072B2"),
    COPY: ("copy", "#E69F00"),
    ALL_REDUCE: ("all-reduce (sums)", "#D55E00"),
    UPLOAD: ("upload", "#009E73"),
    ENGINE: ("MXNet's engine", "#6B7280"),
    CALL: ("Python calls MXNet", "#56B4E9"),
    WAIT: ("Python waits", "#D1D5DB"),
    SECTION: ("section", "#CC79A7"),
    INPUT: ("input", "#009E73"),
}
"""Words and colour of each kind, in the order of the legend. In a strip, later kinds cover earlier ones."""
INK = "#1F2933"
BULK = "bulk"
PLAIN = {"ImperativeBulk": BULK, "[ImperativeBulk]": BULK}
"""MXNet's names that say little, and what is written instead."""

# The place of each kind in its lane: bottom and height, in a lane of height 1.
UPPER = (0.36, 0.56)
LOWER = (0.08, 0.28)
Strip = Tuple[float, float]
PLACES = dict.fromkeys(LOOKS, UPPER)
PLACES.update(dict.fromkeys((COPY, ALL_REDUCE, UPLOAD, SECTION, INPUT), LOWER))

STRIP_GAP = 0.02
"""Gap between two strips, as a share of the lane's height."""
LANE_INCHES = 0.62
AROUND_INCHES = 0.95
LEGEND_INCHES = 0.24
LEGEND_COLUMN = 1.9
"""Width of one entry of the legend, in inches."""
PIXELS = 1000
"""The width of the picture in pixels. Bars closer than one pixel are joined, and a bar is at least one wide."""
WIDE = 6
"""Pixels from which a bar is drawn alone, with a thin gap after it."""
SEEN = 8
"""Pixels of a copy or a sum of an all-reduce at least, if there is room: often it takes a thousandth of a step."""
LABEL_POINTS = 8.0
"""Size of the names in bars."""
LANE_POINTS = 9.5
"""Size of the lanes' names; on a wide figure, such as a slide, of all names."""
WIDE_INCHES = 8.0
LETTER = 0.56
"""Width of a letter over its height, to estimate the length of a label."""

Bar = Tuple[float, float]


def draw(
    figure: Figure,
    timeline: Timeline,
    title: str = "",
    start: float = 0.0,
    stop: Optional[float] = None,
) -> None:
    """Draw ``timeline`` from ``start`` to ``stop`` seconds (None: to its end) on ``figure``. It keeps its width (made
    for 1000 pixels, readable from 500 on) and gets the height that the lanes need. Raises a ValueError if the timeline
    has no such part, a TraceError if no device worked."""
    shown = timeline.between(start, timeline.length if stop is None else stop)
    length = shown.length
    lanes = _lanes(timeline)
    axes = figure.add_subplot()
    short = length < 10
    scale = 1e3 if short else 1.0
    points = LABEL_POINTS if figure.get_figwidth() < WIDE_INCHES else LANE_POINTS
    drawn: List[str] = []
    widened = False
    for row, lane in enumerate(lanes):
        for (bottom, height), events in _strips(shown.lanes.get(lane, ())):
            bars_of = _bars(events, length / PIXELS)
            drawn += bars_of
            above = row + 1 - bottom
            for kind in sorted(bars_of, key=list(LOOKS).index):
                bars = bars_of[kind]
                if kind in COMMUNICATION:
                    bars = _seen(bars, length)
                    widened = widened or bars != bars_of[kind]
                spans = [((start + at) * scale, wide * scale) for at, wide in bars]
                colour = LOOKS[kind][1]
                axes.broken_barh(spans, (above - height, height), facecolors=colour, linewidth=0)
            if height * LANE_INCHES * 72 > points:
                _label(axes, events, length, above - height / 2, scale, start, points)
    ends = (start * scale, (start + length) * scale)
    axes.set(xlim=ends, ylim=(len(lanes), 0), title=title)
    middles = [row + 0.5 for row in range(len(lanes))]
    texts = [_lane_text(shown, lane) for lane in lanes]
    axes.set_yticks(middles, texts, fontsize=LANE_POINTS)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    notes = []
    if any(text.get_text() == BULK for text in axes.texts):
        notes.append("bulk: several operators run as one")
    if widened:
        notes.append("short copies and sums are drawn wider")
    axes.set_xlabel("\n".join(["ms" if short else "s", *notes]), fontsize=LANE_POINTS)
    rows_below = len(notes) + _legend(figure, [kind for kind in LOOKS if kind in drawn])
    figure.set_figheight(AROUND_INCHES + LANE_INCHES * len(lanes) + LEGEND_INCHES * rows_below)


def boxes(timeline: Timeline) -> Dict[str, Any]:
    """The same picture as data, for a page in which it can be enlarged. It has its length in microseconds; lanes with
    their texts and boxes; names, and the kinds with their words and colours. Raises a TraceError if no device worked.

    A box is [kind, name, bottom, height, start, length]: numbers of kind and name, its place in a lane of height 1, and
    microseconds. The start is counted from that of the box before it.
    """
    kinds: Dict[str, int] = {}
    names: Dict[str, int] = {}
    lanes = []
    for lane in _lanes(timeline):
        strips = _strips(timeline.lanes.get(lane, ()))
        placed = [(event, place) for place, events in strips for event in events]
        placed.sort(key=lambda pair: pair[0].start)
        lane_boxes = []
        before = 0
        for event, (bottom, height) in placed:
            start = to_microseconds(event.start)
            length = to_microseconds(event.end) - start
            words = f"{PLAIN.get(event.name) or _passed(event.name)} {event.name}".lstrip()
            kind = kinds.setdefault(_look(event), len(kinds))
            name = names.setdefault(words, len(names))
            place = [round(bottom, 3), round(height, 3)]
            lane_boxes.append([kind, name, *place, start - before, length])
            before = start
        lanes.append({"text": _lane_text(timeline, lane), "boxes": lane_boxes})
    return {
        "length": to_microseconds(timeline.length),
        "lanes": lanes,
        "names": list(names),
        "kinds": [list(LOOKS[kind]) for kind in kinds],
    }


def _lanes(timeline: Timeline) -> List[str]:
    lanes = [*timeline.devices] if timeline.critical else []  # raises a TraceError if none worked
    if PYTHON in timeline.lanes:
        lanes.append(PYTHON)
    return lanes


def shorten(name: str, letters: int) -> str:
    """``name`` in at most ``letters`` letters, without MXNet's prefixes; "" if fewer than four letters would remain.

    >>> shorten("_npi_multiply_scalar", 12), shorten("Convolution", 4), shorten("ImperativeBulk", 4)
    ('multiply_sc…', '', 'bulk')
    """
    name = PLAIN.get(name) or _passed(name) or name
    for prefix in ("_npi_", "_npx_", "_np_", "MXNDArray", "MX"):
        if name.startswith(prefix):
            name = name[len(prefix) :]
    name = name.lstrip("_")
    if len(name) <= letters:
        return name
    return f"{name[: letters - 1]}…" if letters >= 5 else ""


def _passed(name: str) -> str:
    """A network's pass that MXNet ran as one operator; "" for any other. Its name is a list of operators, cut off."""
    if not name.startswith("[") or name in PLAIN:
        return ""
    return "backward" if "_backward_" in name else "forward"


def _look(event: Event) -> str:
    """The kind as which an event is drawn: input differs from other sections; "" is not drawn."""
    if event.kind == SECTION:
        return {INPUT: INPUT, STEP: ""}.get(event.name, SECTION)
    return event.kind


def _strips(events: Sequence[Event]) -> List[Tuple[Strip, List[Event]]]:
    """Each strip of a lane with its events, in the order of drawing: MXNet's engine is behind the work. What Python
    does is cut into no strips: it does one thing at a time, and its sections are nested."""
    strips = []
    for whole in (UPPER, LOWER):
        here = [event for event in events if PLACES.get(_look(event)) == whole]
        strips.append((whole, [event for event in here if event.kind not in WORK]))
        work = [event for event in here if event.kind in WORK]
        placed = list(tracks(work))
        count = 1 + max((track for track, _ in placed), default=0)
        bottom, height = whole
        step = (height + STRIP_GAP) / count
        for number in range(count):
            place = (bottom + (count - 1 - number) * step, step - STRIP_GAP)
            strips.append((place, [event for track, event in placed if track == number]))
    return strips


def _bars(events: Sequence[Event], least: float) -> Dict[str, List[Bar]]:
    """For each kind, (start, length) of its bars. Close events are joined, so there are few enough to draw."""
    bars_of: Dict[str, List[Bar]] = {}
    for event in events:
        bars = bars_of.setdefault(_look(event), [])
        if bars:
            at, length = bars[-1]
            narrow = min(length, event.seconds) < WIDE * least
            if narrow and event.start - (at + length) < least:
                bars[-1] = (at, max(at + length, event.end) - at)
                continue
        bars.append((event.start, event.seconds))
    # The engine runs often and briefly: with bars of at least one pixel it would look like a large part of the time.
    bars_of[ENGINE] = [bar for bar in bars_of.get(ENGINE, []) if bar[1] >= 3 * least]
    drawn = {}
    for kind, bars in bars_of.items():
        if bars:
            drawn[kind] = [(at, _width(length, least)) for at, length in bars]
    return drawn


def _width(length: float, least: float) -> float:
    """A wide bar ends with a gap of a pixel, ``least``; a narrow one is a pixel wide at least."""
    return length - least if length >= WIDE * least else max(length, least)


def _seen(bars: Sequence[Bar], length: float) -> List[Bar]:
    """The bars, each at least :data:`SEEN` pixels wide, or as wide as the next one leaves room."""
    least = SEEN * length / PIXELS
    pixel = length / PIXELS
    ends = [*(at - pixel for at, _ in bars[1:]), length]
    seen = []
    for (at, wide), end in zip(bars, ends):
        seen.append((at, max(wide, min(least, end - at))))
    return seen


def _label(
    axes: Axes,
    events: Sequence[Event],
    length: float,
    middle: float,
    scale: float,
    start: float,
    points: float,
) -> None:
    """Write names into the bars that are wide enough."""
    letters_wide = axes.get_figure().get_figwidth() * 0.85 * 72 / (points * LETTER)
    for event in events:
        look = _look(event)
        text = shorten(event.name, int(event.seconds / length * letters_wide))
        if text and look not in (CALL, ENGINE):
            centre = (start + (event.start + event.end) / 2) * scale
            colour = INK if look in (WAIT, COPY) else "white"
            axes.text(
                centre,
                middle,
                text,
                color=colour,
                fontsize=points,
                ha="center",
                va="center",
                clip_on=True,
            )


def _lane_text(shown: Timeline, lane: str) -> str:
    if lane == PYTHON:
        return "Python"
    busy = shown.busy(lane) if lane in shown.lanes else 0
    return f"{lane}\n{busy:.0%} busy"


def _legend(figure: Figure, kinds: Sequence[str]) -> int:
    """Draw the legend below the picture and return its number of rows."""
    from matplotlib.patches import Patch

    columns = max(1, min(len(kinds), int(figure.get_figwidth() / LEGEND_COLUMN)))
    looks = [LOOKS[kind] for kind in kinds]
    figure.legend(
        handles=[Patch(color=colour, label=words) for words, colour in looks],
        loc="outside lower center" if figure.get_layout_engine() else "lower center",
        ncol=columns,
        frameon=False,
        fontsize=9.5,
    )
    return -(-len(kinds) // columns)
