"""The picture of ``strategies`` and ``combined``: time, bytes and memory of each way to split each network."""

from mxdp.experiments.other_splits.split import STRATEGIES
from mxdp.experiments.show import style

PANELS = (
    ("ms a step", "seconds", "predicted_seconds", 1e3),
    ("MB moved", "bytes_moved", "", 1e-6),
    ("MB a device", "peak_bytes", "predicted_peak_bytes", 1e-6),
)
"""Of the picture: a heading, a number, its prediction, and what both are multiplied by."""
ROOM = 1.75
"""The length of an axis over its longest bar: the number behind the bar needs room."""


def draw(figure, networks):
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
        panels[0].set_title(f"{title}, batch {rows[0].batch:,}\n{PANELS[0][0]}")
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center")


def _draw_panel(axes, rows, name, predicted, scale):
    """A bar a row. Times have whiskers from the shortest to the longest; a triangle under a bar is the prediction, and
    a line through it its interval."""
    limit, names = 0.0, list(STRATEGIES)
    for y, row in enumerate(rows):
        values = [value * scale for value in row.get(name).units] if row.get(name) else []
        value = row.get(name).median * scale if values else 0.0
        end = max(values) if name == "seconds" else value
        axes.barh(y, value, height=0.5, color=style.COLOURS[names.index(row.strategy)])
        if name == "seconds":
            axes.plot([min(values), end], [y, y], color=style.INK, linewidth=1.2, marker="|", markersize=7)
        text = style.number(value) if values else "?"
        axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", size=10.5, weight="bold")
        limit = max(limit, ROOM * end)
        if predicted:
            model, below = row.get(predicted), y + 0.38
            said = [end * scale for end in (model.median, model.low, model.high) if end is not None]
            label = "" if y else "predicted"
            axes.plot(said[0], below, "^", color=style.INK, markersize=5, label=label, clip_on=False)
            axes.plot(said[1:], [below] * len(said[1:]), color=style.INK, linewidth=1)
            limit = max(limit, *said)
    axes.set(xlim=(0, limit or ROOM), ylim=(len(rows) - 0.4, -0.6), xticks=[])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)
