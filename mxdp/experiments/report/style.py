"""One look for all pictures, and the two or three things that most of them draw.

The sizes are chosen for a phone: a picture is :data:`WIDTH` inches (about 375 points) wide, so on a screen of 360
pixels its text is still some 10 pixels high. The background is white; a dark page shows it as a white card.

Nothing here imports matplotlib before it draws, so a question may import this module at its top, also for the types
``style.Figure`` and ``style.Axes``.
"""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure

# The first six are from Okabe and Ito, "Color Universal Design" (2008), without their yellow (too faint on white). The
# last three are from Paul Tol, "Colour Schemes" (2021), "muted". Both were made for any kind of colour vision.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#882255", "#999933", "#332288")
GREY = "#6B7280"
LIGHT_GREY = "#A3A9B4"
MARKERS = "os^DvP*Xp"
"""One for each of :data:`COLOURS`."""
INK = "#1F2933"

WIDTH, HEIGHT = 5.2, 3.2
BAR_HEIGHT = 0.62
"""Inches that a bar takes with the label above it."""
THICK = 0.4
"""The part of them that the bar itself takes."""

RC: Dict[str, Any] = {
    "figure.figsize": (WIDTH, HEIGHT),
    "figure.constrained_layout.use": True,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
    "font.family": "DejaVu Sans",  # comes with matplotlib, so a picture is the same everywhere
    "font.size": 12.5,
    "axes.titlesize": 13.0,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 12.5,
    "xtick.labelsize": 11.5,
    "ytick.labelsize": 11.5,
    "legend.fontsize": 11.5,
    "legend.frameon": False,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E5E7EB",
    "lines.linewidth": 2.0,
    "lines.markersize": 6.0,
    "svg.fonttype": "path",
}


def svg(draw: Callable[[Figure], None], salt: str) -> str:
    """What ``draw`` draws on an empty figure of this style, as SVG text. The same drawing gives the same text:
    identifiers come from ``salt``, and there is no date in it. Whatever ``draw`` raises goes through."""
    import matplotlib
    from cycler import cycler
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**RC, "axes.prop_cycle": cycler(color=COLOURS), "svg.hashsalt": salt}):
        figure = Figure()
        draw(figure)
        target = io.StringIO()
        figure.savefig(target, format="svg", metadata={"Date": None, "Creator": None})
    return target.getvalue()


def inline(svg: str, prefix: str, alt: str) -> str:
    """SVG text as an element for an HTML page that holds others: every id gets ``prefix``, the style sheet is kept to
    this picture, the size is left to the page, and ``alt`` is what a screen reader says."""
    root = ET.fromstring(svg)
    for parent in list(root.iter()):
        for child in [child for child in parent if child.tag.endswith("}metadata")]:
            parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.split("}")[-1]
        for key, value in list(element.attrib.items()):
            del element.attrib[key]
            if key == "id":
                value = prefix + value
            elif key.endswith("href") and value.startswith("#"):
                value = f"#{prefix}{value[1:]}"
            element.set(key.split("}")[-1], re.sub(r"url\(#", f"url(#{prefix}", value))
        if element.tag == "style":
            element.text = re.sub(r"(^|})\s*\*", rf"\1#{prefix}picture *", element.text or "")
    for key in ("width", "height", "version"):
        root.attrib.pop(key, None)
    root.attrib.update({"id": f"{prefix}picture", "role": "img", "aria-label": alt})
    return ET.tostring(root, encoding="unicode")


def gap(figure: Figure) -> Optional[float]:
    """Where a drawn figure that is taller than wide falls into an upper and a lower part, as a share of its height from
    the top: the gap nearest the middle. None if it is not that tall, or if the parts share an axis."""
    width, height = figure.get_size_inches()
    parts = [figure, *figure.subfigs]
    shared = any(len(axes.get_shared_x_axes().get_siblings(axes)) > 1 for axes in figure.axes)
    drawn = [*figure.axes, *(each for part in parts for each in (*part.texts, *part.legends))]
    boxes = sorted((each.get_tightbbox() for each in drawn), key=lambda box: -box.y1)
    lowest = [min(box.y0 for box in boxes[: number + 1]) for number in range(len(boxes))]
    gaps = [1 - (low + box.y1) / 2 / figure.bbox.height for low, box in zip(lowest, boxes[1:]) if box.y1 <= low]
    tall = height > 1.1 * width and not shared
    return min(gaps, key=lambda share: abs(share - 0.5)) if tall and gaps else None


def side_by_side(svg: str, share: float) -> str:
    """SVG text in which the part below ``share`` of the height stands beside the part above."""
    root = ET.fromstring(svg)
    _, _, width, height = map(float, root.attrib["viewBox"].split())
    top, bottom = share * height, (1 - share) * height
    root.set("viewBox", f"0 0 {2 * width} {max(top, bottom)}")
    (whole,) = (child for child in root if child.get("id") == "figure_1")
    root.remove(whole)
    for x, y, part in ((0.0, 0.0, top), (width, top, bottom)):
        box = f"0 {y} {width} {part}"
        inner = ET.SubElement(root, "svg", {"x": str(x), "width": str(width), "height": str(part), "viewBox": box})
        inner.append(ET.Element("use", {"href": "#figure_1"}) if y else whole)
    return ET.tostring(root, encoding="unicode")


