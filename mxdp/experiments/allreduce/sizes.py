"""Which all-reduce is the fastest, for each size and number of devices? Does the cost model know it beforehand?

Each algorithm sums one array over the devices, as do MXNet's own stores. The cost model simulates every plan with the
speeds that were measured in the same process (see ``links``). Small arrays cost calls and start-up times, so plans with
few operations win. Large arrays cost bytes, so plans that send little and keep all devices busy win.
"""

from __future__ import annotations

import itertools
import statistics
from typing import Dict, List, Sequence, Tuple

from mxdp.errors import either, plural, size
from mxdp.experiments.allreduce.common import (
    LOOKS,
    STORES,
    draw_times,
    keep_fastest,
    keep_over_fastest,
    keep_worst,
    merge,
)
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, contenders, fastest, find, find_all, one_way
from mxdp.experiments.report import style
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, plan
from mxdp.plans.collective.operations import Operation, operations
from mxdp.plans.cost.link import algorithm_bandwidth, bus_bandwidth
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

NAMES = sorted(ALGORITHMS)
"""A row of ``auto`` has the numbers of what it chose in this list: a result keeps no words of each round."""
CHOICES = {"choice": "auto", "default_choice": "default"}
"""What has chosen, with the speeds that were measured in the same process or with mxdp's own: the name of its number in
the rounds to that of its claim."""
LARGE = 1 << 20
"""Bytes from which on an array is large: the cost model is judged by these."""


