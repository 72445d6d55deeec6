"""Does evaluation on all devices give one device's accuracy, and how long does it take?

Each device classifies its shard of a batch and counts its right answers; the host adds up whole numbers. So nothing is
rounded, and no replica talks to another: the cost model says that k devices with a core each take 1 / k of the time.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Settings, experiment
from mxdp.experiments.harness.rows import Row
from mxdp.plans.cost.link import speedup


@experiment
class ParallelEvaluation(Experiment):
    """LeNet's accuracy on the test set, by one device and by several."""

    name = "parallel-evaluation"
    question = "Can the accuracy be computed on all devices, and how much faster is that?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs', exercise 4"
    how_to_read = (
        "A round evaluates a trained network on the whole test set, in batches of 'batch_size' samples a device; the "
        "rows take turns. 'Speed-up' is the first row's time over this row's, round by round. 'Differs' counts by how "
        "many the right answers differ from one device's."
    )
    claims = {
        "same": Claim(
            "As many answers are right as on one device: 0 differ.", "ours: counts are not rounded", 0, exact=True
        ),
        "faster": Claim(
            "On k devices, which exchange nothing, it is at least 0.8 k times as fast.",
            "the cost model",
            0.8,
            least=True,
        ),
    }
    compared = "right answers in uneven batches, against the labels of the highest scores"
    common = dict(devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, batch_size=500, steps=100)
    presets = {
        "quick": dict(common, timeout=300.0),
        "full": dict(common, timeout=900.0),
    }
    little = dict(data="synthetic", batch_size=100, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        return [Case(plural(n, "device"), n) for n in settings["devices"]]

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{speedup(n, cores):.2f} on {plural(n, 'device')}" for n in settings["devices"] if n > 1]
        return f"The same accuracy. Speed-up over one device: {', '.join(said) or 'nothing to compare'}."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        first = next((row for row in rows if len(row.devices) == 1), None)
        for row in rows:
            row.metrics["samples_per_sec"] = row.metrics["samples"] / row.median
            if first:
                row.keep("speedup", first.ratios(row))
                row.keep("of_one", row.ratios(first))
                row.keep("differs", [abs(a - b) for a, b in zip(row.rounds["right"], first.rounds["right"])])
            if first and row is not first:
                row.keep("same", row.rounds["differs"])
                row.keep("faster", [each / len(row.devices) for each in row.rounds["speedup"]])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        several = [row for row in rows if "faster" in row.rounds]
        if not several:
            return "One device has nothing to compare with: run it with --devices 1,2."
        row = several[-1]
        same = "the same accuracy" if not any(row.rounds["same"]) else "another accuracy"
        return f"On {row.label} evaluation takes {row.estimate('of_one'):.2f} of one device's time and finds {same}."

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".3f"),
            Column("samples_per_sec", "samples/s", ",.0f"),
            Column("speedup", "speed-up", ".2f", spread=True),
            Column("test_accuracy", "accuracy", ".4f"),
            Column("differs", "differs", ".0f"),
        ]
