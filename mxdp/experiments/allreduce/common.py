"""What the questions of this room share: MXNet's stores, the fastest of ours beside them, and how each one looks."""

from __future__ import annotations

import statistics
from typing import List, Sequence, Tuple

from mxdp.experiments.harness.rows import Row, fastest
from mxdp.experiments.report import style
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO

STORES = {"mxnet-local": "local", "mxnet-device": "device"}
"""MXNet's own stores for one machine: name in the table to name in MXNet."""
LOOKS = {
    **{name: look for name, *look in zip([*sorted(ALGORITHMS), AUTO], style.COLOURS, style.MARKERS)},
    "mxnet-local": (style.LIGHT_GREY, "d"),
    "mxnet-device": (style.GREY, "d"),
    "server": (style.GREY, "d"),
    "one by one": ("#D5D9DF", "d"),
}
"""Each algorithm's colour and marker in the pictures."""


def keep_fastest(ours: Sequence[Row], *names: str) -> Tuple[Row, List[bool]]:
    """Choose the fastest of ``ours``. Its time over that of MXNet's device store is kept as ``best_of_device_store``
    and under ``names``, in the rounds that did not choose it.

    Returns:
        That row, and which rounds these are.
    """
    best, reported = fastest(ours)
    for name in ("best_of_device_store", *names):
        best.keep(name, best.rounds.get("of_device_store", ()), reported)
    return best, reported


def keep_over_fastest(auto: Row, best: Row, reported: Sequence[bool]) -> float:
    """Keep the time of ``auto`` over that of the fastest, as ``over_fastest``, in the rounds that did not choose it.

    Returns:
        The median of the same over the other rounds, to choose the row that is judged.
    """
    ratios = auto.ratios(best)
    auto.keep("over_fastest", ratios, reported)
    return statistics.median([each for each, own in zip(ratios, reported) if not own] or ratios)


def keep_worst(name: str, found: Sequence[Tuple[float, Row]]) -> None:
    """Of rows with what :func:`keep_over_fastest` returned, the worst is judged: it gets its ``over_fastest`` as
    ``name``. It was chosen in the rounds that are not reported."""
    if found:
        _, worst = max(found, key=lambda pair: pair[0])
        worst.keep(name, worst.rounds["over_fastest"])


def draw_times(axes: style.Axes, rows: List[Row], labels: Sequence[str], **predictions: str) -> None:
    """A bar in ms for each row, and below it a mark for each of its predictions, ``metric="name in the picture"``."""
    colours = [LOOKS[row.case["algorithm"]][0] for row in rows]
    style.row_bars(axes.figure, rows, "ms", colours, [1e3] * len(rows), axes, labels)
    right, below, said = axes.get_xlim()[1], style.THICK / 2 + 0.09, [axes.get_xlabel()]
    for (metric, name), (sign, marker, colour) in zip(
        predictions.items(), (("▲", "^", style.INK), ("◇", "D", "white"))
    ):
        known = {y + below: row.metrics[metric] for y, row in enumerate(rows) if row.metrics.get(metric) is not None}
        look = dict(color=colour, markeredgecolor=style.INK, markersize=7, clip_on=False, linestyle="none")
        axes.plot(list(known.values()), list(known), marker=marker, **look)
        right, said = max([right, *(1.05 * value for value in known.values())]), [*said, f"{sign} {name}"]
    axes.set(xlim=(0, right), ylim=(len(rows) - 0.5, axes.get_ylim()[1]), xlabel="; ".join(said))
