"""One look for all pictures, and the two or three things that most of them draw.

The sizes are chosen for a phone: a picture is 5.2 inches (about 375 points) wide, so on a screen of 360
pixels its text is still some 10 pixels high. The background is white; a dark page shows it as a white card.

Nothing here imports matplotlib before it draws, so a question may import this module at its top, also for the types
``style.Figure`` and ``style.Axes``.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, List, Sequence

from mxdp.experiments.lab.rows import RUNS, Number, Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure as Figure

# The first six are from Okabe and Ito, "Color Universal Design" (2008), without their yellow (too faint on white). The
# last three are from Paul Tol, "Colour Schemes" (2021), "muted". Both were made for any kind of colour vision.
COLOURS = (
    "#0072B2",
    "#E69F00",
    "#009E73",
    "#CC79A7",
    "#D55E00",
    "#56B4E9",
    "#882255",
    "#999933",
    "#332288",
)
GREY = "#6B7280"
LIGHT_GREY = "#A3A9B4"
MARKERS = "os^DvP*Xp"  # one for each colour
INK = "#1F2933"

SLIDE = (11.0, 4.25)  # inches of a slide's picture
SMALLEST = 9.5
"""Points. A slide of 1280 x 720 pixels shows a picture 1190 pixels wide, and 9.5 points 14 pixels high."""
BAR_HEIGHT = 0.62  # inches that a bar takes with the label above it
THICK = 0.4  # the part of them that the bar itself takes


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


def row_bars(
    axes: Axes,
    rows: Sequence[Row],
    name: str = "seconds",
    unit: str = "s",
    scale: float = 1.0,
    title: str = "",
    colour: str = "",
) -> None:
    """A lying bar for each row, the first at the top: the median of its number ``name`` times ``scale``, with ``unit``
    at its end. It has a dot for each value of an interval (or, if all rows have them, for each seed), and whiskers
    from the least to the largest. Labels stand above the bars, or on the left where there is less than
    :data:`BAR_HEIGHT` for one, as on a slide. The axis says what bar and dots are. Rows with one value of ``colour``
    have one colour; references are grey."""
    measured: List[Number] = [row.get(name) for row in rows]
    of = "processes"
    if any(len(set(one.runs)) >= RUNS for one in measured):
        of = "runs"
    differ = any(len(set(one.seeds)) > 1 for one in measured)
    if differ and all(one.seeds for one in measured):
        of = "seeds"
    values = []
    for one in measured:
        dots = one.seeds if of == "seeds" else one.units
        values.append([value * scale for value in dots])
    kinds = list(dict.fromkeys(row.get(colour) for row in rows if not row.reference))
    above = len(rows) * BAR_HEIGHT + 0.9 <= axes.get_figure().get_figheight() + 0.01
    for y, (row, dots) in enumerate(zip(rows, values)):
        middle = statistics.median(dots)
        least = min(dots)
        end = max(dots)
        filled = GREY
        if not row.reference:
            filled = COLOURS[kinds.index(row.get(colour)) % len(COLOURS)]
        axes.barh(y, middle, height=THICK if above else 0.7, color=filled)
        axes.plot([least, end], [y, y], "|-", color=INK, linewidth=1.2, markersize=9)
        how: Any = dict(color="white", markeredgecolor=INK, markersize=4.0, markeredgewidth=0.9)
        axes.plot(dots, [y] * len(dots), "o", **how)
        text: Any = dict(textcoords="offset points", zorder=4)
        if above:
            top = y - THICK / 2
            axes.annotate(row.label, (0, top), (3, 2), va="bottom", **text)
        said = f"{number(middle)} {unit}".rstrip()
        axes.annotate(said, (end, y), (7, 0), va="center", weight="bold", **text)
    axes.set_xlim(0, (max(map(max, values), default=0) or 1) * 1.32)
    axes.set_ylim(len(rows) - 0.65, -0.7)
    beside = [] if above else [row.label for row in rows]
    axes.set_yticks(range(len(beside)), beside)
    axes.grid(axis="y", visible=False)
    axes.spines["left"].set_color(INK)
    axes.set_xlabel(f"{unit} (bar: median, dots: {of})".lstrip())
    axes.set_title(title)


def plain_logarithmic(*axes: Axis) -> None:
    """Ticks at 1, 2, 5, 10, 20 ... with plain numbers, for axes in logarithmic scale."""
    from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

    for axis in axes:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))


def legend_below(axes: Axes) -> None:
    """A legend below the axes and their label, in two columns."""
    from matplotlib.transforms import ScaledTranslation

    below_label = axes.transAxes + ScaledTranslation(0, -0.5, axes.get_figure().dpi_scale_trans)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0), bbox_transform=below_label, ncols=2)
