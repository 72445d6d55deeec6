"""Each layer over all devices: up to which batch does that send less than data parallelism, and is it faster?

Data parallelism sums the gradients of all P parameters, whatever the batch. Layerwise partitioning sums activations:
A numbers for each sample, in one all-reduce a pair of layers and direction. Both sums move 2 (n - 1) times as many
numbers between n devices. So layerwise partitioning sends less up to a batch of P / A, and data parallelism from there
on; the work is divided alike. Three dense layers of u units from 784 inputs to 10 outputs have P of about 2 u^2 + 794 u
parameters, and A = 2 u + 10: forward the second layer's u outputs and the 10 scores, backward the u gradients of what
the third layer was given.

There is a second thing: with data parallelism every device updates all parameters, with layerwise partitioning its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Tuple

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
from mxdp.experiments.report.rows import find, metric, plural, ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mxdp.experiments.other_splits.work.splits import Speeds, Split

SERIAL, DATA, LAYERWISE = "serial", "data", "layerwise"
ODD = 13
"""Samples that the oracle compares."""


@experiment
class LayerwiseExperiment(Experiment):
    """Three dense layers on one device, by data parallelism and layer by layer, for several batches."""

    name = "layerwise"
    question = "Up to which batch is it better to split the layers than the batch?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs': layerwise partitioning"
    how_to_read = (
        "Three dense layers, milliseconds a step (forward, backward, update). 'Sums': all-reduces of activations "
        "forward + backward, counted as they were done. Moved: MB between devices in a step, from the shapes. Memory: "
        "MB on the device that needs most, as MXNet counts it, and predicted from the shapes. 'Faster': than one "
        "device with the same batch. In the picture, dashed: the batch with which both move as much."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2], kind="auto", seed=0, rounds=7, timeout=120.0, units=512, batch_sizes=[16, 128, 2048], steps=3,
        ),
        "full": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=9, timeout=1200.0, units=1024,
            batch_sizes=[8, 64, 512, 4096], steps=5,
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        self._speeds: Dict[Tuple[int, int], Speeds] = {}

    def cases(self, settings: Settings) -> List[Case]:
        counts = [n for n in settings["devices"] if n > 1]
        return [
            Case(
                f"batch {samples:,}, {strategy}" + (f" x {n}" if n > 1 else ""),
                n,
                settings={"strategy": strategy, "batch": samples, "split": n},
            )
            for samples in settings["batch_sizes"]
            for strategy, n in [(SERIAL, 1), *((each, n) for n in counts for each in (DATA, LAYERWISE))]
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        params, sums = _numbers(settings["units"])
        return (
            f"{params:,} parameters, or {sums:,} sums a sample: layerwise partitioning sends less up to a batch of "
            f"{params / sums:,.0f}, whatever the number of devices. Two all-reduces forward, one backward. The work is "
            f"divided by up to {plural(cores, 'core')}."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        checked, wrong = _split(case, settings).check(ODD)
        return Oracle(checked, wrong, "losses, scores, each gradient and, after three steps, each parameter")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.other_splits.work.splits import Steps, measure_speeds, predict_step

        split, samples = _split(case, settings), case.settings["batch"]
        steps = Steps(split, samples)
        key = (case.devices, samples)
        if key not in self._speeds:
            self._speeds[key] = measure_speeds(split.net, split.shape, split.devices, samples, settings["seed"])
        metrics = steps.metrics()
        metrics["predicted_seconds"] = predict_step(split, steps.made, samples, self._speeds[key])
        counted = getattr(steps.made, "allreduces", {"forward": 0, "backward": 0})
        metrics["allreduces_forward"], metrics["allreduces_backward"] = counted["forward"], counted["backward"]
        yield Ready([str(device) for device in split.devices])
        while True:
            yield Round(steps.seconds(settings["steps"]), metrics)

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics = row["metrics"]
            metrics["seconds_per_step"] = row["seconds"]["median"]
            metrics["predicted_over_measured"] = metrics["predicted_seconds"] / metrics["seconds_per_step"]
            serial = find(rows, batch=row["case"]["batch"], strategy=SERIAL)
            metrics["speedup"] = ratio(serial, row) if serial else None
            data = find(rows, batch=row["case"]["batch"], strategy=DATA, split=row["case"]["split"])
            if row["case"]["strategy"] == LAYERWISE and data:
                metrics["of_data"] = ratio(row, data)

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        counts = [n for n in settings["devices"] if n > 1]
        if not counts:
            return Verdict(None, "One device has nothing to split: run it with --devices 2.")
        params, sums = _numbers(settings["units"])
        said, agree = [f"It sends less up to a batch of {params / sums:,.0f}."], []
        for n in counts:
            own = [row for row in rows if row["case"]["strategy"] == LAYERWISE and row["case"]["split"] == n]
            times = ", ".join(f"{row['metrics']['of_data']:.2f} at {row['case']['batch']:,}" for row in own)
            said.append(f"On {n} devices it takes this much of data parallelism's time, by batch: {times}.")
            # With the smallest batch it must be the faster one, and lose ground from there to the largest.
            first, last = own[0]["metrics"]["of_data"], own[-1]["metrics"]["of_data"]
            agree.append(first < 1 and (first < last or len(own) == 1))
            counted = own[0]["metrics"]
            said.append(
                f"All-reduces: {counted['allreduces_forward']} forward, {counted['allreduces_backward']} backward."
            )
        said.append(
            "Use it for layers with many parameters and few samples, or where no device holds all parameters; else "
            "data parallelism."
        )
        return Verdict(all(agree), " ".join(said))

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: style.number(row["seconds"]["median"] * 1e3)),
            Column("pred.", lambda row: style.number(row["metrics"]["predicted_seconds"] * 1e3)),
            metric("speedup", "faster", "{:.2f}x"),
            Column("sums", lambda row: "{allreduces_forward} + {allreduces_backward}".format(**row["metrics"])),
            Column("moved MB", lambda row: style.number(row["metrics"]["bytes_moved"] / 1e6)),
            Column("MB", lambda row: style.number(row["metrics"]["peak_bytes"] / 1e6)),
            Column("pred.", lambda row: style.number(row["metrics"]["predicted_peak_bytes"] / 1e6)),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        from matplotlib.ticker import LogLocator, NullLocator, StrMethodFormatter

        figure.set_figheight(2 * style.HEIGHT)
        times, moved = figure.subplots(2, 1, sharex=True)
        lines = list(dict.fromkeys((row["case"]["strategy"], row["case"]["split"]) for row in result["rows"]))
        for number, (strategy, n) in enumerate(lines):
            rows = [row for row in result["rows"] if (row["case"]["strategy"], row["case"]["split"]) == (strategy, n)]
            batches = [row["case"]["batch"] for row in rows]
            colour = style.COLOURS[number % len(style.COLOURS)]
            each = [row["metrics"]["seconds_per_step"] * 1e6 / row["case"]["batch"] for row in rows]
            times.plot(batches, each, "o-", color=colour, label=strategy + (f" x {n}" if n > 1 else ""))
            if strategy != SERIAL:
                moved.plot(batches, [row["metrics"]["bytes_moved"] / 1e6 for row in rows], "o-", color=colour)
        params, sums = _numbers(result["settings"]["units"])
        times.set(xscale="log", yscale="log", ylabel="microseconds a sample")
        moved.set(xscale="log", yscale="log", xlabel="samples in a batch", ylabel="MB moved a step")
        moved.set_xticks(sorted({row["case"]["batch"] for row in result["rows"]}))
        moved.xaxis.set_minor_locator(NullLocator())
        for axis in (moved.xaxis, moved.yaxis, times.yaxis):
            axis.set_major_formatter(StrMethodFormatter("{x:,.6g}"))
        for axis in (moved.yaxis, times.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_minor_locator(NullLocator())
        style.reference_line(moved, params / sums, f"{params / sums:,.0f}")
        figure.legend(loc="outside lower center", ncols=2)


def _numbers(units: int) -> Tuple[int, int]:
    """Parameters, and what layerwise partitioning sums for a sample, there and back."""
    return (784 + 1) * units + 2 * (units + 1) * units + 10 * (units + 1), 2 * units + 10


def _split(case: Case, settings: Settings) -> Split:
    from mxdp.experiments.measure.devices import devices_of
    from mxdp.experiments.other_splits.work.splits import Split, network

    net, shape = network("wide", settings["units"])
    return Split(case.settings["strategy"], net, shape, devices_of(case, settings), settings["seed"], {})
