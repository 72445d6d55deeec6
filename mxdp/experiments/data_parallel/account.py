"""Splits the lost speed-up into its causes.

k devices with a core each could be k times as fast as one; CPU devices that share p cores, p times. Two yardsticks lie
between this and what is reached::

    possible       k or p
       |           the machine's part: processes that share nothing, one for each device, lose it, too
    the ceiling    these processes take q of the devices' time
       |           what sharing costs: possible (1 - q)
    reached        the devices

A few steps of both are recorded and split into the same :data:`PARTS`, whose shares add up to 1. So the cost of sharing
is the sum of possible (share - q times the share in the processes) over the parts, and the account adds up.
"""

from __future__ import annotations

import textwrap
from statistics import fmean
from typing import Any, Callable, Dict, Sequence

from mxdp import process
from mxdp.backend import Device
from mxdp.datasets import Split
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments.devices import WARM_UP
from mxdp.experiments.lab import Row
from mxdp.experiments.show import style
from mxdp.tracing import TimeSplit, where_the_time_went

PARTS = {
    "compute": "compute",
    "hidden_communication": "all-reduce beside compute",
    "exposed_communication": "all-reduce waited for",
    "input": "input",
    "front_end": "Python",
    "waiting": "waiting",
    "rest": "unexplained",
}
"""The parts of a recorded step (:class:`mxdp.tracing.Parts`), in words."""
LOST = {
    "machine": ("the machine, which slows down processes that share nothing, too",),
    "compute": (
        "compute, which takes longer than in processes that share nothing", "compute", "hidden_communication",
    ),
    "all-reduce": ("the all-reduce, of which a larger batch needs fewer", "exposed_communication"),
    "waiting": ("waiting for the slower device", "waiting"),
    "Python": ("Python, which has less to do where batches are larger", "front_end"),
    "input": ("the input, which is made more slowly than the devices train", "input"),
    "unexplained": ("what no recorded step explains", "rest"),
}  # fmt: skip
"""What takes a part of the possible speed-up: in words, and the parts of a step in which it is seen."""
HEIGHT = 0.3 * (len(LOST) + 2) + 1.2
"""Inches of the picture."""


def recorder(
    data: Split, batch_size: int, seed: int, step: Callable[..., Any], devices: Sequence[Device]
) -> Callable[[int], TimeSplit]:
    """A function that trains by ``step(X, y)`` for that many steps more and returns their split. Some steps warm up."""
    batches = Stream(data, batch_size, seed).take(1 << 60)  # samples: it never ends

    for _ in range(WARM_UP):
        step(*next(batches))
    return lambda steps: where_the_time_went(lambda: step(*next(batches)), steps, devices=devices)


def chances(devices: Sequence[Device]) -> Dict[str, Any]:
    """Facts of a row: how many times as fast as one device these could be on this machine (``possible``), and a setting
    or a lack of cores because of which they can't work at the same time (``hindrance``; None without one)."""
    count, cores = len(devices), process.cores()
    if devices[0].device_type != "cpu":
        return dict(possible=count, hindrance=None)
    hindrances = [*process.prepare().warnings, *process.concurrency_warnings()]
    if cores < count:
        hindrances.append(f"{plural(count, 'device')} share {plural(cores, 'core')}; ask for at most one device a core")
    return dict(possible=min(count, cores), hindrance=hindrances[0].rstrip(".") if hindrances else None)


def shares(row: Row) -> Dict[str, float]:
    """The mean share of each part over the processes: they add up to 1, as medians would not. Empty if no step was
    recorded."""
    recorded = {part: row.get(part) for part in PARTS if row.get(part) is not None}
    return {part: fmean(value for value in share.values if value is not None) for part, share in recorded.items()}


