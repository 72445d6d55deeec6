"""Do independent operators on one device run side by side?

The exercise pushes eight products, none of which needs another's result, on one device. The cost model: a device runs
as many jobs at once as it has workers. A CPU device has one worker, unless ``MXNET_CPU_WORKER_NTHREADS`` is set before
MXNet is loaded: eight products then take eight times as long as one. With two workers and two cores they take four
times as long, once a product is long enough to be worth waking a worker for.

The yardstick is one product, repeated into one array: MXNet lets one operator at a time write an array.
"""

from __future__ import annotations

from itertools import takewhile
from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, at_most, estimate
from mxdp.experiments.harness.environments import workers
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, keep, ratios
from mxdp.plans.cost.link import jobs_ratio

WORKERS = (1, 2)
ALONG = 0.65
"""Operators run side by side where k of them take at most this part of k times one: with two workers the model says
0.5."""


@experiment
class Operators(Experiment):
    """Products into arrays of their own, and into one array, by size and by the device's workers."""

    name = "operators"
    question = "Can independent operators on one device run side by side?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 1"
    how_to_read = (
        "one: a product, repeated into one array, so that the products run one after the other. all: k independent "
        "products, pushed without a wait. '/k x one': all over k times one, round by round; 1 means one after the "
        "other, 0.5 two at a time. '/1 worker': all over the same on a device with one worker. A row is a number of "
        "workers, set in the environment of a child process, and a side of the square matrices."
    )
    claims = {
        "two_workers": Claim(
            "With two workers, independent products on one device run side by side: at the largest side, k of them "
            f"take at most {ALONG} of k times one.",
            "the book, exercise 1",
            ALONG,
        )
    }
    compared = "independent products, against NumPy's, exactly"
    together = True
    common = dict(kind="auto", seed=0, products=8)
    presets = {
        "quick": dict(common, rounds=6, timeout=120.0, round_seconds=0.03, sides=[8, 32, 64, 128, 256, 512]),
        "full": dict(
            common, rounds=2, timeout=3600.0, round_seconds=0.1,
            sides=[8, 16, 32, 48, 64, 96, 128, 256, 512, 1024, 2048],
        ),
    }  # fmt: skip
    little = dict(sides=[8, 32], products=2, round_seconds=0.001)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{plural(count, 'worker')}, {side}",
                settings={"workers": count, "side": side},
                environment=workers(count),
            )
            for count in WORKERS
            for side in settings["sides"]
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        count = settings["products"]
        said = [
            f"{jobs_ratio(count, min(each, cores)) / count:.2f} with {plural(each, 'worker')} a device"
            for each in WORKERS
        ]
        return (
            f"{plural(count, 'product')} over {count} times one, on {plural(cores, 'core')}: {', '.join(said)}; small "
            "products take the time of their calls, whatever the number of workers."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            one = find(rows, workers=1, side=row["case"]["side"])
            if one:
                keep(row, "over_one_worker", ratios(row, one))
            operations = 2 * settings["products"] * row["case"]["side"] ** 3
            row["metrics"]["gflops"] = operations / row["seconds"]["median"] / 1e9
        largest = find(rows, workers=WORKERS[-1], side=max(settings["sides"]))
        if largest:
            keep(largest, "two_workers", largest["rounds"]["over_k_times_one"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        count = settings["products"]
        one, two = (find_all(rows, workers=each) for each in WORKERS)
        largest = max(two, key=lambda row: int(row["case"]["side"]))
        alone = find_all(one, side=largest["case"]["side"])[0]
        slowest = max(two, key=lambda row: float(row["metrics"]["over_one_worker"]))
        largest_first = sorted(two, key=lambda row: row["case"]["side"], reverse=True)
        along = [*takewhile(lambda row: at_most(row, "over_k_times_one", ALONG) is True, largest_first)]
        from_on = seen = ""
        if along:
            start = along[-1]
            from_on = (
                f" They take at most {ALONG} from side {start['case']['side']} on, where a product takes "
                f"{style.number(start['metrics']['one_seconds'] * 1e6)} µs."
            )
        cost = (
            f" Two workers can also cost time: at side {slowest['case']['side']} the {count} products take "
            f"{estimate(slowest, 'over_one_worker'):.2f} times as long as with one, because MXNet wakes a worker for "
            "every operator, and Python, which pushes the operators, needs a core as well."
        )
        if at_most(slowest, "over_one_worker", 1.0) is not False:
            cost = ""
        shown = [row for row in rows if "abreast" in row["metrics"]]
        shares = " and ".join(
            f"{row['metrics']['abreast']:.0%} of the time with {plural(row['case']['workers'], 'worker')}"
            for row in shown
        )
        if shown:
            seen = f" Recorded at side {shown[0]['case']['side']}, two products run at the same time for {shares}."
        return (
            f"With two workers {count} products take {estimate(largest, 'over_k_times_one'):.2f} of {count} times one "
            f"at side {largest['case']['side']}; with one worker, MXNet's own setting for a CPU device, "
            f"{estimate(alone, 'over_k_times_one'):.2f}. A device runs as many operators at once as it has workers."
            f"{from_on}{seen}{cost}"
        )

    def columns(self) -> List[Column]:
        return [
            Column("one_seconds", "one, µs", scale=1e6),
            Column("seconds", "all, µs", scale=1e6),
            Column("over_k_times_one", "/k x one", ".2f", spread=True),
            Column("over_one_worker", "/1 worker", ".2f", spread=True),
            Column("gflops", "Gflop/s"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        axes = figure.add_subplot()
        for count, colour in zip(WORKERS, style.COLOURS):
            rows = find_all(result["rows"], workers=count)
            sides = [row["case"]["side"] for row in rows]
            axes.plot(sides, [_over_k(row) for row in rows], "o-", color=colour, label=plural(count, "worker"))
        axes.set(xscale="log", xlabel="side of the matrices", ylabel="k products / k times one", ylim=(0, None))
        labels, last = [], 0  # all would lie on one another
        for side in sides:
            labels.append(str(side) if side >= 4 * last else "")
            last = side if labels[-1] else last
        axes.set_xticks(sides, labels)
        axes.minorticks_off()
        style.reference_line(axes, 1.0, "one after\nthe other", horizontal=True)
        style.reference_line(axes, 0.5, "two at\na time", horizontal=True)
        figure.legend(loc="outside lower center", ncols=2)


def _over_k(row: Row) -> float:
    return float(row["metrics"]["over_k_times_one"])
