"""What ``links`` draws: the matrix of bandwidths, and times by bytes."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING, List

from mxdp.experiments.harness.experiment import Row
from mxdp.experiments.report import style
from mxdp.plans.cost.link import fit_link

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def matrix(axes: Axes, rows: List[Row]) -> None:
    """From each device to each device, in GB/s: ``rows`` are of one pair each."""
    n = 1 + max(rank for row in rows for pair in row["case"]["pairs"] for rank in pair)
    speeds = [[math.nan] * n for _ in range(n)]
    for row in rows:
        ((source, target),) = row["case"]["pairs"]
        speeds[source][target] = row["metrics"]["bandwidth_gbs"]
    most = max(value for line in speeds for value in line if not math.isnan(value))
    axes.imshow(speeds, cmap="Blues", vmin=0, vmax=most, aspect="auto")
    for source, line in enumerate(speeds):
        for target, value in enumerate(line):
            text = "" if math.isnan(value) else style.number(value, 3 if n <= 6 else 2)
            axes.text(target, source, text, ha="center", va="center", color="white" if value > most / 2 else style.INK)
    axes.grid(visible=False)
    axes.set(xticks=range(n), yticks=range(n), xlabel="to device", ylabel="from device", title="GB/s, largest copy")


def times(axes: Axes, rows: List[Row], alone: List[Row]) -> None:
    """Time by bytes: every pair of ``alone`` as a thin line, their medians and the line fitted to these, and those of
    ``rows`` in which all copy at once."""
    by_bytes = [{int(nbytes): t for nbytes, t in row["metrics"]["seconds_by_bytes"].items()} for row in alone]
    for each in by_bytes:
        axes.plot(list(each), [t * 1e6 for t in each.values()], color=style.GREY, linewidth=0.6, alpha=0.6)
    medians = {nbytes: statistics.median(each[nbytes] for each in by_bytes) for nbytes in by_bytes[0]}
    link = fit_link(list(medians.items()))
    axes.plot(list(medians), [t * 1e6 for t in medians.values()], "o", label="one pair, median of all")
    for row in rows:
        if len(row["case"]["pairs"]) > 1:
            many = row["metrics"]["seconds_by_bytes"]
            axes.plot([int(nbytes) for nbytes in many], [t * 1e6 for t in many.values()], "^", label=row["label"])
    line = [min(medians) * (max(medians) / min(medians)) ** (k / 50) for k in range(51)]
    axes.plot(line, [link.seconds(nbytes) * 1e6 for nbytes in line], color=style.COLOURS[0], label="alpha + m beta")
    axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="µs")
    axes.legend()
