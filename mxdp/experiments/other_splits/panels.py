"""The picture of ``strategies`` and ``combined``: time, bytes and memory of each way to split each network."""

from __future__ import annotations

from typing import List, Sequence, Tuple

from mxdp.experiments.harness.rows import Row
from mxdp.experiments.other_splits.split import COMBINED, SERIAL
from mxdp.experiments.report import style

STRATEGIES = (SERIAL, "data", "pipeline", "layerwise", "tile", *COMBINED)
"""In the order of their colours."""
PANELS = (
    ("ms a step", "seconds_per_step", "predicted_seconds", 1e3),
    ("MB moved", "bytes_moved", "", 1e-6),
    ("MB a device", "peak_bytes", "predicted_peak_bytes", 1e-6),
)
"""Of the picture: a heading, a metric, its prediction, and what both are multiplied by."""
ROOM = 1.75
"""The length of an axis over its longest bar: the number behind the bar needs room."""


def draw(figure: style.Figure, networks: Sequence[Tuple[str, List[Row]]]) -> None:
    """A block for each network, ``(title, rows)``, with a panel for each of :data:`PANELS` and a bar for each row. A
    row's bar is called what stands behind the last comma of its label."""
    blocks = [(title, rows) for title, rows in networks if rows]
    heights = [0.34 * len(rows) + 1.0 for _, rows in blocks]  # inches
    figure.set_size_inches(style.WIDTH, sum(heights) + 0.35)
    grid = figure.subplots(len(blocks), len(PANELS), squeeze=False, gridspec_kw={"height_ratios": heights})
    for (title, rows), panels in zip(blocks, grid):
        labels = [row.label.split(", ")[-1] for row in rows]
        labels = [label.replace(" x", "\nx") if label.count(" ") > 2 else label for label in labels]  # of two splits
        for axes, (heading, name, predicted, scale) in zip(panels, PANELS):
            _draw_panel(axes, rows, name, predicted, scale)
            axes.set_title(heading)
            axes.set_yticks(range(len(rows)), labels if axes is panels[0] else [])
        panels[0].set_title(f"{title}, batch {rows[0].case['batch']:,}\n{PANELS[0][0]}")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center")


def _draw_panel(axes: style.Axes, rows: List[Row], name: str, predicted: str, scale: float) -> None:
    """A bar a row. Times have whiskers from the shortest to the longest; a triangle under a bar is the prediction, and
    a line through it its interval."""
    limit = 0.0
    for y, row in enumerate(rows):
        known = row.metrics[name]
        value = end = (known or 0.0) * scale
        axes.barh(y, value, height=0.5, color=style.COLOURS[STRATEGIES.index(row.case["strategy"])])
        if name == "seconds_per_step":
            low, end = min(row.samples) * scale, max(row.samples) * scale
            axes.plot([low, end], [y, y], color=style.INK, linewidth=1.2, marker="|", markersize=7)
        text = "?" if known is None else style.number(value)
        axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", size=10.5, weight="bold")
        limit = max(limit, ROOM * end)
    if predicted:
        values, below = [row.metrics[predicted] * scale for row in rows], [y + 0.38 for y in range(len(rows))]
        axes.plot(values, below, "^", color=style.INK, markersize=5, label="predicted", clip_on=False)
        for height, row in zip(below, rows):
            ends = row.estimate(predicted)[1:] if predicted in row.rounds else ()
            spread = [end * scale for end in ends if end is not None]
            if spread:
                axes.plot(spread, [height] * 2, color=style.INK, linewidth=1)
                values += spread
        limit = max(limit, *values)
    axes.set(xlim=(0, limit or ROOM), ylim=(len(rows) - 0.4, -0.6), xticks=[])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
