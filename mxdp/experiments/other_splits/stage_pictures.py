"""Staircases with measured times. Nothing here imports matplotlib before it draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Sequence

from mxdp.experiments.report import style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

THICK = 0.8
WIDE_ENOUGH = 0.05
"""The share of the width from which a box has room for its name."""


class Panel(NamedTuple):
    """A title, tasks (stage, name, start and end in seconds), and when all should be over."""

    title: str
    spans: Sequence[Any]
    expected: float


def staircase(figure: Figure, panels: Sequence[Panel]) -> None:
    """One panel above the other, with one time axis.

    Forward passes are blue, backward passes orange; where a device idles it is white. A dashed line stands where the
    last task is expected to end.
    """
    stages = 1 + max(span[0] for panel in panels for span in panel.spans)
    end = 1e3 * max([*(span[3] for panel in panels for span in panel.spans), *(each.expected for each in panels)])
    figure.set_size_inches(style.WIDTH, len(panels) * (0.65 + 0.4 * stages) + 0.75)
    for axes, panel in zip(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0], panels):
        for stage, name, start, stop in panel.spans:
            left, width = 1e3 * start, 1e3 * (stop - start)
            colour = style.COLOURS[0] if name.startswith("F") else style.COLOURS[1]
            axes.barh(stage, width, left=left, height=THICK, color=colour, edgecolor="white", linewidth=0.8)
            if width > WIDE_ENOUGH * end:
                light = "white" if name.startswith("F") else style.INK
                axes.annotate(name, (left + width / 2, stage), ha="center", va="center", color=light, fontsize=10)
        axes.axvline(1e3 * panel.expected, color=style.INK, linestyle="--", linewidth=1.5, label="predicted end")
        axes.set(title=panel.title, xlim=(0, 1.01 * end), ylim=(stages - 0.4, -0.6))
        axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
        axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms")
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower right")
