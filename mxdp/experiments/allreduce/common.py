"""What the questions of this room share: MXNet's stores, who sums the fastest, and how each one looks."""

from __future__ import annotations

import re
import statistics
from typing import Any, Dict, List, Mapping, Sequence

from mxdp.experiments.lab import Number, Row, Told
from mxdp.experiments.show import style
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


def tell_over_others(auto: Row, chosen: Sequence[Any], does: Mapping[Row, Sequence[Any]]) -> List[Number]:
    """The time of what ``auto`` has chosen in each process over that of everything else that was measured.

    ``does[row]`` is what a row did, process by process. Rows that did the same are measurements of one thing, of which
    the median counts: so a right choice is not judged by how much two measurements of it differ.
    """
    times: Dict[Any, List[Any]] = {}
    for thing in dict.fromkeys(thing for things in does.values() for thing in things if thing is not None):
        times[thing] = []
        for k in range(len(chosen)):
            same = [row.seconds.values[k] for row, things in does.items() if things[k] == thing]
            known = [seconds for seconds in same if seconds is not None]
            times[thing].append(statistics.median(known) if known else None)
    runs, taken = auto.seconds.runs, [times[thing][k] if thing in times else None for k, thing in enumerate(chosen)]
    over = []
    for thing, seconds in times.items():
        if set(chosen) - {thing, None}:
            other = next(row.label for row, things in does.items() if thing in things)
            label = f"{auto.label}, over {re.split(': |, ', other, maxsplit=1)[1]}"
            over.append(Number(taken, runs, label) / Number(seconds, runs))
    return over


def tell_choices(t: Told, sentence: str, over: Sequence[Number]) -> None:
    """Judge by :func:`tell_over_others` all choices of ``auto``, the worst first."""
    for number in [None, *sorted(over, key=lambda number: -number.median)]:
        t.claim(sentence, number, at_most=1.1, source="ours: the default should not cost time")


def draw_times(axes: style.Axes, rows: List[Row], labels: Sequence[str], **predictions: str) -> None:
    """A bar in ms for each row, and below it a mark for each of its predictions, ``number="name in the picture"``."""
    style.row_bars(axes.figure, rows, "ms", [LOOKS[row.algorithm][0] for row in rows], 1e3, axes, labels)
    right, below, said = axes.get_xlim()[1], style.THICK / 2 + 0.09, [axes.get_xlabel()]
    signs = (("▲", "^", style.INK), ("◇", "D", "white"))
    for (name, words), (sign, marker, colour) in zip(predictions.items(), signs):
        known = {y + below: row.get(name).median for y, row in enumerate(rows) if row.get(name)}
        look = dict(color=colour, markeredgecolor=style.INK, markersize=7, clip_on=False, linestyle="none")
        axes.plot(list(known.values()), list(known), marker=marker, **look)
        right, said = max([right, *(1.05 * value for value in known.values())]), [*said, f"{sign} {words}"]
    axes.set(xlim=(0, right), ylim=(len(rows) - 0.5, axes.get_ylim()[1]), xlabel="; ".join(said))
