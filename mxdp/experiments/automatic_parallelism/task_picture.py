"""A picture of a graph of tasks: each device is a column, time runs down, and each box says when its task ran."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from mxdp.experiments.automatic_parallelism.task_graph import GraphTask, from_ends
from mxdp.experiments.lab import Row
from mxdp.experiments.show import style
from mxdp.plans.cost.simulate import Span

BOX_WIDTH, BOX_HEIGHT = 0.78, 0.62
"""A column is 1 wide and a row 1 high."""
ROW_INCHES = 0.5
TRAFFIC = "#D55E00"
FILLS = ("#E5E7EB", "#CFE5F5", "#FBE3B5", "#CDEBDD", "#F3DCEA", "#E4C9D6", "#E6E6C4", "#D3CCEB", "#F7D3BF")


def rows_of(tasks: Sequence[GraphTask], spans: Mapping[str, Span]) -> Dict[str, int]:
    """Each task's row: below all that it needs, and below the task that ran before it on its lane.

    >>> tasks = [GraphTask("a", 0), GraphTask("b", 1, ("a",)), GraphTask("c", 0)]
    >>> rows_of(tasks, {"a": (0, 1), "b": (1, 2), "c": (1, 3)})
    {'a': 0, 'b': 1, 'c': 1}
    """
    rows: Dict[str, int] = {}
    last: Dict[int, int] = {}
    for task in sorted(tasks, key=lambda each: (spans[each.name][1], spans[each.name][0])):
        above = [rows[need] for need in task.needs if need in rows]
        rows[task.name] = 1 + max([*above, last.get(task.lane, -1)], default=-1)
        last[task.lane] = rows[task.name]
    return rows


def draw_graph(
    axes: style.Axes,
    tasks: Sequence[GraphTask],
    spans: Mapping[str, Span],
    lanes: Sequence[str],
    label: Callable[[str], str] = str,
    columns: Sequence[int] = (),
) -> None:
    """Draw ``tasks``. Needs that are not among them are left out.

    ``spans`` are in seconds; the picture shows ms since the first of these tasks began. ``columns``: the lanes from
    left to right, if not in their own order.
    """
    from matplotlib.patches import FancyBboxPatch

    columns = columns or range(len(lanes))
    rows = rows_of(tasks, spans)
    begin = min(spans[task.name][0] for task in tasks)
    where = {task.name: (float(columns.index(task.lane)), float(rows[task.name])) for task in tasks}
    for task in tasks:
        for need in task.needs:
            if need in where:
                _draw_arrow(axes, where[need], where[task.name])
    for task in tasks:
        x, y = where[task.name]
        corner = (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2)
        box = FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, "round,pad=0,rounding_size=0.08")
        box.set(facecolor=FILLS[task.lane % len(FILLS)], edgecolor=style.GREY, zorder=3)
        axes.add_patch(box)
        start, end = ((moment - begin) * 1e3 for moment in spans[task.name])
        axes.text(x, y - 0.13, label(task.name), ha="center", va="center", fontsize=9.5, weight="bold")
        axes.text(x, y + 0.16, f"{start:.1f} – {end:.1f} ms", ha="center", va="center", fontsize=8.8)
    deepest = max(rows.values())
    axes.set_xlim(-0.5, len(lanes) - 0.5)
    axes.set_ylim(deepest + 0.5, -0.9)
    for column, lane in enumerate(columns):
        axes.text(column, -0.62, lanes[lane], ha="center", va="center", weight="bold")
    axes.set_axis_off()


def draw_with_times(
    figure: style.Figure, rows: Sequence[Row], scale: float, what: str, row: Row, ends: Sequence[GraphTask], **more: Any
) -> None:
    """The :func:`draw_graph` (``more``) as ``row`` ran it, which pushed the tasks ``ends`` in this order; and below it
    the times of ``what`` of all rows, in seconds times ``scale``."""
    upper, lower = figure.subplots(2, 1)
    draw_graph(upper, spans=from_ends(ends, row.tasks), **more)
    upper.set_title(f"{what.capitalize()}: {row.label}")
    style.row_bars(figure, rows, "ms", scale=scale, axes=lower)
    lower.set_title(f"Time of {what}")
    heights = [ROW_INCHES * abs(upper.get_ylim()[0] - upper.get_ylim()[1]) + 0.3, style.BAR_HEIGHT * len(rows) + 1.2]
    upper.get_gridspec().set_height_ratios(heights)
    figure.set_size_inches(style.WIDTH * (1.3 if len(more["lanes"]) > 2 else 1), sum(heights))


def _draw_arrow(axes: style.Axes, start: Tuple[float, float], end: Tuple[float, float]) -> None:
    """Straight down to the next row of the lane, in a curve past other rows, and from side to side between lanes."""
    (x0, y0), (x1, y1) = start, end
    if x0 != x1:
        side = BOX_WIDTH / 2 if x1 > x0 else -BOX_WIDTH / 2
        tail, head, bend, colour = (x0 + side, y0), (x1 - side, y1 - 0.08), 0.0, TRAFFIC
    elif y1 - y0 <= 1:
        tail, head, bend, colour = (x0, y0 + BOX_HEIGHT / 2), (x1, y1 - BOX_HEIGHT / 2), 0.0, style.GREY
    else:  # past the boxes between them
        tail, head, bend, colour = (x0 + BOX_WIDTH / 2, y0), (x1 + BOX_WIDTH / 2, y1), -0.25, style.LIGHT_GREY
    axes.annotate(
        "", head, tail, zorder=2,
        arrowprops=dict(
            arrowstyle="-|>", color=colour, linewidth=1.1, shrinkA=0, shrinkB=0,
            connectionstyle=f"arc3,rad={bend}", mutation_scale=9,
        ),
    )  # fmt: skip
