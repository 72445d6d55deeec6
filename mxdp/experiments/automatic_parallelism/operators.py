"""Do independent operators on one device run side by side?

The exercise pushes eight products that don't need each other's results, on one device, and asks whether they run in
parallel. The cost model: a device has as many jobs at once as it has workers. A CPU device has one worker, unless
``MXNET_CPU_WORKER_NTHREADS`` says otherwise before MXNet is loaded: eight then take eight times as long as one. With
two workers, and two cores, they take four times as long, from the size on at which a product is worth waking a worker.

The yardstick is one product, again and again into one array: MXNet lets one write it at a time, so these are in turn.
"""

from __future__ import annotations

import itertools
import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterator, List

from mxdp.experiments.harness.environments import workers
from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Round,
    Row,
    Settings,
    Verdict,
    experiment,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio
from mxdp.plans.cost.link import jobs_ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = (1, 2)
RECORDED = 256
"""The side, or the nearest to it that is measured, whose products are recorded."""
ALONG = 0.65
"""Operators run side by side where k of them take at most this part of k times one."""


@experiment
class Operators(Experiment):
    """Products into arrays of their own, and into one array, by size and by the device's workers."""

    name = "operators"
    question = "Can independent operators on one device run side by side?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 1"
    how_to_read = (
        "one: a product, of many into one array, so that they run in turn. all: k independent products, pushed "
        "without a wait. '/k x one': all over k times one, the median over the rounds; 1 means one after the other, "
        "0.5 two at a time. '/1 worker': all over all of the device with one worker. The rows differ by the workers, "
        "which are set in the environment of a process of its own, and by the side of the square matrices."
    )
    together = True
    presets = {
        "quick": dict(
            kind="auto", seed=0, rounds=7, timeout=120.0, products=8,
            sides=[8, 32, 64, 128, 256, 512], round_seconds=0.03,
        ),
        "full": dict(
            kind="auto", seed=0, rounds=15, timeout=3600.0, products=8,
            sides=[8, 16, 32, 48, 64, 96, 128, 256, 512, 1024, 2048], round_seconds=0.1,
        ),
    }  # fmt: skip

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
            "ones take the time of their calls, whatever the workers."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.backend import devices
        from mxdp.experiments.automatic_parallelism.work.products import Products, count_wrong_products, whole_factors

        (device,) = devices(1, settings["kind"])
        lefts, w = whole_factors(settings["products"], device, settings["seed"])
        products = Products(lefts, w, chain=False)
        for _ in range(3):  # as the rounds do: one group after the other into the same arrays
            products.push()
        checked, wrong = count_wrong_products([[y] for y in products.results], lefts, w, chain=False)
        return Oracle(checked, wrong, "independent products, against NumPy's, exactly")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.backend import devices
        from mxdp.experiments.automatic_parallelism.work.products import Products, factors
        from mxdp.experiments.measure.clock import mean_seconds
        from mxdp.experiments.measure.timelines import recorded

        (device,), count, side = devices(1, settings["kind"]), settings["products"], case.settings["side"]
        yield Ready([str(device)])
        ones: List[float] = []
        ratios: List[float] = []
        for number in itertools.count(1):
            x, w = factors(side, side, device, settings["seed"])
            one, all_of_them = (
                mean_seconds(Products([x] * each, w, chain=False).push, settings["round_seconds"]).done
                for each in (1, count)
            )
            ones.append(one)
            ratios.append(all_of_them / (count * one))
            metrics: Dict[str, Any] = {
                "one_seconds": statistics.median(ones),
                "over_k_times_one": statistics.median(ratios),
            }
            if number == settings["rounds"] and side == _recorded_side(settings):
                metrics.update(recorded(Products([x] * count, w, chain=False).push, [device]))
            yield Round(all_of_them, metrics)

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            one = find(rows, workers=1, side=row["case"]["side"])
            row["metrics"]["over_one_worker"] = ratio(row, one) if one else None
            operations = 2 * settings["products"] * row["case"]["side"] ** 3
            row["metrics"]["gflops"] = operations / row["seconds"]["median"] / 1e9

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        count = settings["products"]
        one, two = (find_all(rows, workers=each) for each in WORKERS)
        best = min(two, key=_over_k)
        slowest = max(two, key=lambda row: float(row["metrics"]["over_one_worker"]))
        start = _side_by_side_from(two)
        from_on = (
            f"; at most {ALONG} from side {start['case']['side']} on, where a product takes "
            f"{style.number(start['metrics']['one_seconds'] * 1e6)} µs"
            if start
            else ""
        )
        text = (
            f"Not on one worker, MXNet's own setting for a CPU device: there {count} products take "
            f"{min(map(_over_k, one)):.2f} to {max(map(_over_k, one)):.2f} of {count} times one. On two they take "
            f"{_over_k(best):.2f} at side {best['case']['side']}{from_on}.{_seen(rows)} Two workers may also cost "
            f"time: at side {slowest['case']['side']} the {count} take {slowest['metrics']['over_one_worker']:.2f} "
            "times as long as on one: they are woken operator by operator, and Python, which pushes, needs a core as "
            "well."
        )
        return Verdict(_over_k(best) <= ALONG, text)

    def columns(self) -> List[Column]:
        def micro(name: str, seconds: Any) -> Column:
            return Column(name, lambda row: style.number(seconds(row) * 1e6))

        return [
            micro("one, µs", lambda row: row["metrics"]["one_seconds"]),
            micro("all, µs", lambda row: row["seconds"]["median"]),
            metric("over_k_times_one", "/k x one"),
            metric("over_one_worker", "/1 worker"),
            Column("Gflop/s", lambda row: style.number(row["metrics"]["gflops"])),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        axes = figure.add_subplot()
        for count, colour in zip(WORKERS, style.COLOURS):
            rows = find_all(result["rows"], workers=count)
            sides = [row["case"]["side"] for row in rows]
            axes.plot(
                sides,
                [_over_k(row) for row in rows],
                "o-",
                color=colour,
                label=plural(count, "worker"),
            )
        axes.set(xscale="log", xlabel="side of the matrices", ylabel="k products / k times one", ylim=(0, None))
        axes.set_xticks(sides, [str(side) for side in sides])
        axes.minorticks_off()
        style.reference_line(axes, 1.0, "one after the other", horizontal=True)
        style.reference_line(axes, 0.5, "two at a time", horizontal=True)
        axes.legend()


def _recorded_side(settings: Settings) -> int:
    side: int = min(settings["sides"], key=lambda each: abs(each - RECORDED))
    return side


def _seen(rows: List[Row]) -> str:
    """What the timelines show, where there are any."""
    shown = [row for row in rows if "abreast" in row["metrics"]]
    if not shown:
        return ""
    shares = [f"{row['metrics']['abreast']:.0%} on {plural(row['case']['workers'], 'worker')}" for row in shown]
    return f" Recorded at side {shown[0]['case']['side']}, two products run at the same time {', '.join(shares)}."


def _over_k(row: Row) -> float:
    return float(row["metrics"]["over_k_times_one"])


def _side_by_side_from(rows: List[Row]) -> Any:
    """The row with the smallest side from which on all are fast enough; None if the last is not."""
    found = None
    for row in sorted(rows, key=lambda row: row["case"]["side"], reverse=True):
        if _over_k(row) > ALONG:
            break
        found = row
    return found
