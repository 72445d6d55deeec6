"""What does a second device bring to a larger network, through gluon?

The book trains ResNet-18 on small pictures with ``gluon.Trainer``, whose store sums the gradients: 13.2 s an epoch on
one GPU and 7.3 s on two, with the same batch a device. The cost model says as much: 11 million parameters are 45 MB to
sum, once a step, and a sample is some 3 billion operations.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.data_parallel.where_the_time_went import draw_parts
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find
from mxdp.experiments.report import style
from mxdp.plans.cost.link import speedup

TRAINERS = {"device": "MXNet's store", "mxdpauto": "mxdp's store", "mxdp.Trainer": "mxdp.Trainer"}
"""``gluon.Trainer`` with a store, or mxdp's."""


@experiment
class ResNet(Experiment):
    """ResNet-18 for pictures of 28 x 28 through gluon, by three ways to sum the gradients."""

    name = "resnet"
    question = "What does a second device bring to ResNet-18, through gluon?"
    source = "Dive into Deep Learning, 'Concise Implementation for Multiple GPUs', and its exercise 1"
    how_to_read = (
        "Each device trains on 'batch_size' samples a step, as in the book, so two devices take twice the batch. A "
        "round is 'steps' steps; the rows take turns. 'MXNet's store' and 'mxdp's store': `gluon.Trainer` with "
        "kvstore='device' and 'mxdpauto'; 'hybrid': the network is hybridised. 'Of one' is the time a sample over that "
        "of one device, round by round: what an epoch takes. 'Of MXNet' is the time over that of MXNet's store. The "
        "picture splits one more step after each round, which is recorded."
    )
    claims = {
        "book": Claim(
            "On two devices an epoch takes at most 0.6 of one device's time (the book: 7.3 s for 13.2 s, or 0.55).",
            "the book's results, on GPUs",
            0.6,
        ),
        "no_slower": Claim(
            "On several devices `mxdp.Trainer` takes at most 1.05 times the time of MXNet's store.", "ours", 1.05
        ),
    }
    compared = "summed gradients and updated parameters of every replica with those of the shards, one by one"
    together = True  # in a process each, eight networks would need 12 GB
    common = dict(devices=[1, 2], kind="auto", seed=0, width=64)
    presets = {
        "quick": dict(common, batch_size=8, steps=2, rounds=1, timeout=300.0),
        "full": dict(common, batch_size=16, steps=5, rounds=1, timeout=900.0),
    }
    little = dict(batch_size=2, steps=1, width=4)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{plural(n, 'device')}{f', {words}' * (n > 1)}{', hybrid' * hybrid}",
                n,
                settings={"trainer": trainer, "hybrid": hybrid},
            )
            for hybrid in (False, True)
            for n in settings["devices"]
            for trainer, words in TRAINERS.items()
            if n > 1 or trainer == "device"
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{1 / speedup(n, cores):.2f} on {plural(n, 'device')}" for n in settings["devices"] if n > 1]
        return f"Without the sums an epoch takes {', '.join(said) or '1.00'} of one device's time."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            devices, hybrid = len(row.devices), row.case["hybrid"]
            row.metrics["samples_per_sec"] = devices * settings["batch_size"] / row.median
            one = next((each for each in rows if len(each.devices) == 1 and each.case["hybrid"] == hybrid), None)
            mxnets = find(rows, devices=row.case["devices"], hybrid=hybrid, trainer="device")
            if one and devices > 1:
                row.keep("of_one", [ratio / devices for ratio in row.ratios(one)])
            if mxnets and devices > 1:
                row.keep_ratios("of_mxnet", mxnets)
            if devices == 2 and "of_one" in row.rounds and row.case["trainer"] == "device":
                row.keep("book", row.rounds["of_one"])
            if "of_mxnet" in row.rounds and row.case["trainer"] == "mxdp.Trainer":
                row.keep("no_slower", row.rounds["of_mxnet"])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        row = next((row for row in reversed(rows) if {"of_one", "no_slower"} <= set(row.rounds)), None)
        if row is None:
            return "One device has nothing to compare with: run it with --devices 1,2."
        of_one, of_mxnet = row.estimate("of_one"), row.estimate("no_slower")
        return (
            f"On {plural(len(row.devices), 'device')} an epoch of ResNet-18 by mxdp.Trainer takes {of_one:.2f} of one "
            f"device's time, and {of_mxnet:.2f} of MXNet's store's time."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        books = next((row for row in rows if "book" in row.rounds), None)
        said = (
            f" The book's own way, not hybridised, takes {books.estimate('book'):.2f} here and took 0.55 on two GPUs."
            if books
            else ""
        )
        return f"The batch grows with the devices, so all-reduces are fewer for the same samples.{said}"

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "ms", ".0f", 1e3),
            Column("samples_per_sec", "samples/s", ",.1f"),
            Column("of_one", "of one", ".2f", spread=True),
            Column("of_mxnet", "of MXNet", ".2f", spread=True),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        """A bar for each row, in its parts."""
        draw_parts(figure, [row for row in result["rows"] if "compute" in row.metrics])
