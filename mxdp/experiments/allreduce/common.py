"""What the questions of this room share: MXNet's stores, the fastest of ours beside them, and how each one looks."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Any, Dict, List, Mapping, Sequence

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


def keep_fastest(ours: Sequence[Row], *names: str) -> None:
    """Choose the fastest of ``ours``. Its time over that of MXNet's device store is kept as ``best_of_device_store``
    and under ``names``, in the rounds that did not choose it."""
    best, reported = fastest(ours)
    for name in ("best_of_device_store", *names):
        best.keep(name, best.rounds.get("of_device_store", ()), reported)


def merge(does: Mapping[Row, Sequence[Any]]) -> Dict[Any, Row]:
    """A row for each thing that is done, by ``does[row]`` in each round. Rows that do the same are measurements of one
    thing, of which the median counts."""
    found = {}
    for thing in dict.fromkeys(thing for own in does.values() for thing in own):
        rows = [row for row, own in does.items() if thing in own]
        times = zip(*(zip(row.samples, does[row]) for row in rows))
        samples = [statistics.median(seconds for seconds, done in now if done == thing) for now in times]
        found[thing] = replace(rows[0], samples=samples)
    return found


def keep_over_fastest(name: str, auto: Row, seconds: Sequence[float], ours: Sequence[Row]) -> None:
    """Keep ``seconds``, one a round, over those of the fastest of ``ours``, as ``name`` of ``auto``. The odd rounds
    choose the fastest for the even ones, and the even ones for the odd."""
    (best, reported), (other, _) = (fastest(ours, by) for by in (0, 1))
    least = [one if own else another for one, another, own in zip(best.samples, other.samples, reported)]
    auto.keep(name, [own / fast for own, fast in zip(seconds, least)])


def keep_worst(name: str, over: str, rows: Sequence[Row]) -> None:
    """Keep ``over`` as ``name`` where it is worst: each half of the rounds reports the row that the other chose."""
    judged: Dict[Row, List[int]] = {}
    for by in (0, 1) if rows else ():
        chosen = [[value for value, half in zip(row.rounds[over], row.halves()) if half == by] for row in rows]
        medians = [statistics.median(own or row.rounds[over]) for own, row in zip(chosen, rows)]
        judged.setdefault(rows[medians.index(max(medians))], []).append(1 - by)
    for row, reported in judged.items():
        row.keep(name, row.rounds[over], [half in reported for half in row.halves()])


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
