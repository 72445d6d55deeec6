"""A picture of a graph of tasks: each device is a column, time runs down, and each box says when its task ran."""

from __future__ import annotations

from typing import Callable, Dict, Mapping, Sequence, Tuple

from mxdp.experiments.automatic_parallelism.task_graph import Task, from_ends
from mxdp.experiments.lab import Row
from mxdp.experiments.show import style
from mxdp.plans.cost.simulate import Span

BOX_WIDTH, BOX_HEIGHT = 0.78, 0.62
"""A column is 1 wide and a row 1 high."""
ROW_INCHES = 0.5
TRAFFIC = style.COLOURS[4]
FILLS = ("#E5E7EB", "#CFE5F5", "#FBE3B5", "#CDEBDD", "#F3DCEA", "#E4C9D6", "#E6E6C4", "#D3CCEB", "#F7D3BF")


def rows_of(tasks: Sequence[Task], spans: Mapping[str, Span]) -> Dict[str, int]:
    """Each task's row: below all that it needs, and below the task that ran before it on its lane.

    >>> tasks = [Task("a", 0), Task("b", 1, ("a",)), Task("c", 0)]
    >>> rows_of(tasks, {"a": (0, 1), "b": (1, 2), "c": (1, 3)})
    {'a': 0, 'b': 1, 'c': 1}
    """
    rows: Dict[str, int] = {}
    last: Dict[int, int] = {}
    for task in sorted(tasks, key=lambda task: spans[task.name][::-1]):
        above = [rows[need] for need in task.needs if need in rows]
        rows[task.name] = last[task.lane] = 1 + max([*above, last.get(task.lane, -1)])
    return rows


def draw(
    figure: style.Figure,
    rows: Sequence[Row],
    scale: float,
    what: str,
    row: Row,
    order: Sequence[Task],
    lanes: Mapping[int, str],
    tasks: Sequence[Task] = (),
    label: Callable[[str], str] = str,
) -> None:
    """``tasks`` (or all) as ``row`` ran them, which pushed ``order``, in ms since the first of them began; needs that
    are not among them are left out. Below it the times of ``what`` of all ``rows``, in seconds times ``scale``.
    ``lanes``: the devices' names, from left to right."""
    from matplotlib.patches import FancyBboxPatch

    upper, lower = figure.subplots(2, 1)
    tasks, spans = tasks or order, from_ends(order, row.tasks)
    depths, begin = rows_of(tasks, spans), min(spans[task.name][0] for task in tasks)
    where = {task.name: (float(list(lanes).index(task.lane)), float(depths[task.name])) for task in tasks}
    for task in tasks:
        for need in task.needs:
            if need in where:
                _draw_arrow(upper, where[need], where[task.name])
    for task in tasks:
        x, y = where[task.name]
        corner = (x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2)
        box = FancyBboxPatch(corner, BOX_WIDTH, BOX_HEIGHT, "round,pad=0,rounding_size=0.08")
        box.set(facecolor=FILLS[task.lane % len(FILLS)], edgecolor=style.GREY, zorder=3)
        upper.add_patch(box)
        start, end = ((moment - begin) * 1e3 for moment in spans[task.name])
        upper.text(x, y - 0.13, label(task.name), ha="center", va="center", fontsize=9.5, weight="bold")
        upper.text(x, y + 0.16, f"{start:.1f} – {end:.1f} ms", ha="center", va="center", fontsize=8.8)
    for column, name in enumerate(lanes.values()):
        upper.text(column, -0.62, name, ha="center", va="center", weight="bold")
    height = max(depths.values()) + 1.4
    upper.set(xlim=(-0.5, len(lanes) - 0.5), ylim=(height - 0.9, -0.9), title=f"{what.capitalize()}: {row.label}")
    upper.set_axis_off()
    style.row_bars(figure, rows, "ms", scale=scale, axes=lower)
    lower.set_title(f"Time of {what}")
    heights = [ROW_INCHES * height + 0.3, style.BAR_HEIGHT * len(rows) + 1.2]
    upper.get_gridspec().set_height_ratios(heights)
    figure.set_size_inches(style.WIDTH * (1.3 if len(lanes) > 2 else 1), sum(heights))


def _draw_arrow(axes: style.Axes, start: Tuple[float, float], end: Tuple[float, float]) -> None:
    """Straight down to the next row of the lane, in a curve past other rows, and from side to side between lanes."""
    (x0, y0), (x1, y1) = start, end
    bend, colour = 0.0, style.GREY
    if x0 != x1:
        side, colour = (BOX_WIDTH / 2 if x1 > x0 else -BOX_WIDTH / 2), TRAFFIC
        tail, head = (x0 + side, y0), (x1 - side, y1 - 0.08)
    elif y1 - y0 <= 1:
        tail, head = (x0, y0 + BOX_HEIGHT / 2), (x1, y1 - BOX_HEIGHT / 2)
    else:  # past the boxes between them
        tail, head = (x0 + BOX_WIDTH / 2, y0), (x1 + BOX_WIDTH / 2, y1)
        bend, colour = -0.25, style.LIGHT_GREY
    arrow = dict(arrowstyle="-|>", color=colour, linewidth=1.1, shrinkA=0, shrinkB=0, mutation_scale=9)
    axes.annotate("", head, tail, zorder=2, arrowprops={**arrow, "connectionstyle": f"arc3,rad={bend}"})
