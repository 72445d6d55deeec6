"""Each layer split over all devices: for which batches does that send less than data parallelism, and is it faster?

Data parallelism sums the gradients of all P parameters, whatever the batch. Layerwise partitioning sums A activations a
sample, so it sends less up to a batch of P / A. Both divide the work alike, but only layerwise partitioning divides the
update of the parameters. Three dense layers of u units, from 784 inputs to 10 outputs, have P of about 2 u^2 + 794 u,
and A = 2 u + 10: forward u outputs and the 10 scores, backward u gradients.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.other_splits import split
from mxdp.experiments.other_splits.split import ONE_DEVICE, SERIAL, several, wide_numbers
from mxdp.experiments.report import style

DATA, LAYERWISE = "data", "layerwise"


@experiment
class LayerwiseExperiment(split.SplitExperiment):
    """Three dense layers on one device, by data parallelism and layer by layer, for several batches."""

    name = "layerwise"
    question = "With small batches, is it faster to split the layers than the batch?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs': layerwise partitioning"
    how_to_read = (
        f"Three dense layers. {split.COLUMNS} 'Of data' is the time over that of data parallelism. In the "
        "picture, the dashed line is the batch with which both ways move the same number of bytes."
    )
    claims = {
        "faster_when_small": Claim(
            "With the smallest batch, if it sends less there, it takes at most as long as data parallelism.",
            "the cost model",
            1.0,
        ),
        "loses_ground": Claim(
            "With the largest batch, its time over that of data parallelism is at least what it is with the smallest.",
            "the cost model",
            1.0,
            least=True,
        ),
    }
    alike = ("batch",)
    presets = {
        "quick": dict(split.QUICK, units=512, batch_sizes=[16, 128, 2048], steps=3),
        "full": dict(split.FULL, units=1024, batch_sizes=[8, 128, 2048], steps=3),
    }
    checks = {"batch_sizes": split.INTEGERS}
    little = dict(units=16, batch_sizes=[4, 16], steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"batch {samples:,}, {strategy}{f' x {n}' if n > 1 else ''}", n, settings=dict(
                net="wide", strategy=strategy, batch=samples, split=n,
            ))
            for samples in sorted(settings["batch_sizes"])
            for strategy, n in [(SERIAL, 1), *((each, n) for n in several(settings) for each in (DATA, LAYERWISE))]
        ]  # fmt: skip

    def predict(self, settings: Settings, cores: int) -> str:
        params, sums = wide_numbers(settings["units"])
        return (
            f"The network has {params:,} parameters, and layerwise partitioning sums {sums:,} a sample, so it sends "
            f"less up to a batch of {params / sums:,.0f}. The work is divided by at most {plural(cores, 'core')}."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        super().finish(rows, references, settings)
        params, sums = wide_numbers(settings["units"])
        for row in find_all(rows, strategy=LAYERWISE):
            row.keep_ratios("of_data", find(rows, strategy=DATA, split=row.case["split"], batch=row.case["batch"]))
        for n in several(settings):
            own = [row for row in find_all(rows, strategy=LAYERWISE, split=n) if "of_data" in row.rounds]
            first, last = (find(own, batch=end(settings["batch_sizes"])) for end in (min, max))
            if first and first.case["batch"] < params / sums:
                first.keep("faster_when_small", first.rounds["of_data"])
            if first and last and first is not last:
                last.keep("loses_ground", last.ratios(first, "of_data"))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not several(settings):
            return ONE_DEVICE
        n = several(settings)[0]
        own = find_all(rows, strategy=LAYERWISE, split=n)
        times = [f"{row.estimate('of_data'):.2f} times as long with a batch of {row.case['batch']:,}" for row in own]
        ends = " and ".join(dict.fromkeys([times[0], times[-1]]))
        return f"On {n} devices, splitting the layers instead of the batch takes {ends}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        params, sums = wide_numbers(settings["units"])
        return f"Layerwise partitioning sends less than data parallelism up to a batch of {params / sums:,.0f}."

    def columns(self) -> List[Column]:
        return [*super().columns(), Column("of_data", "of data", ".2f", spread=True)]

    def draw(self, result: Result, figure: style.Figure) -> None:
        figure.set_figheight(2.2 * style.HEIGHT)
        times, moved = figure.subplots(2, 1)
        for strategy, n in dict.fromkeys((row.case["strategy"], row.case["split"]) for row in result["rows"]):
            rows = find_all(result["rows"], strategy=strategy, split=n)
            batches = [row.case["batch"] for row in rows]
            each = [row.metrics["seconds_per_step"] * 1e6 / row.case["batch"] for row in rows]
            (line,) = times.plot(batches, each, "o-", label=strategy + (f" x {n}" if n > 1 else ""))
            if strategy != SERIAL:
                moved.plot(batches, [row.metrics["bytes_moved"] / 1e6 for row in rows], "o-", color=line.get_color())
        params, sums = wide_numbers(result["settings"]["units"])
        times.set(title="Time", ylabel="microseconds a sample")
        moved.set(ylabel="MB a step")
        moved.set_title("Moved between devices", pad=20)  # above the text of the line
        for axes in (times, moved):
            axes.set(xscale="log", yscale="log", xlabel="samples in a batch")
            style.plain_logarithmic(axes.xaxis, axes.yaxis)
            axes.set_xticks(sorted({row.case["batch"] for row in result["rows"]}))
        style.reference_line(moved, params / sums, f"{params / sums:,.0f}: both move as much")
        figure.legend(loc="outside lower center", ncols=2)