def account(row: Row, ceiling: Row) -> Dict[str, float]:
    """What of the ``possible`` speed-up of ``row`` is lost to what, by :data:`LOST`. With ``speedup`` it adds up."""
    of_ceiling, shared, alone = row.of_ceiling.median, shares(row), shares(ceiling)
    if not (shared and alone):
        shared = alone = {"rest": 1.0}
    lost = {"machine": row.possible * of_ceiling - row.speedup.median}
    for name, (_, *parts) in LOST.items():
        more = [shared[part] - of_ceiling * alone[part] for part in parts if part in shared]
        if more:
            lost[name] = row.possible * sum(more)
    return lost


def tell_losses(row: Row) -> str:
    """The account of ``row``, which has it as ``lost``, in words: its largest part, or what hinders the devices."""
    largest, missing = max(row.lost, key=row.lost.__getitem__), sum(row.lost.values())
    text = f"Of the {row.possible} times that are possible here, {missing:.2f} are lost"
    if missing <= 0.05 * row.possible and row.possible == row.devices:
        return f"{text}."
    text += f", the largest part ({row.lost[largest]:.2f}) to {LOST[largest][0]}."
    if row.speedup.at_most(1.1):
        text += " More devices bring nothing here."
    return f"{text} The reason: {row.hindrance}." if row.hindrance else text


def draw(axes: style.Axes, row: Row) -> None:
    """From the possible speed-up down to the one that is reached, a floating bar for each part that takes something."""
    right = float(row.possible)
    bars = [("possible", 0.0, right, style.LIGHT_GREY, f"{right:.2f}")]
    for (name, part), colour in zip(row.lost.items(), style.COLOURS[1:]):
        bars.append((name, right - part, part, colour, f"{-part:+.2f}".replace("-0.00", "0.00")))
        right -= part
    bars.append(("reached", 0.0, right, style.COLOURS[0], f"{right:.2f}"))
    ends = [max(left, left + width) for _, left, width, *_ in bars]
    for y, (_, left, width, colour, text) in enumerate(bars):
        axes.barh(y, width, left=left, height=0.7, color=colour)
        axes.annotate(text, (ends[y], y), (5, 0), textcoords="offset points", va="center", size=10.5)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.set(ylim=(len(bars) - 0.4, -0.6), xlim=(0, 1.15 * max(ends)), xlabel="times as fast as one device")
    axes.set_title(f"What {row.label} lose")
    axes.grid(axis="y", visible=False)


def draw_parts(figure: style.Figure, rows: Sequence[Row]) -> None:
    """A bar a row: in its parts the ms where there is room, at its end their sum, and below it the shares."""
    axes, longest = figure.add_subplot(), max(row.seconds.median * 1e3 for row in rows)
    points = dict(textcoords="offset points")
    for y, row in enumerate(rows):
        ms, left, parts = row.seconds.median * 1e3, 0.0, shares(row)
        for name, colour in zip(PARTS, (*style.COLOURS[:6], style.GREY)):
            length = parts[name] * ms
            axes.barh(y, length, left=left, height=0.36, color=colour, label=None if y else PARTS[name])
            if length > 0.08 * longest:
                light = "white" if name in ("compute", "rest", "front_end") else style.INK
                axes.text(left + length / 2, y, style.number(length), color=light, ha="center", va="center")
            left += length
        largest = sorted(((share, name) for name, share in parts.items() if share >= 0.005), reverse=True)
        words = [f"{PARTS[name]} {share:.1%}".replace(" ", "\N{NO-BREAK SPACE}") for share, name in largest]
        below = textwrap.fill(" · ".join(words), 66, break_on_hyphens=False)
        axes.annotate(row.label, (0, y - 0.18), (3, 2), va="bottom", **points)
        axes.annotate(f"{style.number(ms)} ms", (left, y), (7, 0), va="center", weight="bold", **points)
        axes.annotate(below, (0, y + 0.18), (3, -3), va="top", size=9.5, **points)
    axes.set(xlim=(0, 1.2 * longest), ylim=(len(rows) - 0.45, -0.5), xlabel="ms a step", yticks=[])
    axes.grid(axis="y", visible=False)
    figure.set_figheight(1.05 * len(rows) + 1.8)
    figure.legend(loc="outside lower center", ncols=2)
