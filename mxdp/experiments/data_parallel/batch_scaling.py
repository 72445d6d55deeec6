"""Is a batch of k b on k devices as good as one of b, and with which learning rate?

The sums of an all-reduce don't depend on the number of devices, so devices decide the time, and batch and learning rate
the accuracy. After as many samples, k times the batch has made 1 / k of the updates. Three rules for the learning rate:

- kept: the updates together go 1 / k of the way.
- times k: one update goes as far as the k that it replaces (Goyal et al., "Accurate, Large Minibatch SGD", 2017).
- times the square root of k: the noise of an update stays the same (Krizhevsky, "One weird trick", 2014).
"""

from __future__ import annotations

import math
from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

RULES = {"kept": 0.0, "root": 0.5, "linear": 1.0}
"""A learning rate is multiplied by k to this power."""
PARTS = 8
"""Of a training: after each of them the network is evaluated. The accuracy is the mean of the last three times."""
GOYAL = "Goyal et al. 2017, for ResNet-50 and with a warm-up"


@experiment
class BatchScaling(Experiment):
    """LeNet with a batch of b and k b, and three rules for the learning rate."""

    name = "batch-scaling"
    question = "On k devices, is a batch k times as large as good, and with which learning rate?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs', exercises 1 and 2"
    how_to_read = (
        "A round trains on 'samples' samples from a new seed, equal in all rows; the rows take turns. 'Accuracy': the "
        f"mean of the last three of {PARTS} evaluations; 'differs': from the smallest batch's on as many devices, seed "
        "by seed. The row on one device differs by the order of its sums alone, which training magnifies. 'Of the "
        "time' compares with that smallest batch, too. 'To target': seconds of training until the setting 'accuracy' "
        "was first seen, if all seeds have reached it."
    )
    claims = {
        "linear": Claim(
            "k times the batch with k times the learning rate is as accurate after as many samples: at most 0.05 less.",
            f"{GOYAL}; read as 0.05",
            -0.05,
            least=True,
        ),
        "root": Claim(
            "With the learning rate times the square root of k, too, it is at most 0.05 less accurate.",
            "Hoffer et al. 2017; theory in Krizhevsky 2014; read as 0.05",
            -0.05,
            least=True,
        ),
        "kept": Claim("With the learning rate kept, it is less accurate.", GOYAL, 0.0),
        "faster": Claim(
            "A larger batch makes a step more efficient: k times the batch takes at most 0.95 of the time for as many "
            "samples.",
            "the cost model: fewer all-reduces and fewer calls; read as 5 %",
            0.95,
        ),
    }
    compared = "parameters after one step, with the rule's learning rate, and from the start again"
    together = True
    common = dict(devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, lr=0.1)
    presets = {
        "quick": dict(
            common, rounds=1, timeout=600.0,
            batch_size=32, times=[2, 4], samples=8192, test=1000, accuracy=0.6,
        ),
        "full": dict(
            common, rounds=1, timeout=3600.0,
            batch_size=32, times=[2], samples=12288, test=2000, accuracy=0.7,
        ),
    }  # fmt: skip
    checks = {
        "times": (lambda own: all(type(k) is int and k > 1 for k in own), "whole numbers above 1, as in 2,4"),
        "samples": (lambda own: own % PARTS == 0, f"a multiple of {PARTS}"),
    }
    little = dict(data="synthetic", batch_size=4, times=[2], samples=64, test=100, accuracy=0.01)

    def cases(self, settings: Settings) -> List[Case]:
        n, size, cases = max(settings["devices"]), settings["batch_size"], []
        for devices in sorted({1, n}):
            own = dict(times=1, rule="", batch=size, rate=settings["lr"], num_devices=devices)
            cases.append(Case(f"batch {size}, {plural(devices, 'device')}", devices, settings=own))
        for k in sorted({n, *settings["times"]} - {1}):
            for rule, power in RULES.items():
                own = dict(times=k, rule=rule, batch=k * size, rate=settings["lr"] * k**power, num_devices=n)
                cases.append(Case(f"batch {k * size}, lr {own['rate']:.3g}", n, settings=own))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        n = max(settings["devices"])
        return (
            f"With {plural(n, 'time')} the batch and the learning rate the accuracy stays, with the learning rate kept "
            f"it is that of a {n}th of the updates. A large batch takes less time by the fixed costs of the steps that "
            "it saves."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        n = max(settings["devices"])
        base, one = (find(rows, times=1, num_devices=devices) for devices in (n, 1))
        for row in rows:
            row.metrics["samples_per_sec"] = settings["samples"] / row.median
            if all(row.rounds["reached"]):
                parts = [seconds * part for seconds, part in zip(row.samples, row.rounds["reached"])]
                row.keep("to_target", [seconds / PARTS for seconds in parts])
            row.keep_ratios("of_base", base)
            row.keep_ratios("of_one", one)
            if base and row is not base:
                found = zip(row.rounds["test_accuracy"], base.rounds["test_accuracy"])
                row.keep("gain", [own - other for own, other in found])
                if row.case["times"] == n:
                    row.keep(row.case["rule"], row.rounds["gain"])
                if row.case["times"] == n and row.case["rule"] == "linear":  # the time does not depend on the rule
                    row.keep("faster", row.rounds["of_base"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = next((row for row in rows if "linear" in row.rounds), None)
        if row is None:
            return "One device has nothing to scale: run it with --devices 1,2."
        k = row.case["times"]
        return (
            f"On {plural(k, 'device')}, {k} times the batch and the learning rate change the accuracy by "
            f"{row.estimate('gain'):+.3f} and take {row.estimate('of_base'):.2f} of the time."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        others = [row for row in rows if "kept" in row.rounds or "root" in row.rounds]
        if not others:
            return ""
        said = " and ".join(f"{row.estimate('gain'):+.3f} with {row.label}" for row in others)
        one = find(rows, num_devices=1)
        noise = f" Other sums on one device alone change it by {one.estimate('gain'):+.3f}." if one else ""
        return f"The accuracy changes by {said}.{noise}"

    def columns(self) -> List[Column]:
        return [
            Column("samples_per_sec", "samples/s", ",.0f"),
            Column("of_base", "of the time", ".2f", spread=True),
            Column("test_accuracy", "accuracy", ".3f"),
            Column("gain", "differs", "+.3f", spread=True),
            Column("to_target", "to target", ".2f", unit=" s"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """A map of the accuracies by batch and rule; then, for each larger batch, the accuracy by samples."""
        rows = result["rows"]
        base = [row for row in rows if row.case["times"] == 1][-1:]
        scales = sorted({row.case["times"] for row in rows} - {1})
        heights = [2.3, *(2.7 for _ in scales)]
        above, *panels = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        _draw_map(above, rows, [1, *scales])
        for k, axes in zip(scales, panels):
            for number, row in enumerate(base + find_all(rows, times=k)):
                samples = [int(each) for each in row.metrics["curve"]]
                axes.plot(
                    samples, list(row.metrics["curve"].values()), "-" if number else "--", marker=style.MARKERS[number],
                    color=style.COLOURS[number - 1] if number else style.GREY, label=row.label,
                )  # fmt: skip
            axes.set(xlabel="samples", ylabel="test accuracy", title=f"Batch times {k}")
            axes.legend(loc="lower right")
        figure.set_figheight(sum(heights))


def _draw_map(axes: style.Axes, rows: List[Row], scales: List[int]) -> None:
    """A column for each batch, a row for each rule; without scaling all rules are one."""
    cells = [[_accuracy(rows, k, rule) for k in scales] for rule in RULES]
    known = [value for line in cells for value in line if not math.isnan(value)]
    axes.imshow(cells, cmap="Blues", aspect="auto", vmin=min(known) - 0.05, vmax=max(known) + 0.1)
    for y, line in enumerate(cells):
        for x, value in enumerate(line):
            axes.annotate(f"{value:.3f}", (x, y), ha="center", va="center", weight="bold")
    size = min(row.case["batch"] for row in rows)
    axes.set_xticks(range(len(scales)), [f"batch {k * size}" for k in scales])
    axes.set_yticks(range(len(RULES)), ["lr kept", "lr times root of k", "lr times k"])
    axes.grid(visible=False)
    axes.set_title("Accuracy after as many samples")


def _accuracy(rows: List[Row], k: int, rule: str) -> float:
    """The median over the seeds; NaN after a failure."""
    known = find_all(rows, times=k, rule=rule if k > 1 else "")
    return float(known[-1].metrics["test_accuracy"]) if known else math.nan
