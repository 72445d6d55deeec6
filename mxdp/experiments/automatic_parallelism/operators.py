"""Do independent operators on one device run side by side?

The exercise pushes eight independent products on one device. The cost model: a device runs as many operators at once as
it has workers, and a CPU device has one, unless ``MXNET_CPU_WORKER_NTHREADS`` says more. The yardstick is one product,
repeated into one array: MXNet lets one operator at a time write an array.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.environments import workers
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style
from mxdp.plans.cost.link import jobs_ratio

WORKERS = (1, 2)


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
            "With two workers, k independent products of the largest side take at most 0.65 of k times one.",
            "the book, exercise 1",
            0.65,
        )
    }
    compared = "independent products, against NumPy's, exactly"
    together = True
    common = dict(kind="auto", seed=0, products=8)
    presets = {
        "quick": dict(common, timeout=120.0, round_seconds=0.03, sides=[8, 32, 64, 128, 256, 512]),
        "full": dict(
            common, timeout=600.0, round_seconds=0.05,
            sides=[8, 16, 32, 64, 128, 256, 512, 1024],
        ),
    }  # fmt: skip
    little = dict(sides=[8, 32], products=2, round_seconds=0.001)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{plural(count, 'worker')}, {side}", 1, 1, {"workers": count, "side": side}, workers(count))
            for count in WORKERS
            for side in settings["sides"]
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        count = settings["products"]
        one, two = (jobs_ratio(count, min(each, cores)) / count for each in WORKERS)
        return (
            f"On {plural(cores, 'core')}, {plural(count, 'product')} take {one:.2f} of {count} times one on a device "
            f"with 1 worker, and {two:.2f} with 2. Small products take the time of their calls, whatever the number of "
            "workers."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            one = find(rows, workers=1, side=row.case["side"])
            if one:
                row.keep("over_one_worker", row.ratios(one))
            operations = 2 * settings["products"] * row.case["side"] ** 3
            row.metrics["gflops"] = operations / row.median / 1e9
        largest = find(rows, workers=WORKERS[-1], side=max(settings["sides"]))
        if largest:
            largest.keep("two_workers", largest.rounds["over_k_times_one"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        side = max(settings["sides"])
        one, two = (find_all(rows, workers=count, side=side)[0].estimate("over_k_times_one") for count in WORKERS)
        return (
            f"On a device with two workers, {settings['products']} independent products of {side} x {side} take "
            f"{two:.2f} of their time one after the other; with one worker, {one:.2f}."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        said = "A device runs as many operators at once as it has workers; MXNet gives a CPU device one."
        small = find_all(rows, workers=WORKERS[-1], side=min(settings["sides"]))[0]
        if small.at_most("over_one_worker", 1.0) is not False:
            return said
        return f"{said} Small products take longer with two: MXNet wakes a worker for every operator."

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
            points = [(row.case["side"], row.metrics["over_k_times_one"]) for row in rows]
            axes.plot(*zip(*points), "o-", color=colour, label=plural(count, "worker"))
        axes.set(xscale="log", yscale="log", xlabel="side of the matrices", ylabel="k products / k times one")
        sides = [4**power for power in range(9) if min(points)[0] <= 4**power <= max(points)[0]]
        axes.set_xticks(sides, map(str, sides))
        low, high = min(0.4, axes.get_ylim()[0]), max(1.2, axes.get_ylim()[1])
        ratios = [2.0**power for power in range(-4, 9) if low <= 2.0**power <= high]
        axes.set_yticks(ratios, [f"{ratio:g}" for ratio in ratios])
        axes.set_ylim(low, high)
        axes.minorticks_off()
        style.reference_line(axes, 1.0, "one after\nthe other", horizontal=True)
        style.reference_line(axes, 0.5, "two at\na time", horizontal=True)
        figure.legend(loc="outside lower center", ncols=2)
