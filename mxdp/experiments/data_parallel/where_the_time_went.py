"""Why are two devices not twice as fast as one? Each moment of a training step is put down to what it went for.

A LeNet step of :func:`mxdp.train` is recorded, with Python at most two steps ahead. The wall clock of the device
that works longest is split into parts that add up to it (:mod:`mxdp.tracing.breakdown`). On one device nearly all of it
should be compute. On two devices there is also communication, and one device waits for the other, at least as long as
their times differ. Where the devices share memory, compute takes longer than half as well.
"""

from __future__ import annotations

import statistics
import textwrap
from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, estimate
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find_all, keep, ratios
from mxdp.plans.cost.link import speedup

PARTS = {
    "compute": "compute",
    "hidden_communication": "comm. beside",
    "exposed_communication": "comm. waited for",
    "input": "input",
    "front_end": "Python",
    "waiting": "waiting",
    "rest": "rest",
}
"""Metric to its name in the table."""
ON_PROCESSOR = 0.95
"""With less of their working time on a processor, the answer says how much the devices had."""
PLAIN = {"hidden_communication": "all-reduce beside compute", "exposed_communication": "all-reduce waited for"}
"""The same in the picture and the answer, where there is room for more."""


@experiment
class WhereTheTimeWent(Experiment):
    """The step on each number of devices, with one all-reduce and with the book's loop over the parameters."""

    name = "where-the-time-went"
    question = "Where did the time of a training step go?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 4, and 'Training on Multiple GPUs'"
    how_to_read = (
        "Mean shares of the wall clock of the device that works longest; they add up to 100 %. Communication is "
        "beside compute where it runs at the same time, otherwise it is waited for. Waiting: for another device's "
        "result, or because Python waited. Python: nothing had been pushed, so the device was idle. Input: the same, "
        "while a batch was made. 'CPU': the share of the devices' working time in which they had a processor; in "
        "the rest other programs ran, or Python."
    )
    claims = {
        "rest": Claim(
            "The parts explain the step: at most 0.05 of its time remains unexplained, for each row.", "ours", 0.05
        )
    }
    compared = "gradients and parameters of every replica, steps on an uneven batch"
    full = dict(
        devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, rounds=2, timeout=1200.0,
        batch_size=256, steps=20,
    )  # fmt: skip
    presets = {"quick": dict(full, data="synthetic", rounds=6, timeout=120.0, steps=7), "full": full}
    little = dict(batch_size=40, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{plural(n, 'device')}, {words}", n, settings={"sync": way})
            for n in settings["devices"]
            for way, words in (("buckets", "one bucket"), ("book", "the book's loop"))
            if n > 1 or way == "buckets"
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{1 / speedup(n, cores):.2f} on {plural(n, 'device')}" for n in settings["devices"] if n > 1]
        return (
            f"Compute takes {', '.join(said) or '1.00'} of one device's time on {plural(cores, 'core')}. The rest of "
            "the step is the cost of several devices, and all that is missing to that speed-up."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        one = next((row for row in rows if len(row["case"]["devices"]) == 1), None)
        for row in rows:
            metrics, rounds = row["metrics"], row["rounds"]
            metrics.update({name: statistics.mean(rounds[name]) for name in PARTS})  # medians would not add up to 1
            metrics["rest_most"] = max(rounds["rest"])
            if one:
                keep(row, "speedup", ratios(one, row))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        last = find_all(rows, sync="buckets")[-1]
        said = [
            f"{words} {estimate(last, key):.1%}"
            for key, words in {**PARTS, **PLAIN}.items()
            if last["metrics"][key] >= 0.005
        ]
        fast = (
            f" It is {estimate(last, 'speedup'):.2f} times as fast as one device."
            if "speedup" in last["rounds"]
            else ""
        )
        worst = max(row["metrics"]["rest_most"] for row in rows)
        return (
            f"A step on {last['label']}: {', '.join(said)}.{_without_processor(last)}{fast} At most {worst:.1%} of any "
            "round is unexplained."
        )

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", ".1f", 1e3, spread=True),
            Column("speedup", "speed-up", ".2f", spread=True),
            Column("on_processor", "on CPU", ".0%"),
        ]

    def more_columns(self) -> List[Column]:
        return [Column(name, words, ".1%") for name, words in PARTS.items()]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """A bar a row: in its parts the ms where there is room, at its end their sum, and below it the shares."""
        axes, rows = figure.add_subplot(), result["rows"]
        colours = dict(zip(PARTS, (*style.COLOURS[:6], style.GREY)))
        names = {**PARTS, **PLAIN}
        longest = max(row["seconds"]["median"] * 1e3 for row in rows)
        for y, row in enumerate(rows):
            total, left = row["seconds"]["median"] * 1e3, 0.0
            for name, colour in colours.items():
                length = row["metrics"][name] * total
                axes.barh(y, length, left=left, height=0.36, color=colour, label=None if y else names[name])
                if length > 0.08 * longest:
                    light = "white" if name in ("compute", "rest", "front_end") else style.INK
                    axes.text(left + length / 2, y, style.number(length), color=light, ha="center", va="center")
                left += length
            shown = sorted((share, name) for name in PARTS if (share := row["metrics"][name]) >= 0.005)
            parts = [f"{names[name]} {share:.1%}".replace(" ", "\N{NO-BREAK SPACE}") for share, name in reversed(shown)]
            shares = textwrap.fill(" · ".join(parts), 66, break_on_hyphens=False)
            axes.annotate(row["label"], (0, y - 0.18), (3, 2), textcoords="offset points", va="bottom")
            axes.annotate(f"{style.number(total)} ms", (left, y), (7, 0), textcoords="offset points", va="center",
                          weight="bold")  # fmt: skip
            axes.annotate(shares, (0, y + 0.18), (3, -3), textcoords="offset points", va="top", size=9.5)
        axes.set(xlim=(0, 1.2 * longest), ylim=(len(rows) - 0.45, -0.5), xlabel="ms a step", yticks=[])
        axes.grid(axis="y", visible=False)
        figure.set_figheight(1.05 * len(rows) + 1.8)
        figure.legend(loc="outside lower center", ncols=2)


def _without_processor(row: Row) -> str:
    """What is to be said of compute, if the devices had a processor for a part of it only."""
    if "on_processor" not in row["rounds"] or estimate(row, "on_processor").median >= ON_PROCESSOR:
        return ""
    return (
        f" Not all of this is compute: the devices had a processor for {estimate(row, 'on_processor'):.0%} of their "
        "working time; in the rest other programs ran, or Python."
    )
