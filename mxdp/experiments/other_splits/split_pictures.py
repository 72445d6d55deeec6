"""Several quantities of the same rows side by side, as bars. Nothing here imports matplotlib before it draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Sequence, Tuple

from mxdp.experiments.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BAR = 0.34
"""Inches that a bar takes, with what is between it and the next."""
ROOM = 1.75
"""How far an axis goes, over its longest bar, so that the number behind the bar has room."""


@dataclass(frozen=True)
class Panel:
    """One quantity of all rows: ``values`` (None: unknown), where they lay at least and at most, and what they were
    predicted to be."""

    heading: str
    values: Sequence[Optional[float]]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    predicted: Sequence[float] = ()


@dataclass(frozen=True)
class Block:
    """Panels side by side, with a title above and the rows' ``labels`` and ``colours``."""

    title: str
    labels: Sequence[str]
    colours: Sequence[str]
    panels: Sequence[Panel]


def side_by_side(figure: Figure, blocks: Sequence[Block]) -> None:
    """The blocks one above the other. Whiskers go from least to most; a triangle under a bar is the prediction."""
    heights = [BAR * len(block.labels) + 1.0 for block in blocks]
    figure.set_size_inches(style.WIDTH, sum(heights) + 0.35)
    for block, part in zip(blocks, figure.subfigures(len(blocks), 1, height_ratios=heights, squeeze=False)[:, 0]):
        part.suptitle(block.title, x=0.01, ha="left", weight="bold", size=13)
        for number, (axes, panel) in enumerate(zip(part.subplots(1, len(block.panels)), block.panels)):
            _draw(axes, panel, block.colours)
            axes.set_yticks(range(len(block.labels)), block.labels if not number else [])
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center")


def _draw(axes: Axes, panel: Panel, colours: Sequence[str]) -> None:
    for y, (value, colour) in enumerate(zip(panel.values, colours)):
        axes.barh(y, value or 0.0, height=0.5, color=colour)
        end = value or 0.0
        if panel.high:
            axes.plot([panel.low[y], panel.high[y]], [y, y], color=style.INK, linewidth=1.2, marker="|", markersize=7)
            end = max(end, panel.high[y])
        text = "?" if value is None else style.number(value)
        axes.annotate(text, (end, y), (5, 0), textcoords="offset points", va="center", size=10.5, weight="bold")
    if panel.predicted:
        below = [y + 0.38 for y in range(len(panel.values))]
        axes.plot(panel.predicted, below, "^", color=style.INK, markersize=5, label="predicted", clip_on=False)
    axes.set_title(panel.heading, weight="normal", size=11.5)
    axes.set(xlim=(0, ROOM * _longest(panel)), ylim=(len(panel.values) - 0.4, -0.6), xticks=[])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False)
    axes.spines["bottom"].set_visible(False)


def _longest(panel: Panel) -> float:
    known: Tuple[float, ...] = (*panel.high, *(value for value in panel.values if value is not None))
    return max([*known, *(each / ROOM for each in panel.predicted)], default=0.0) or 1.0