def number(value: float, digits: int = 3) -> str:
    """``value`` for a reader: ``digits`` significant ones, thousands apart, an exponent only for the very small and
    large; an int is written out.

    >>> number(0.051234), number(17.8), number(12345.6), number(2.0), number(60000), number(3e-7)
    ('0.0512', '17.8', '12,346', '2.00', '60,000', '3e-07')
    """
    if isinstance(value, int):
        return f"{value:,}"
    if not 1e-4 <= abs(value) < 1e12:
        return f"{value:.{digits}g}"
    exponent = int(f"{value:.{digits - 1}e}".split("e")[1])
    return f"{value:,.{max(digits - 1 - exponent, 0)}f}"


def bars(
    axes: Axes,
    labels: Sequence[str],
    values: Sequence[float],
    low: Optional[Sequence[float]] = None,
    high: Optional[Sequence[float]] = None,
    unit: str = "",
    samples: Optional[Sequence[Sequence[float]]] = None,
    colours: Optional[Sequence[str]] = None,
    disturbed: Optional[Sequence[Sequence[bool]]] = None,
) -> None:
    """Lying bars, the first at the top: the label above each, the value with ``unit`` at its end.

    ``low`` and ``high`` give whiskers (minimum to maximum); ``samples`` are drawn as dots on the whisker, those that
    are ``disturbed`` as crosses. The figure gets the height that the bars need.

    Raises:
        ValueError: the sequences differ in length, or a value is outside its whisker.
    """
    count = len(labels)
    low, high = values if low is None else low, values if high is None else high
    dots: Sequence[Sequence[float]] = [()] * count if samples is None else samples
    colours = [COLOURS[i % len(COLOURS)] for i in range(count)] if colours is None else colours
    lengths = [len(part) for part in (labels, values, low, high, dots, colours)]
    if len(set(lengths)) > 1:
        raise ValueError(f"labels, values, low, high, samples and colours must be as many; got {lengths}")
    for label, least, value, most in zip(labels, low, values, high):
        if not least <= value <= most:
            raise ValueError(f"{label!r}: {value} is not between {least} and {most}")
    marks: Sequence[Sequence[bool]] = [()] * count if disturbed is None else disturbed
    ends = [max([most, *points]) for most, points in zip(high, dots)]
    longest = max(ends, default=0) or 1
    for y, label in enumerate(labels):
        axes.barh(y, values[y], height=THICK, color=colours[y])
        axes.plot([low[y], high[y]], [y, y], color=INK, linewidth=1.2, marker="|", markersize=9)
        parts: Dict[bool, List[float]] = {False: [], True: []}
        for dot, mark in zip(dots[y], chain(marks[y], repeat(False))):
            parts[mark].append(dot)
        for mark, shape, points in ((False, "o", 4.0), (True, "X", 6.5)):
            if parts[mark] or not mark:
                axes.plot(
                    parts[mark], [y] * len(parts[mark]), shape,
                    color="white", markeredgecolor=INK, markersize=points, markeredgewidth=0.9,
                )  # fmt: skip
        axes.annotate(label, (0, y - THICK / 2), (3, 2), textcoords="offset points", va="bottom", zorder=4)
        text = f"{number(values[y])} {unit}".rstrip()
        axes.annotate(text, (ends[y], y), (7, 0), textcoords="offset points", va="center", weight="bold", zorder=4)
    axes.set_xlim(0, longest * 1.32)
    axes.set_ylim(count - 0.65, -0.7)
    axes.set_yticks([])
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_color(INK)
    crosses = "crosses: disturbed rounds" if any(map(any, marks)) else ""
    axes.set_xlabel("; ".join(filter(None, (unit, crosses))))
    _make_room(axes, count)


def reference_line(axes: Axes, value: float, text: str, horizontal: bool = False) -> None:
    """A dashed line across ``axes`` at ``value`` (upright unless ``horizontal``), with ``text`` outside at its end, so
    that no curve runs through it. It is drawn inside the limits: call it after the data are drawn."""
    if horizontal:
        axes.axhline(value, color=GREY, linestyle="--", linewidth=1.5)
        axes.annotate(text, (1, value), (4, 0), axes.get_yaxis_transform(), "offset points", va="center")
        return
    left, right = axes.get_xlim()
    if value > right:
        axes.set_xlim(left, value * 1.05)
        left, right = axes.get_xlim()
    axes.axvline(value, color=GREY, linestyle="--", linewidth=1.5)
    where = axes.get_xaxis_transform()
    past_middle = where.transform((value, 0))[0] > (axes.bbox.x0 + axes.bbox.x1) / 2
    axes.annotate(text, (value, 1), (0, 2), where, "offset points", ha="right" if past_middle else "left", va="bottom")


def plain_logarithmic(*axes: Axis) -> None:
    """Ticks at 1, 2, 5, 10, 20 ... with plain numbers, for axes in logarithmic scale."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))


def _make_room(axes: Axes, count: int) -> None:
    """Make the figure as high as ``count`` bars need: exactly, or at least where there are other axes beside these."""
    spec = axes.get_subplotspec()
    rows = spec.get_gridspec().nrows if spec is not None else 1
    figure = axes.get_figure()
    needed = rows * (count * BAR_HEIGHT + 0.9)
    figure.set_figheight(needed if len(figure.axes) == 1 else max(needed, figure.get_figheight()))
