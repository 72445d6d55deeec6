"""The test accuracy of a training, by epoch."""

from __future__ import annotations

from typing import List

from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style


def draw_accuracy(axes: style.Axes, rows: List[Row]) -> None:
    """A curve for each number of devices. Equal curves lie on each other, so the later ones are dashed."""
    for number, row in enumerate(rows):
        values, each = row.rounds["test_accuracy"], row.metrics["round_samples"] / row.case["epoch_samples"]
        axes.plot(
            [each * (step + 1) for step in range(len(values))], values,
            "--" if number else "-", marker=style.MARKERS[number], markersize=9 - 2 * number,
            color=style.COLOURS[number], label=row.label,
        )  # fmt: skip
    axes.set(xlabel="epochs", ylabel="test accuracy", title="Accuracy")
    axes.legend()
