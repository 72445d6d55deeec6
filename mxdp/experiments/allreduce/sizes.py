"""Which all-reduce is the fastest, for each size and number of devices? Does the cost model know it beforehand?

Each algorithm sums one array over the devices, as do MXNet's own stores. The cost model simulates every plan with the
speeds that were measured in the same process (see ``links``). Small arrays cost calls and start-up times, so plans with
few operations win. Large arrays cost bytes, so plans win that send little and keep all devices busy.
"""

from __future__ import annotations

import statistics
from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, at_most, estimate, off
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import (
    contenders,
    either,
    fastest,
    find,
    find_all,
    keep,
    one_way,
    ratios,
    row_bars,
    size,
)
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, plan
from mxdp.plans.cost.link import algorithm_bandwidth, bus_bandwidth
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

STORES = {"mxnet-local": "local", "mxnet-device": "device"}
"""MXNet's own stores for one machine: name in the table to name in MXNet."""
LARGE = 1 << 20
"""Bytes from which on an array is large: the cost model is judged by these."""
SHOWN = 1 << 26
"""Bytes of the arrays whose times the picture shows as bars, if they were measured."""
BAR_INCHES = 0.7
LOOKS = {
    **{name: look for name, *look in zip([*sorted(ALGORITHMS), AUTO], style.COLOURS, style.MARKERS)},
    "mxnet-local": (style.LIGHT_GREY, "d"),
    "mxnet-device": (style.GREY, "d"),
    "server": (style.GREY, "d"),
    "one by one": ("#D5D9DF", "d"),
}
"""Each algorithm's colour and marker in the pictures of this room."""


