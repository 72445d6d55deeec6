"""The test accuracy of trainings of which each process has a seed of its own."""

from __future__ import annotations

import statistics
from typing import List

from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style


def keep(row: Row, base: Row) -> None:
    """The accuracy after the last round of each process, and how far that is above ``base``'s."""
    own, others = (dict(zip(each.rounds["repeat"], each.rounds["test_accuracy"])) for each in (row, base))
    row.metrics["test_accuracy"] = statistics.median(own.values())
    if row is not base:
        gains = {repeat: own[repeat] - others[repeat] for repeat in own if repeat in others}
        row.keep("accuracy_gain", [gains.get(repeat) for repeat in row.rounds["repeat"]])


def draw(axes: style.Axes, rows: List[Row]) -> None:
    """Test accuracy by epoch, a curve for each number of devices: the median over the seeds, whose rounds follow each
    other. Equal curves lie on each other, so the later ones are dashed."""
    for number, row in enumerate(rows):
        values = row.rounds["test_accuracy"]
        rounds = row.rounds["repeat"].count(0) if "repeat" in row.rounds else len(values)
        each = row.metrics["round_samples"] / row.case["epoch_samples"]
        axes.plot(
            [each * (step + 1) for step in range(rounds)],
            [statistics.median(values[step::rounds]) for step in range(rounds)],
            "--" if number else "-", marker=style.MARKERS[number], markersize=9 - 2 * number,
            color=style.COLOURS[number], label=row.label,
        )  # fmt: skip
    axes.set(xlabel="epochs", ylabel="test accuracy", title="Accuracy")
    axes.legend()