@experiment
class AllReduceSizes(Experiment):
    """Every algorithm and both stores, by size and number of devices."""

    name = "allreduce"
    question = "Which all-reduce is the fastest, and does the cost model know beforehand?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs' and 'Parameter Servers', exercises"
    how_to_read = (
        "One array on each device, summed in place; every call is waited for, and what sums the same arrays takes "
        "turns. algbw: its bytes over the time, busbw: what each device's link carries at least, both in GB/s. "
        "'Pred.': the plan simulated with the speeds measured in the same round; 'off': how far its interval is from "
        "that of the time (0 %: they overlap, so they agree). auto: the algorithm that the cost model chose, with "
        "these speeds. The fastest, and the size for which auto is worst, are chosen on odd rounds (or processes) and "
        "timed on the others, and the other way round. Algorithms that do the same, such as naive and sharded for one "
        "array, are one: the median of their rows (and of auto's) counts. The cost model is judged by the median over "
        "algorithms and sizes of each round."
    )
    claims = {
        "largest_of_device_store": Claim(
            "Our fastest all-reduce of the largest array takes at most 0.75 times as long as MXNet's device store.",
            "ours",
            0.75,
        ),
        "model_off": Claim(
            "The cost model predicts the time of large arrays (1 MiB or more) within a factor of 1.25.",
            "the cost model",
            1.25,
        ),
        "auto_worst": Claim(
            "'auto' takes at most 1.1 times as long as the fastest algorithm, also for the size for which it chooses "
            "worst, on each number of devices: with the speeds that mxdp.calibrate measures.",
            "ours: who chooses nothing should not pay for that",
            1.1,
        ),
        "default_worst": Claim(
            "'auto' takes at most 1.1 times as long with mxdp's own speeds, too: those of an Intel Xeon or an AMD "
            "EPYC, for who doesn't calibrate.",
            "ours: who chooses nothing should not pay for that",
            1.1,
        ),
    }
    compared = "every element of every replica, against the exact sum"
    together = True
    full = dict(
        # The fastest is chosen in half of the processes and reported in the other half: six there give an interval.
        devices=[2, 4, 8], kind="auto", seed=0, rounds=1, repeats=16, timeout=1200.0,
        sizes=[1 << k for k in (2, 10, 16, 18, 20, 22, 24, 26)],
    )  # fmt: skip
    presets = {
        "quick": dict(full, devices=[2, 4], repeats=12, timeout=120.0, sizes=[1 << k for k in (2, 12, 18, 20, 22, 26)]),
        "full": full,
    }
    little = dict(sizes=[4, 1 << 20])

    def cases(self, settings: Settings) -> List[Case]:
        short = {"bidirectional-ring": "bidir. ring", "shared-memory": "shared mem."}  # for a terminal of 80 columns
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
            nbytes = row.case["bytes"]
            row.metrics.update(
                wrong=row.oracle["wrong"],
                ms=row.median * 1e3,
                algbw=algorithm_bandwidth(nbytes, row.median) / 1e9,
                busbw=bus_bandwidth(nbytes, row.median, len(row.devices)) / 1e9,
                error=row.off("predicted_ms", 1e-3),
            )
            store = find(rows, bytes=nbytes, devices=row.devices, algorithm="mxnet-device")
            row.keep_ratios("of_device_store", store)
        autos: Dict[int, List[Row]] = {}
        for auto in find_all(rows, algorithm=AUTO):
            same = find_all(rows, devices=auto.devices)
            ours = [row for row in find_all(same, bytes=auto.case["bytes"]) if row.case["algorithm"] in ALGORITHMS]
            if len(auto.devices) == 1 or not ours:
                continue
            autos.setdefault(len(auto.devices), []).append(auto)
            largest = auto.case["bytes"] == max(settings["sizes"])
            keep_fastest(ours, *["largest_of_device_store"] * largest)
            _keep_choices(auto, ours)
            predicted = [row for row in same if row.case["bytes"] >= LARGE and "predicted_ms" in row.rounds]
            if largest and predicted:
                pairs = [zip(row.rounds["predicted_ms"], row.samples) for row in predicted]
                off = [one_way([ms / (1e3 * seconds) for ms, seconds in own]) for own in pairs]
                auto.keep("model_off", map(statistics.median, zip(*off)))
        for own, name in itertools.product(autos.values(), CHOICES.values()):
            over = f"{name}_over_fastest"
            keep_worst(f"{name}_worst", over, [auto for auto in own if over in auto.rounds])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        shown = _shown(rows)
        auto = find(shown, algorithm=AUTO)
        if auto is None or len(auto.devices) == 1:
            return "One device has nothing to sum."
        ours = [row for row in shown if row.case["algorithm"] in ALGORITHMS]
        best, reported = fastest(ours)
        names = [row.case["algorithm"] for row in contenders(ours, best, reported)]
        model = (
            "as the cost model expects" if auto.metrics["chosen"] in names else "which the cost model does not expect"
        )
        return (
            f"For {size(best.case['bytes'])} on {plural(len(best.devices), 'device')}, mxdp's fastest all-reduce is "
            f"{either(names)}, {model}, and takes {best.estimate('best_of_device_store'):.2f} of the time of MXNet's "
            "device store."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        over = {
            name: [row.metrics[name] for row in rows if name in row.rounds]
            for name in (f"{each}_over_fastest" for each in CHOICES.values())
        }
        if not all(over.values()):
            return "Run it with --devices 2,4."
        auto, default = (
            f"{statistics.median(own):.2f} times (median; at most {max(own):.2f})" for own in over.values()
        )
        return (
            f"Over all sizes, the algorithm that the cost model chooses takes {auto} as long as the fastest, and with "
            f"mxdp's own speeds {default}. Large arrays cost bytes, so plans that send little win; small arrays cost "
            "calls, so plans with few operations win."
        )

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
        return find_all(rows, bytes=max(row.case["bytes"] for row in rows))

    def draw(self, result: Result, figure: style.Figure) -> None:
        """Bars for the largest array; for each number of devices the ratios by size; then the bandwidths, by size and
        by number of devices, with those of the simulated plans."""
        counts, shown = sorted({len(row.devices) for row in result["rows"]}), _shown(result["rows"])
        heights = [len(shown) * style.BAR_HEIGHT + 1.3, *(2.8 for _ in [*counts, "by size", "by number"])]
        bars, *curves, by_size, by_number = figure.subplots(len(heights), height_ratios=heights)
        _draw_bandwidth(by_size, find_all(result["rows"], devices=shown[0].devices), "bytes")
        by_size.set(xscale="log", xlabel="bytes", title=f"{plural(len(shown[0].devices), 'device')}; dashed: its plan")
        _draw_bandwidth(by_number, find_all(result["rows"], bytes=shown[0].case["bytes"]), "devices")
        by_number.set(xticks=counts, xlabel="devices", title=f"{size(shown[0].case['bytes'])}; dashed: its plan")
        draw_times(bars, shown, [row.case["algorithm"] for row in shown], predicted_ms="predicted")
        bars.set_title(f"{size(shown[0].case['bytes'])} on each of {plural(len(shown[0].devices), 'device')}")
        for axes, n in zip(curves, counts):
            rows = [row for row in result["rows"] if len(row.devices) == n and "of_device_store" in row.rounds]
            for name in [*sorted(ALGORITHMS), *STORES]:
                own, (colour, marker) = find_all(rows, algorithm=name), LOOKS[name]
                axes.plot(
                    [row.case["bytes"] for row in own], [row.metrics["of_device_store"] for row in own],
                    color=colour, marker=marker, markersize=4, linewidth=1.3, label=name,
                )  # fmt: skip
            axes.set(xscale="log", yscale="log", xlabel="bytes", ylabel="time / mxnet-device's")
            axes.set_title(plural(n, "device"))
            style.plain_logarithmic(axes.yaxis)
        figure.legend(*curves[0].get_legend_handles_labels(), loc="outside lower center", ncols=2)
        figure.set_figheight(sum(heights) + 1.5)


def _keep_choices(auto: Row, ours: Sequence[Row]) -> None:
    """Keep what the choices of ``auto`` take over the fastest of ``ours``.

    A choice is one of ours, and a right one takes 1.00 times as long, however much two measurements of it differ:
    what does the same is merged. So is ``auto``'s own row, in each round with what it chose.
    """
    does = {row.case["algorithm"]: _operations(row) for row in ours}
    chosen = {name: [NAMES[int(each)] for each in auto.rounds.get(choice, ())] for choice, name in CHOICES.items()}
    known = {name: [does[each] for each in own] for name, own in chosen.items() if own and set(own) <= set(does)}
    measured = {row: [does[row.case["algorithm"]]] * len(row.samples) for row in ours}
    if "auto" in known:
        measured[auto] = known["auto"]
    merged = merge(measured)
    for name, own in known.items():
        seconds = [merged[each].samples[k] for k, each in enumerate(own)]
        keep_over_fastest(f"{name}_over_fastest", auto, seconds, list(merged.values()))


def _operations(row: Row) -> Tuple[Operation, ...]:
    """What the row's algorithm does with one array of its size. Without what has no element to work on."""
    elements = max(1, row.case["bytes"] // 4)
    schedule = plan(row.case["algorithm"], len(row.devices), [elements])
    return tuple(operations(schedule, filled=[start < stop for start, stop in schedule.borders(elements)]))


def _draw_bandwidth(axes: style.Axes, rows: List[Row], along: str) -> None:
    """The plot of every lecture: GB/s that each link carries at least, measured and (dashed) by the simulated plan."""
    for name in ("naive", "ring", "shared-memory", "mxnet-device"):
        own, (colour, marker) = find_all(rows, algorithm=name), LOOKS[name]
        places = [row.case["bytes"] if along == "bytes" else len(row.devices) for row in own]
        measured = [row.metrics["busbw"] for row in own]
        axes.plot(places, measured, color=colour, marker=marker, markersize=4, linewidth=1.3, label=name)
        if all("predicted_ms" in row.metrics for row in own):
            times = [(row.case["bytes"], row.metrics["predicted_ms"] / 1e3, len(row.devices)) for row in own]
            axes.plot(places, [bus_bandwidth(*each) / 1e9 for each in times], "--", color=colour, linewidth=1)
    axes.set_ylabel("bus bandwidth, GB/s")


def _shown(rows: List[Row]) -> List[Row]:
    """The rows that answer and picture show: the largest array, on the middle number of devices."""
    counts = sorted({len(row.devices) for row in rows})
    largest = max((row.case["bytes"] for row in rows), default=0)
    return [row for row in find_all(rows, bytes=largest) if len(row.devices) == counts[len(counts) // 2]]
