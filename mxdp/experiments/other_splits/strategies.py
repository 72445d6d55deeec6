"""One network, split in every way: which way is the fastest?

Data parallelism cuts the batch, a pipeline the list of layers, layerwise partitioning each layer, and tiles the
pictures. All divide the work, and differ in what they send. Data parallelism sends the gradients of all parameters,
whatever the batch. The others send activations, which grow with the batch, and at most the gradients of the parameters
that devices share. So the cost model (:mod:`mxdp.experiments.other_splits.work.split`) recommends data parallelism for
few parameters and a large batch (LeNet: 129,000 parameters, 256 samples), and layerwise partitioning for many
parameters and a small batch (three dense layers: 2.9 million parameters, 32 samples).
"""

from __future__ import annotations

from typing import List

from mxdp.errors import either, plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, contenders, fastest, find_all
from mxdp.experiments.other_splits import panels
from mxdp.experiments.other_splits.split import (
    COLUMNS,
    FULL,
    ONE_DEVICE,
    QUICK,
    SERIAL,
    SplitExperiment,
    several,
    wide_numbers,
)
from mxdp.experiments.report import style

NETS = {"lenet": "LeNet", "wide": "Wide net"}
LENET_NUMBERS = 129_068, 4_860
"""As :func:`mxdp.experiments.other_splits.split.wide_numbers`."""
WAYS = {
    SERIAL: "serial training",
    "data": "data parallelism",
    "pipeline": "a pipeline",
    "layerwise": "layerwise partitioning",
    "tile": "tiles",
}
MICRO_BATCHES = 4


@experiment
class Strategies(SplitExperiment):
    """Serial, data, pipeline, layerwise and tile, on two networks."""

    name = "strategies"
    question = "Which way to split a network is the fastest?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs', the figure of the ways to split"
    how_to_read = (
        f"{COLUMNS} The pipeline is GPipe with {MICRO_BATCHES} micro-batches. The wide net has three dense layers and "
        "an eighth of the batch. A pipeline and layerwise partitioning also divide the parameters, for a network that "
        "does not fit on one device; tiles divide a single picture, which nothing else does."
    )
    claims = {
        "expected_of_fastest": Claim(
            "The cost model finds the fastest way to split each network: its choice takes at most 1.1 times as long as "
            "every other way, compared round by round.",
            "the cost model",
            1.1,
        )
    }
    alike = ("net",)
    presets = {
        "quick": dict(QUICK, rounds=1, repeats=12, batch_size=256, units=1024, steps=2),
        "full": dict(FULL, rounds=1, repeats=12, batch_size=256, units=2048, steps=2),
    }
    little = dict(batch_size=40, units=16, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{title}, {strategy}" + (f" x {n}" if strategy != SERIAL else ""),
                n,
                settings={"net": net, "strategy": strategy, "batch": _batch(net, settings)},
            )
            for net, title in NETS.items()
            for strategy in WAYS
            if (net, strategy) != ("wide", "tile")  # it has no pictures to cut into tiles
            for n in ([1] if strategy == SERIAL else several(settings))
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = []
        for net, title in NETS.items():
            samples = _batch(net, settings)
            params, sums = wide_numbers(settings["units"]) if net == "wide" else LENET_NUMBERS
            data, layers = 8 * params / 1e6, 8 * sums * samples / 1e6
            less = "data parallelism" if data < layers else "layerwise partitioning"
            said.append(
                f"{title}, batch {samples}: {less} sends less. On two devices the gradients are {style.number(data)} "
                f"MB, and the sums of layerwise partitioning {style.number(layers)} MB."
            )
        return f"{' '.join(said)} The work is divided by at most {plural(cores, 'core')}, in every way."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        super().finish(rows, references, settings)
        for net in NETS:
            own = find_all(rows, net=net)
            if len(own) > 1:
                best, reported = fastest(own)
                expected = min(own, key=lambda row: float(row.metrics["predicted_seconds"]))
                own[0].keep("serial_of_fastest", own[0].ratios(best), reported)
                for row in own:
                    if row is not expected:  # against itself alone it could not lose
                        row.keep("expected_of_fastest", expected.ratios(row))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not several(settings):
            return ONE_DEVICE
        said = []
        for net in NETS:
            own = find_all(rows, net=net)
            best, speed = fastest(own)[0], f", at {own[0].estimate('serial_of_fastest'):.2f} times one device's speed"
            said.append(f"{_named(best)}{speed if best is not own[0] else ''}")
        return f"For LeNet, the fastest way was {said[0]}; for the wide net it was {said[1]}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        said = []
        for net, title in NETS.items():
            best, reported = fastest(find_all(rows, net=net))
            close = contenders(find_all(rows, net=net), best, reported)[1:]
            if close:
                said.append(f"{title}: {either(map(_named, close))} may be as fast.")
        return " ".join(said)

    def draw(self, result: Result, figure: style.Figure) -> None:
        panels.draw(figure, [(title, find_all(result["rows"], net=net)) for net, title in NETS.items()])


def _batch(net: str, settings: Settings) -> int:
    return int(settings["batch_size"]) if net == "lenet" else max(1, settings["batch_size"] // 8)


def _named(row: Row) -> str:
    return f"{WAYS[row.case['strategy']]} on {plural(len(row.devices), 'device')}"
