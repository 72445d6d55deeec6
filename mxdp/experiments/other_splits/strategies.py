"""One network, split in every way there is: which is the fastest, which moves least, which needs least memory?

Data parallelism cuts the batch, a pipeline the list of layers, layerwise partitioning each layer, and tiles cut the
pictures. Each divides the work; they differ in what then has to be sent. Data parallelism sends the gradients of all
parameters, whatever the batch; the others send activations, which grow with the batch, and at most the gradients of
the parameters that they share. So the cost model says: data parallelism for a network with few parameters and a large
batch (LeNet: 129,000 parameters, 256 samples), layerwise for one with many parameters and a small batch (three dense
layers: 2.9 million parameters, 32 samples).

Before a step's time is predicted, each layer is measured alone; how its time is divided, and what is sent, follows from
the strategy (:mod:`mxdp.experiments.other_splits.work.splits`).
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
from mxdp.experiments.other_splits.split_pictures import Block, Panel, side_by_side
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, metric, plural, ratio

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from mxdp.experiments.other_splits.work.splits import Speeds, Split

SERIAL = "serial"
NETS = {"lenet": "LeNet", "wide": "wide net"}
LENET_NUMBERS = 129_068, 4_860
"""Parameters, and numbers that a step of layerwise partitioning sums over devices for one sample."""
STRATEGIES = {
    "lenet": (SERIAL, "data", "pipeline", "layerwise", "tile"),
    "wide": (SERIAL, "data", "pipeline", "layerwise"),  # no pictures, no tiles
}
SMALLER = 8
"""The wide net's batch is so many times smaller."""
MICRO_BATCHES = 4
ODD = 13
"""Samples that the oracle compares: they don't divide by anything."""
CLOSE = 1.1
"""As fast as the fastest, within the noise."""


@experiment
class Strategies(Experiment):
    """Serial, data, pipeline, layerwise and tile, on two networks."""

    name = "strategies"
    question = "Which way to split a network is the fastest, and what does each move and keep?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs', the figure of the ways to split"
    how_to_read = (
        "Milliseconds a step (forward, backward, update), and what the cost model expected of it. 'Faster': than one "
        "device. Moved: MB that a step sends between devices, from the shapes. Memory: MB at a time on the device that "
        "needs most, as MXNet counts it, and predicted from the shapes. Pipeline: GPipe with 4 micro-batches. The wide "
        "net has three dense layers and an eighth of the batch."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2], kind="auto", seed=0, rounds=7, timeout=120.0, batch_size=256, units=1024, steps=4,
        ),
        "full": dict(
            devices=[2, 4], kind="auto", seed=0, rounds=9, timeout=1200.0, batch_size=256, units=2048, steps=8,
        ),
    }  # fmt: skip

    def __init__(self) -> None:
        self._speeds: Dict[Tuple[str, int], Speeds] = {}

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{NETS[net]}, {strategy}" + (f" x {n}" if strategy != SERIAL else ""),
                n,
                settings={"net": net, "strategy": strategy, "batch": _batch(net, settings)},
            )
            for net, strategies in STRATEGIES.items()
            for strategy in strategies
            for n in ([1] if strategy == SERIAL else [n for n in settings["devices"] if n > 1])
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = []
        for net in NETS:
            samples = _batch(net, settings)
            params, sums = _numbers(settings["units"]) if net == "wide" else LENET_NUMBERS
            data, layers = 8 * params / 1e6, 8 * sums * samples / 1e6
            less = "data parallelism" if data < layers else "layerwise partitioning"
            said.append(
                f"{_title(net)}, batch {samples}: {style.number(data)} MB of gradients on two devices, or "
                f"{style.number(layers)} MB layer by layer: {less} sends less."
            )
        return f"{' '.join(said)} The work is divided alike by all, at most by {plural(cores, 'core')}."

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        checked, wrong = _split(case, settings).check(ODD)
        return Oracle(checked, wrong, "losses, scores, each gradient and, after three steps, each parameter")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.experiments.other_splits.work.splits import Steps, measure_speeds, predict_step

        split, samples = _split(case, settings), case.settings["batch"]
        steps = Steps(split, samples)
        key = (case.settings["net"], case.devices)
        if key not in self._speeds:
            self._speeds[key] = measure_speeds(split.net, split.shape, split.devices, samples, settings["seed"])
        metrics = steps.metrics()
        metrics["predicted_seconds"] = predict_step(split, steps.made, samples, self._speeds[key])
        yield Ready([str(device) for device in split.devices])
        while True:
            yield Round(steps.seconds(settings["steps"]), metrics)

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            metrics = row["metrics"]
            metrics["seconds_per_step"] = row["seconds"]["median"]
            metrics["predicted_over_measured"] = metrics["predicted_seconds"] / metrics["seconds_per_step"]
            serial = find(rows, net=row["case"]["net"], strategy=SERIAL)
            metrics["speedup"] = ratio(serial, row) if serial else None

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        if max(settings["devices"]) == 1:
            return Verdict(None, "One device has nothing to split: run it with --devices 2.")
        said, right = [], []
        for net in NETS:
            own = find_all(rows, net=net)
            fastest = min(own, key=lambda row: row["seconds"]["median"])
            expected = min(own, key=lambda row: float(row["metrics"]["predicted_seconds"]))
            right.append(expected["seconds"]["median"] <= CLOSE * fastest["seconds"]["median"])
            said.append(_recommendation(_title(net), own, fastest, expected))
        said.append(
            "A pipeline or layerwise partitioning divides the parameters, too: for a network that no device holds "
            "whole. Tiles divide a single picture, which nothing else does."
        )
        return Verdict(all(right), " ".join(said))

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: style.number(row["seconds"]["median"] * 1e3)),
            Column("pred.", lambda row: style.number(row["metrics"]["predicted_seconds"] * 1e3)),
            metric("speedup", "faster", "{:.2f}x"),
            Column("moved MB", lambda row: style.number(row["metrics"]["bytes_moved"] / 1e6)),
            Column("memory MB", lambda row: style.number(row["metrics"]["peak_bytes"] / 1e6)),
            Column("MB pred.", lambda row: style.number(row["metrics"]["predicted_peak_bytes"] / 1e6)),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        blocks = []
        for net in NETS:
            rows = find_all(result["rows"], net=net)
            if not rows:
                continue
            colours = [style.COLOURS[STRATEGIES["lenet"].index(row["case"]["strategy"])] for row in rows]
            labels = [_strategy(row) for row in rows]
            blocks.append(Block(f"{_title(net)}, batch {rows[0]['case']['batch']}", labels, colours, _panels(rows)))
        side_by_side(figure, blocks)