@experiment
class AllReduceSizes(Experiment):
    """Every algorithm and both stores, by size and number of devices."""

    name = "allreduce"
    question = "Which all-reduce is the fastest, and does the cost model know beforehand?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs' and 'Parameter Servers', exercises"
    how_to_read = (
        "One array on each device, summed in place; every call is waited for. algbw: its bytes over the time, busbw: "
        "what each device's link carries at least, both in GB/s. 'Pred.': the plan simulated with the speeds measured "
        "in the same round; 'off': how far its interval is from that of the time (0 %: they overlap, so they agree). "
        "auto: the algorithm that the cost model chose."
    )
    claims = {
        "largest_of_device_store": Claim(
            "Our fastest all-reduce of the largest array takes at most 0.75 times as long as MXNet's device store. The "
            "fastest is chosen on odd rounds (or processes) and timed on the others.",
            "ours",
            0.75,
        ),
        "model_off": Claim(
            "The cost model knows the time of large arrays (1 MiB or more): predicted over measured, or its inverse "
            "where the prediction is mostly less, in each round the median over sizes and algorithms, is at most 1.25.",
            "the cost model",
            1.25,
        ),
    }
    compared = "every element of every replica, against the exact sum"
    together = True
    full = dict(
        # The fastest is chosen in six of the processes and reported in the other six, which give an interval.
        devices=[2, 4, 8], kind="auto", seed=0, rounds=1, repeats=12, timeout=1200.0,
        sizes=[1 << k for k in (2, 6, 10, 14, 16, 18, 20, 22, 24, 26)],
    )  # fmt: skip
    presets = {
        "quick": dict(
            full, devices=[2, 4], rounds=12, repeats=1, timeout=120.0, sizes=[1 << k for k in (2, 12, 18, 20, 22, 26)]
        ),
        "full": full,
    }
    little = dict(sizes=[4, 1 << 20])

    def cases(self, settings: Settings) -> List[Case]:
        short = {
            "bidirectional-ring": "bidir. ring",
            "shared-memory": "shared mem.",
        }  # the table has to fit a terminal of 80 columns
        return [
            Case(
                f"{n} arrays of {size(nbytes)}, {short.get(name, name)}",
                n,
                settings={"algorithm": name, "bytes": nbytes},
            )
            for n in settings["devices"]
            for nbytes in settings["sizes"]
            for name in [*sorted(ALGORITHMS), AUTO, *STORES]
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        machine, largest, said = CPU.with_cores(cores), max(settings["sizes"]), []
        for n in settings["devices"]:
            if n > 1:
                best, name = min((predict(plan(name, n, [largest]), largest, machine), name) for name in ALGORITHMS)
                said.append(f"on {plural(n, 'device')} {name} ({style.number(best * 1e3)} ms)")
        return f"The fastest for {size(largest)}, at the reference machine's speeds: {', '.join(said) or 'none'}."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics, nbytes, median = row["metrics"], row["case"]["bytes"], row["seconds"]["median"]
            metrics["wrong"] = row["oracle"]["wrong"]
            metrics["ms"] = median * 1e3
            metrics["algbw"] = algorithm_bandwidth(nbytes, median) / 1e9
            metrics["busbw"] = bus_bandwidth(nbytes, median, len(row["case"]["devices"])) / 1e9
            metrics["error"] = off(row, "predicted_ms", 1e-3)
            store = find(rows, bytes=nbytes, devices=row["case"]["devices"], algorithm="mxnet-device")
            if store:
                keep(row, "of_device_store", ratios(row, store))
        for auto in find_all(rows, algorithm=AUTO):
            same = find_all(rows, bytes=auto["case"]["bytes"], devices=auto["case"]["devices"])
            ours = [row for row in same if row["case"]["algorithm"] in ALGORITHMS]
            if len(auto["case"]["devices"]) == 1 or not ours:
                continue
            best, reported = fastest(ours)
            keep(auto, "over_fastest", [each if even else None for each, even in zip(ratios(auto, best), reported)])
            shares = best["rounds"].get("of_device_store", [])
            keep(best, "best_of_device_store", [each if even else None for each, even in zip(shares, reported)])
            if auto["case"]["bytes"] == max(settings["sizes"]):
                keep(best, "largest_of_device_store", best["rounds"]["best_of_device_store"])
                apart = []
                for row in _large(rows, auto):
                    both = zip(row["rounds"]["predicted_ms"], row["seconds"]["samples"])
                    apart.append(one_way([each / (1e3 * seconds) for each, seconds in both]))
                if apart:
                    keep(auto, "model_off", map(statistics.median, zip(*apart)))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        best = [row for row in rows if "best_of_device_store" in row["rounds"]]
        if not best:
            return "Nothing to sum on 1 device: run it with --devices 2,4."
        largest, smallest = (find_all(best, bytes=end(settings["sizes"])) for end in (max, min))
        autos = [
            row["metrics"]["over_fastest"] for row in find_all(rows, algorithm=AUTO) if "over_fastest" in row["rounds"]
        ]
        models = [row for row in rows if "model_off" in row["rounds"]]
        text = (
            f"{size(max(settings['sizes']))} take {_shares(largest, rows)} of the time of MXNet's device store. Large "
            f"arrays cost bytes, so plans win that send little and keep all devices busy; "
            f"{size(min(settings['sizes']))} take {_shares(smallest, rows)}"
        )
        if any(at_most(row, "best_of_device_store", 1.0) is False for row in smallest):
            text += ": the store makes one call of C++, and each operation of ours is a call from Python"
        text += (
            f". auto takes {statistics.median(autos):.2f} times as long as the fastest of ours (median over sizes), at "
            f"most {max(autos):.2f}"
        )
        if models:
            said = []
            for row in models:
                errors = [each["metrics"]["error"] for each in _large(rows, row)]
                agree = f"{errors.count(0)} of {len(errors)} predictions agree"
                count = plural(len(row["case"]["devices"]), "device")
                said.append(f"{estimate(row, 'model_off'):.2f} on {count} ({agree})")
            text += f"; from 1 MiB on the cost model is off by a factor of {' and '.join(said)}"
        return f"{text}."

    def columns(self) -> List[Column]:
        return [
            Column("ms", "ms"),
            Column("algbw", "algbw", ".2f"),
            Column("busbw", "busbw", ".2f"),
            Column("predicted_ms", "pred. ms"),
            Column("error", "off", "+.0%"),
            Column("wrong", "wrong", "d"),
        ]

    def answering(self, rows: List[Row]) -> List[Row]:
        """The largest arrays."""
        return find_all(rows, bytes=max(row["case"]["bytes"] for row in rows))

    def draw(self, result: Result, figure: style.Figure) -> None:
        """Bars for one size on one number of devices; then for each number the times by size, and their ratios."""
        counts = sorted({len(row["case"]["devices"]) for row in result["rows"]})
        sizes = {row["case"]["bytes"] for row in result["rows"]}
        middle, shown = counts[len(counts) // 2], SHOWN if SHOWN in sizes else max(sizes)
        at_shown = [row for row in find_all(result["rows"], bytes=shown) if len(row["case"]["devices"]) == middle]
        heights = [len(at_shown) * BAR_INCHES + 1, *(2.8 for _ in counts)]
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights)
        bars = figure.add_subplot(grid[0, :])
        _measured_and_predicted(bars, at_shown)
        bars.set_title(f"An array of {size(shown)} on each of {plural(middle, 'device')}")
        for line, n in enumerate(counts, 1):
            rows = [row for row in result["rows"] if len(row["case"]["devices"]) == n]
            times, shares = (figure.add_subplot(grid[line, column]) for column in (0, 1))
            for axes, metric in ((times, "ms"), (shares, "of_device_store")):
                for name in [*sorted(ALGORITHMS), *STORES]:
                    colour, marker = LOOKS[name]
                    own = [row for row in find_all(rows, algorithm=name) if row["metrics"].get(metric) is not None]
                    axes.plot(
                        [row["case"]["bytes"] for row in own], [row["metrics"][metric] for row in own],
                        color=colour, marker=marker, markersize=4, linewidth=1.3, label=name,
                    )  # fmt: skip
                axes.set(xscale="log", yscale="log", xlabel="bytes")
            times.set(title=plural(n, "device"), ylabel="ms")
            shares.set_ylabel("time / mxnet-device's")
            style.plain_logarithmic(times.yaxis, shares.yaxis)
        figure.legend(*times.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        figure.set_size_inches(1.5 * style.WIDTH, sum(heights) + 0.9)


def _large(rows: List[Row], like: Row) -> List[Row]:
    """The rows of large arrays with a prediction, on the same devices as ``like``."""
    same = find_all(rows, devices=like["case"]["devices"])
    return [row for row in same if row["case"]["bytes"] >= LARGE and "predicted_ms" in row["rounds"]]


def _measured_and_predicted(axes: style.Axes, rows: List[Row]) -> None:
    """For each row a bar of its time, and below it a hatched one of what the cost model predicted,
    with its interval."""
    colours = [LOOKS[row["case"]["algorithm"]][0] for row in rows]
    names = [row["case"]["algorithm"] for row in rows]
    row_bars(axes.figure, rows, "ms", colours, [1e3] * len(rows), axes, names)
    right = axes.get_xlim()[1]
    for y, (row, colour) in enumerate(zip(rows, colours)):
        predicted = row["metrics"].get("predicted_ms")
        if predicted is not None:
            below = y + style.THICK / 2 + 0.1
            axes.barh(below, predicted, height=0.16, color="white", edgecolor=colour, hatch="//////")
            if "predicted_ms" in row["rounds"]:
                _, *ends = estimate(row, "predicted_ms")
                if None not in ends:
                    axes.plot(ends, [below, below], color=style.INK, linewidth=1.2, marker="|", markersize=7)
            text = f"predicted {style.number(predicted)}"
            axes.annotate(text, (predicted, below), (5, -1), textcoords="offset points", va="center", size=10)
            right = max(right, 1.2 * predicted)
    axes.set(xlim=(0, right), ylim=(len(rows) - 0.55, axes.get_ylim()[1]))


def _shares(best: List[Row], rows: List[Row]) -> str:
    """Of each number of devices, with every algorithm that may be the fastest."""
    said = []
    for row in best:
        same = find_all(rows, bytes=row["case"]["bytes"], devices=row["case"]["devices"])
        ours = [each for each in same if each["case"]["algorithm"] in ALGORITHMS]
        names = either(each["case"]["algorithm"] for each in contenders(ours, *fastest(ours)))
        share = estimate(row, "best_of_device_store")
        said.append(f"{share:.2f} on {plural(len(row['case']['devices']), 'device')} ({names})")
    return " and ".join(said)
