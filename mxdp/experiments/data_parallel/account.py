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

from statistics import fmean
from typing import Any, Callable, Dict, Sequence

from mxdp import process
from mxdp.backend import Device
from mxdp.datasets import Split
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.devices import WARM_UP
from mxdp.experiments.lab import Row
from mxdp.experiments.show import style
from mxdp.tracing import TimeSplit, section, where_the_time_went

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
    "machine": (),
    "compute": ("compute", "hidden_communication"),
    "all-reduce": ("exposed_communication",),
    "waiting": ("waiting",),
    "Python": ("front_end",),
    "input": ("input",),
    "unexplained": ("rest",),
}
"""What takes a part of the possible speed-up, and the parts of a step in which it is seen."""


def recorder(
    data: Split, batch_size: int, seed: int, step: Callable[..., Any], devices: Sequence[Device]
) -> Callable[[int], TimeSplit]:
    """A function that trains by ``step(X, y)`` for that many steps more and returns their split. Some steps warm up."""
    batches = Stream(data, batch_size, seed).take(1 << 60)  # samples: it never ends

    def one_step() -> None:
        with section("input"):
            X, y = next(batches)
        step(X, y)

    for _ in range(WARM_UP):
        one_step()
    return lambda steps: where_the_time_went(one_step, steps, devices=devices)


def possible(devices: Sequence[Device]) -> int:
    """How many times as fast as one device these could be on this machine."""
    return min(len(devices), process.cores()) if devices[0].device_type == "cpu" else len(devices)


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
    for name, parts in LOST.items():
        more = [shared[part] - of_ceiling * alone[part] for part in parts if part in shared]
        if more:
            lost[name] = row.possible * sum(more)
    return lost


def tell_losses(row: Row) -> str:
    """The account of ``row``, which has it as ``lost``, in words: its largest part."""
    largest, missing = max(row.lost, key=row.lost.__getitem__), sum(row.lost.values())
    text = f"Of the {row.possible} times that are possible here, {missing:.2f} are lost"
    if missing <= 0.05 * row.possible and row.possible == row.devices:
        return f"{text}."
    text += f"; the largest part: {largest} ({row.lost[largest]:.2f})."
    if row.speedup.at_most(1.1):
        text += " More devices bring nothing here; `python -m mxdp.experiments doctor` says what can be done."
    return text


def draw_parts(figure: style.Figure, rows: Sequence[Row]) -> None:
    """A bar a row: the ms of each part of a step."""
    axes, ms = figure.add_subplot(), [row.seconds.median * 1e3 for row in rows]
    left = [0.0] * len(rows)
    for name, colour in zip(PARTS, (*style.COLOURS[:6], style.GREY)):
        lengths = [shares(row)[name] * time for row, time in zip(rows, ms)]
        axes.barh(range(len(rows)), lengths, 0.4, left, color=colour, label=PARTS[name])
        left = [start + length for start, length in zip(left, lengths)]
    for y, row in enumerate(rows):
        axes.annotate(f"{row.label}: {style.number(ms[y])} ms", (0, y - 0.2), (3, 2), textcoords="offset points")
    axes.set(ylim=(len(rows) - 0.5, -0.7), xlabel="ms a step", yticks=[])
    axes.grid(axis="y", visible=False)
    figure.set_figheight(0.7 * len(rows) + 1.8)
    figure.legend(loc="outside lower center", ncols=2)