def _panels(rows: List[Row]) -> List[Panel]:
    def all_of(name: str, factor: float) -> List[Any]:
        found = [row["metrics"][name] for row in rows]
        return [value if value is None else value * factor for value in found]

    low, high = ([row["seconds"][end] * 1e3 for row in rows] for end in ("min", "max"))
    return [
        Panel("ms a step", all_of("seconds_per_step", 1e3), low, high, all_of("predicted_seconds", 1e3)),
        Panel("MB moved", all_of("bytes_moved", 1e-6)),
        Panel("MB a device", all_of("peak_bytes", 1e-6), predicted=all_of("predicted_peak_bytes", 1e-6)),
    ]


def _strategy(row: Row) -> str:
    return str(row["label"]).split(", ")[-1]


def _title(net: str) -> str:
    return NETS[net][0].upper() + NETS[net][1:]


def _batch(net: str, settings: Settings) -> int:
    return int(settings["batch_size"]) if net == "lenet" else max(1, settings["batch_size"] // SMALLER)


def _numbers(units: int) -> Tuple[int, int]:
    """Of the wide net: parameters, and what layerwise partitioning sums for a sample, there and back."""
    return (784 + 1) * units + 2 * (units + 1) * units + 10 * (units + 1), 2 * units + 10


def _split(case: Case, settings: Settings) -> Split:
    from mxdp.experiments.measure.devices import devices_of
    from mxdp.experiments.other_splits.work.splits import Split, network

    net, shape = network(case.settings["net"], settings["units"])
    strategy = case.settings["strategy"]
    options: Dict[str, Any] = {}
    if strategy == "pipeline":
        options = {"micro_batches": MICRO_BATCHES, "schedule": "gpipe", "batch_size": case.settings["batch"]}
    return Split(strategy, net, shape, devices_of(case, settings), settings["seed"], options)


def _recommendation(name: str, rows: List[Row], fastest: Row, expected: Row) -> str:
    """What to use for this network, with the numbers."""
    times = ", ".join(
        f"{_strategy(row)} {style.number(row['seconds']['median'] * 1e3)}"
        for row in sorted(rows, key=lambda row: float(row["seconds"]["median"]))
    )
    least = min((row for row in rows if row["metrics"]["peak_bytes"]), key=_peak, default=None)
    memory = f"; least memory a device: {_strategy(least)} ({style.number(_peak(least) / 1e6)} MB)" if least else ""
    return (
        f"{name}, batch {fastest['case']['batch']}: use {_named(fastest)} (ms a step: {times}); the cost model "
        f"expected {_named(expected)}{memory}."
    )


def _named(row: Row) -> str:
    strategy, n = row["case"]["strategy"], len(row["case"]["devices"])
    return "one device" if strategy == SERIAL else f"{strategy} on {n} devices"


def _peak(row: Row) -> float:
    return float(row["metrics"]["peak_bytes"])
