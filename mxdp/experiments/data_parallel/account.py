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

import statistics
from typing import Dict, NamedTuple, Optional, Tuple

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style

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


class Loss(NamedTuple):
    """A cause: its name in a table, the same in a sentence, and the parts of a step in which it is seen."""

    name: str
    words: str
    parts: Tuple[str, ...] = ()


LOST = {
    "lost_machine": Loss("machine", "the machine, which slows down processes that share nothing, too"),
    "lost_compute": Loss(
        "compute",
        "compute, which takes longer than in processes that share nothing",
        ("compute", "hidden_communication"),
    ),
    "lost_all_reduce": Loss(
        "all-reduce", "the all-reduce, of which a larger batch needs fewer", ("exposed_communication",)
    ),
    "lost_waiting": Loss("waiting", "waiting for the slower device", ("waiting",)),
    "lost_python": Loss("Python", "Python, which has less to do where batches are larger", ("front_end",)),
    "lost_input": Loss("input", "the input, which is made more slowly than the devices train", ("input",)),
    "lost_unexplained": Loss(PARTS["rest"], "what no recorded step explains", ("rest",)),
}
"""What of the possible speed-up is lost, by metric."""
HEIGHT = 0.3 * (len(LOST) + 2) + 1.2
"""Inches of the picture."""


def shares(row: Row) -> Dict[str, float]:
    """The mean share of each part over the rounds: they add up to 1, as medians would not. Empty if no step was
    recorded."""
    return {part: statistics.mean(row.rounds[part]) for part in PARTS if part in row.rounds}


def possible(row: Row) -> int:
    """How many times as fast as one device its devices could be on this machine."""
    return min(len(row.devices), process.cores()) if row.devices[0].startswith("cpu") else len(row.devices)


def account(row: Row, ceiling: Row) -> Dict[str, float]:
    """What of the ``possible`` speed-up of ``row`` is lost to what, by metric. With ``speedup`` it adds up."""
    most, of_ceiling = row.metrics["possible"], row.estimate("of_ceiling").median
    own, alone = shares(row), shares(ceiling)
    if not (own and alone):
        own = alone = {"rest": 1.0}
    lost = {"lost_machine": most * of_ceiling - row.estimate("speedup").median}
    for name, loss in LOST.items():
        seen = [own[part] - of_ceiling * alone[part] for part in loss.parts if part in own]
        if seen:
            lost[name] = most * sum(seen)
    return lost


def hindrance(row: Row) -> Optional[str]:
    """A setting, or a lack of cores, because of which the devices can't work at the same time; None without one."""
    if not row.devices[0].startswith("cpu"):
        return None
    found = [*process.prepare().warnings, *process.concurrency_warnings()]
    if found:
        return found[0].rstrip(".")
    if process.cores() < len(row.devices):
        said = f"{plural(len(row.devices), 'device')} share {plural(process.cores(), 'core')}"
        return f"{said}; ask for at most one device a core"
    return None


def losses(row: Row, ceiling: Row) -> str:
    """The account in words: its largest part, or what hinders the devices."""
    most, lost = row.metrics["possible"], account(row, ceiling)
    (value, name), missing = max((value, name) for name, value in lost.items()), sum(lost.values())
    text = f"Of the {most} times that are possible here, {missing:.2f} are lost"
    if missing <= 0.05 * most and most == len(row.devices):
        return f"{text}."
    text += f", the largest part ({value:.2f}) to {LOST[name].words}."
    if row.at_most("speedup", 1.1):
        text += " More devices bring nothing here."
    return f"{text} The reason: {row.metrics['hindrance']}." if row.metrics.get("hindrance") else text


def draw(axes: style.Axes, row: Row, ceiling: Row) -> None:
    """From the possible speed-up down to the one that is reached, a floating bar for each part that takes something."""
    right = float(row.metrics["possible"])
    bars = [("possible", 0.0, right, style.LIGHT_GREY, f"{right:.2f}")]
    for (name, lost), colour in zip(account(row, ceiling).items(), style.COLOURS[1:]):
        bars.append((LOST[name].name, right - lost, lost, colour, f"{-lost:+.2f}".replace("-0.00", "0.00")))
        right -= lost
    bars.append(("reached", 0.0, right, style.COLOURS[0], f"{right:.2f}"))
    ends = [max(left, left + width) for _, left, width, *_ in bars]
    for y, (_, left, width, colour, text) in enumerate(bars):
        axes.barh(y, width, left=left, height=0.7, color=colour)
        axes.annotate(text, (ends[y], y), (5, 0), textcoords="offset points", va="center", size=10.5)
    axes.set_yticks(range(len(bars)), [name for name, *_ in bars])
    axes.set(ylim=(len(bars) - 0.4, -0.6), xlim=(0, 1.15 * max(ends)), xlabel="times as fast as one device")
    axes.set_title(f"What {row.label} lose")
    axes.grid(axis="y", visible=False)
