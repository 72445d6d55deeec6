"""Each layer over all devices: up to which batch does that send less than data parallelism, and is it faster?

Data parallelism sums the gradients of all P parameters, whatever the batch. Layerwise partitioning sums activations:
A numbers for each sample, in one all-reduce for each pair of layers and direction. Between n devices a sum of k numbers
moves 2 (n - 1) k numbers. So layerwise partitioning sends less up to a batch of P / A, and data parallelism above it.
Both divide the work alike, but only layerwise partitioning divides the update of the parameters. Three dense layers of
u units, from 784 inputs to 10 outputs, have P of about 2 u^2 + 794 u, and A = 2 u + 10: forward the u outputs of the
second layer and the 10 scores, backward the u gradients of the third layer's input.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, at_most, estimate, unsure
from mxdp.experiments.harness.experiment import Case, Column, Result, Row, Settings, experiment
from mxdp.experiments.other_splits.split import COLUMNS, FULL, INTEGERS, QUICK, SERIAL, SplitExperiment, wide_numbers
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, keep, ratios

DATA, LAYERWISE = "data", "layerwise"


@experiment
class LayerwiseExperiment(SplitExperiment):
    """Three dense layers on one device, by data parallelism and layer by layer, for several batches."""

    name = "layerwise"
    question = "Up to which batch is it better to split the layers than the batch?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs': layerwise partitioning"
    how_to_read = (
        f"Three dense layers. {COLUMNS} 'Sums' counts a step's all-reduces, forward + backward. In the picture, the "
        "dashed line is the batch with which both ways move the same number of bytes."
    )
    claims = {
        "faster_when_small": Claim(
            "With few samples it is better to split the layers: with the smallest batch, if layerwise partitioning "
            "sends less there, it takes at most as long as data parallelism.",
            "the cost model",
            1.0,
        ),
        "loses_ground": Claim(
            "With more samples layerwise partitioning loses ground: its time over that of data parallelism is with the "
            "largest batch at least what it is with the smallest.",
            "the cost model",
            1.0,
            least=True,
        ),
    }
    alike = ("batch",)
    presets = {
        "quick": dict(QUICK, units=512, batch_sizes=[16, 128, 2048], steps=3),
        "full": dict(FULL, units=1024, batch_sizes=[8, 64, 512, 4096], steps=5),
    }
    checks = {"batch_sizes": INTEGERS}
    little = dict(units=16, batch_sizes=[4, 16], steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        counts = [n for n in settings["devices"] if n > 1]
        return [
            Case(
                f"batch {samples:,}, {strategy}" + (f" x {n}" if n > 1 else ""),
                n,
                settings={"net": "wide", "strategy": strategy, "batch": samples, "split": n},
            )
            for samples in settings["batch_sizes"]
            for strategy, n in [(SERIAL, 1), *((each, n) for n in counts for each in (DATA, LAYERWISE))]
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        params, sums = wide_numbers(settings["units"])
        return (
            f"Layerwise partitioning sends less up to a batch of {params / sums:,.0f}, whatever the number of devices: "
            f"the network has {params:,} parameters, and layerwise partitioning sums {sums:,} numbers a sample, in two "
            f"all-reduces forward and one backward. Up to {plural(cores, 'core')} divide the work."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        super().finish(rows, references, settings)
        params, sums = wide_numbers(settings["units"])
        smallest, largest = min(settings["batch_sizes"]), max(settings["batch_sizes"])
        for row in find_all(rows, strategy=LAYERWISE):
            metrics, case = row["metrics"], row["case"]
            metrics["allreduces"] = f"{metrics['allreduces_forward']} + {metrics['allreduces_backward']}"
            data = find(rows, strategy=DATA, split=case["split"], batch=case["batch"])
            if data:
                keep(row, "of_data", ratios(row, data))
        for n in settings["devices"]:
            first, last = (find(rows, strategy=LAYERWISE, split=n, batch=each) for each in (smallest, largest))
            if first and "of_data" in first["rounds"] and smallest < params / sums:
                keep(first, "faster_when_small", first["rounds"]["of_data"])
            if first and last and first is not last and all("of_data" in each["rounds"] for each in (first, last)):
                both = zip(last["rounds"]["of_data"], first["rounds"]["of_data"])
                keep(last, "loses_ground", [late / early for late, early in both])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        counts = [n for n in settings["devices"] if n > 1]
        if not counts:
            return "One device has nothing to split: run it with --devices 2."
        params, sums = wide_numbers(settings["units"])
        times, advice = [], []
        for n in counts:
            own = find_all(rows, strategy=LAYERWISE, split=n)
            by_batch = ", ".join(f"{estimate(row, 'of_data'):.2f} with {row['case']['batch']:,}" for row in own)
            times.append(f"{by_batch} samples in a batch on {n} devices")
            known = {True: "use it with", False: "use data parallelism with", None: "one can't tell with"}
            for less, words in known.items():
                batches = [row for row in own if at_most(row, "of_data", 1.0) is less]
                if batches:
                    counts_of = ", ".join(f"{row['case']['batch']:,}" for row in batches)
                    why = f" ({unsure(batches[0], 'of_data')})" if less is None else ""
                    advice.append(f"{words} {counts_of}{why}")
            advice[-1] += f" samples on {n} devices"
        return (
            f"Layerwise partitioning's time over that of data parallelism is {'; '.join(times)}. It sends less up to a "
            f"batch of {params / sums:,.0f}, in {own[0]['metrics']['allreduces_forward']} all-reduces forward and "
            f"{own[0]['metrics']['allreduces_backward']} backward. By these times, {'; '.join(advice)}. It also "
            "divides the parameters, for layers that no device holds."
        )

    def columns(self) -> List[Column]:
        return [*super().columns(), Column("allreduces", "sums")]

    def draw(self, result: Result, figure: style.Figure) -> None:
        figure.set_figheight(2 * style.HEIGHT)
        times, moved = figure.subplots(2, 1, sharex=True)
        for strategy, n in dict.fromkeys((row["case"]["strategy"], row["case"]["split"]) for row in result["rows"]):
            rows = find_all(result["rows"], strategy=strategy, split=n)
            batches = [row["case"]["batch"] for row in rows]
            each = [row["metrics"]["seconds_per_step"] * 1e6 / row["case"]["batch"] for row in rows]
            (line,) = times.plot(batches, each, "o-", label=strategy + (f" x {n}" if n > 1 else ""))
            if strategy != SERIAL:
                moved.plot(batches, [row["metrics"]["bytes_moved"] / 1e6 for row in rows], "o-", color=line.get_color())
        params, sums = wide_numbers(result["settings"]["units"])
        times.set(xscale="log", yscale="log", ylabel="microseconds a sample")
        moved.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="MB moved a step")
        style.plain_logarithmic(moved.xaxis, moved.yaxis, times.yaxis)
        moved.set_xticks(sorted({row["case"]["batch"] for row in result["rows"]}))
        style.reference_line(moved, params / sums, f"{params / sums:,.0f}: both move as much")
        figure.legend(loc="outside lower center", ncols=2)
