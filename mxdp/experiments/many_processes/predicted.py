"""Does the time of one process tell that of several, and of hosts with slow links?

The prediction takes a step of one device on its part of the batch, Python's part of that, and how long sums of other
sizes than the network's take between the processes. Nothing that several processes have trained goes into it.
"""

from __future__ import annotations

import statistics
from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, one_way
from mxdp.experiments.report import style
from mxdp.plans.cost.break_even import step_seconds

NETS = {"lenet": ("LeNet", 129_068), "resnet": ("ResNet-18", 11_175_818)}
"""Titles and numbers of parameters."""
FEW_COPIES = {"MXNET_CPU_TEMP_COPY": "16"}
"""Of temporary space: enough for one device, here and in each process, and the same for both."""
DELAYED = 100
"""Mbit/s of a cable that delays: no more, since Python carries its frames."""
FAST = 500
"""Mbit/s from which on ResNet-18's gradients, 45 MB, are sent in seconds."""


@experiment
class Predicted(Experiment):
    """Two networks, in several processes, and on two hosts with a link that is made slow."""

    name = "predicted"
    question = "Does one process's time predict several processes, and hosts with slow links?"
    source = "ours: `python -m mxdp.experiments predict` says what it would be on machines that are not here"
    how_to_read = (
        "A step of a batch that all processes share, of steps that follow one another. Hosts are two network "
        "namespaces of this machine with a cable of a limited rate, on which a frame may take some ms. 'Pred.': from "
        "one process's time for its part of the batch, Python's processor time, and sums of other sizes between the "
        "same processes, measured in the same round. 'x': the prediction over the measured time, or its inverse where "
        "that is less than 1."
    )
    claims = {
        "processes": Claim(
            "The predicted time of a step in as many processes as there are cores is within 15 % of the measured one.",
            "ours: what a reader wants to know of a model",
            1.15,
        ),
        "more_processes": Claim(
            "With twice as many processes as cores it is within 15 %, too.", "ours: what a reader wants to know", 1.15
        ),
        "hosts": Claim(
            "Between two hosts with a slow link it is within 20 %.", "ours: what a reader wants to know of a model", 1.2
        ),
    }
    compared = "parameters of every process after a step, with those of the shards one by one on one device"
    together = True
    common = dict(kind="cpu", seed=0, rounds=1, at_least=0.35, processes=[2, 4], lenet=[16, 64, 256])
    presets = {
        "quick": dict(common, timeout=300.0, processes=[2], rates=[100], delays=[10], resnet=[8], lenet=[64]),
        "full": dict(common, timeout=1800.0, rates=[10, 100, 1000], delays=[1, 10], resnet=[8, 16, 32]),
    }
    little = dict(processes=[2, 4], rates=[100], delays=[1], lenet=[4], resnet=[], at_least=0.01)
    checks = dict.fromkeys(
        ("rates", "delays", "lenet", "resnet"),
        (lambda own: all(type(n) is int and n > 0 for n in own), "whole numbers above 0"),
    )

    def cases(self, settings: Settings) -> List[Case]:
        places = [(n, 0, 0, plural(n, "process")) for n in settings["processes"]]
        places += [(2, rate, 0, f"hosts, {rate:,} Mbit/s") for rate in settings["rates"]]
        places += [(2, DELAYED, ms, f"hosts, {DELAYED} Mbit/s + {ms} ms") for ms in settings["delays"]]
        return [
            Case(
                f"{title}, batch {batch}, {words}",
                n,
                settings={"net": net, "batch": batch, "processes": n, "rate": rate, "delay": delay},
                environment=FEW_COPIES,
            )
            for net, (title, _) in NETS.items()
            for batch in settings[net]
            for n, rate, delay, words in places
            if batch % n == 0 and (not rate or _carried(net, rate))
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [
            f"{style.number(4 * count * 8 / (rate * 1e6))} s for {title} at {rate:,} Mbit/s"
            for net, (title, count) in NETS.items()
            for rate in settings["rates"]
            if _carried(net, rate)
        ]
        return (
            "A sum sends each process's gradients once: "
            f"{', '.join(said) or 'nothing to wait for'}. {plural(cores, 'core')} compute at the same time."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            n, cores = row.case["processes"], row.case["cores"]
            names = ("shard_seconds", "python_seconds", "sum_seconds")
            expected = [step_seconds(a, b, n, cores, c) for a, b, c in zip(*(row.rounds[name] for name in names))]
            row.keep("predicted_seconds", expected)
            row.keep("off", one_way([seconds / own for seconds, own in zip(expected, row.samples)]))
            row.keep(_claim(row), row.rounds["off"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not rows:
            return "Nothing was measured."
        worst = max(rows, key=lambda row: row.metrics["off"])
        usual = statistics.median(row.metrics["off"] for row in rows)
        starts = [max(x, 1 / x) for row in rows for x in row.medians("off")]
        bound = self.claims["processes"].bound
        far = sum(x > bound for x in starts) / len(starts)
        return (
            f"Medians of {plural(len(rows), 'row')} are off by a factor of {usual:.2f} in the middle and "
            f"{worst.estimate('off'):.2f} at most; of single starts {far:.0%} are more than {bound - 1:.0%} off."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        most = [row for row in rows if row.metrics["sum_seconds"] > 0.5 * row.metrics["predicted_seconds"]]
        worst = max(rows, key=lambda row: row.metrics["off"])
        sums = f"In {len(most)} of {len(rows)} rows the sums take more than half of the predicted time."
        return f"Furthest off is {worst.label}. {sums}"

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", scale=1e3),
            Column("predicted_seconds", "pred., ms", scale=1e3),
            Column("sum_seconds", "of it sums", scale=1e3),
            Column("off", "x", ".2f", spread=True),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """Predicted over measured, each row a mark; on the line they are equal."""
        axes = figure.subplots()
        rows = result["rows"]
        for (net, (title, _)), colour, marker in zip(NETS.items(), style.COLOURS, style.MARKERS):
            for hosts in (False, True):
                own = [row for row in rows if row.case["net"] == net and bool(row.case["rate"]) is hosts]
                places = [1e3 * row.median for row in own], [1e3 * row.metrics["predicted_seconds"] for row in own]
                fill = {} if hosts else {"markerfacecolor": "white"}
                words = f"{title}, {'hosts' if hosts else 'processes'}"
                if own:
                    axes.plot(*places, marker, color=colour, markersize=8, label=words, **fill)
        ends = [1e3 * row.median for row in rows]
        axes.plot([min(ends), max(ends)], [min(ends), max(ends)], "--", color=style.GREY, linewidth=1.5)
        axes.set(xscale="log", yscale="log", xlabel="measured, ms", ylabel="predicted, ms")
        axes.legend()


def _claim(row: Row) -> str:
    """The one that judges this row."""
    if row.case["rate"]:
        return "hosts"
    return "processes" if row.case["processes"] <= row.case["cores"] else "more_processes"


def _carried(net: str, rate: int) -> bool:
    """Does a cable of ``rate`` Mbit/s carry this network's gradients in a time that one can wait for?"""
    return net == "lenet" or rate >= FAST
