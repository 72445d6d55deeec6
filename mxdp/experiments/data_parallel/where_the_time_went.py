"""Where does the time of a training step go?

Some LeNet steps of :func:`mxdp.train` are recorded, with Python at most two steps ahead. The wall clock of the device
that works longest is split into parts that add up to it (:mod:`mxdp.tracing.breakdown`). On one device nearly all of it
should be compute. Two devices also communicate, and one waits for the other, at least as long as their times differ.
Where they share memory, compute takes longer than half of one device's time as well.
"""

from __future__ import annotations

import textwrap
from typing import List

from mxdp.errors import plural
from mxdp.experiments.data_parallel.account import PARTS, shares
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.report import style
from mxdp.plans.cost.link import speedup


@experiment
class WhereTheTimeWent(Experiment):
    """The step on each number of devices, with one all-reduce and with the book's loop over the parameters."""

    name = "where-the-time-went"
    question = "Where did the time of a training step go?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 4, and 'Training on Multiple GPUs'"
    how_to_read = (
        "Mean shares of the wall clock of the device that works longest add up to 100 %; the answer gives medians. "
        "Waiting: for another device's result, or because Python waited. Python: the device was idle, since nothing "
        "had been pushed. Input: the same, while a batch was made. Unexplained: idle for none of these reasons. The "
        "account of `epochs` has the same parts. 'On CPU': the share of the devices' working time in which they had a "
        "processor; else other programs ran, or Python."
    )
    claims = {"rest": Claim("At most 0.05 of the time of a step remains unexplained.", "ours", 0.05)}
    compared = "gradients and parameters of every replica, steps on an uneven batch"
    common = dict(devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, batch_size=256)
    presets = {
        "quick": dict(common, data="synthetic", rounds=1, timeout=120.0, steps=7),
        "full": dict(common, rounds=1, timeout=600.0, steps=10),
    }
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
            f"Compute takes {', '.join(said) or '1.00'} of one device's time, on {plural(cores, 'core')}. The other "
            "parts are what several devices cost."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        one = next((row for row in rows if len(row.devices) == 1), None)
        for row in rows:
            row.metrics.update(shares(row), rest_most=max(row.rounds["rest"]))
            if one:
                row.keep("speedup", one.ratios(row))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = find_all(rows, sync="buckets")[-1]
        most = max((part for part in PARTS if part != "compute"), key=lambda part: float(row.metrics[part]))
        return (
            f"On {plural(len(row.devices), 'device')} {row.estimate('compute'):.1%} of a training step is compute; the "
            f"next largest part, {PARTS[most]}, takes {row.estimate(most):.1%}."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = find_all(rows, sync="buckets")[-1]
        text = f"At most {max(each.metrics['rest_most'] for each in rows):.1%} of any round is unexplained."
        if "on_processor" in row.rounds and (share := row.estimate("on_processor")).median < 0.95:
            text += f" Not all of this is compute: the devices had a processor for {share:.0%} of their working time."
        return text

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", ".1f", 1e3, spread=True),
            Column("speedup", "speed-up", ".2f", spread=True),
            Column("on_processor", "on CPU", ".0%"),
        ]

    def more_columns(self) -> List[Column]:
        return [Column(name, words, ".1%") for name, words in PARTS.items()]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """A bar for each row."""
        draw_parts(figure, result["rows"])


def draw_parts(figure: style.Figure, rows: List[Row]) -> None:
    """A bar a row: in its parts the ms where there is room, at its end their sum, and below it the shares."""
    axes = figure.add_subplot()
    longest = max(row.median * 1e3 for row in rows)
    for y, row in enumerate(rows):
        ms, left = row.median * 1e3, 0.0
        for name, colour in zip(PARTS, (*style.COLOURS[:6], style.GREY)):
            length = row.metrics[name] * ms
            axes.barh(y, length, left=left, height=0.36, color=colour, label=None if y else PARTS[name])
            if length > 0.08 * longest:
                light = "white" if name in ("compute", "rest", "front_end") else style.INK
                axes.text(left + length / 2, y, style.number(length), color=light, ha="center", va="center")
            left += length
        shown = sorted((share, name) for name in PARTS if (share := row.metrics[name]) >= 0.005)
        parts = [f"{PARTS[name]} {share:.1%}".replace(" ", "\N{NO-BREAK SPACE}") for share, name in reversed(shown)]
        below = textwrap.fill(" · ".join(parts), 66, break_on_hyphens=False)
        axes.annotate(row.label, (0, y - 0.18), (3, 2), textcoords="offset points", va="bottom")
        axes.annotate(
            f"{style.number(ms)} ms", (left, y), (7, 0), textcoords="offset points", va="center", weight="bold"
        )
        axes.annotate(below, (0, y + 0.18), (3, -3), textcoords="offset points", va="top", size=9.5)
    axes.set(xlim=(0, 1.2 * longest), ylim=(len(rows) - 0.45, -0.5), xlabel="ms a step", yticks=[])
    axes.grid(axis="y", visible=False)
    figure.set_figheight(1.05 * len(rows) + 1.8)
    figure.legend(loc="outside lower center", ncols=2)
