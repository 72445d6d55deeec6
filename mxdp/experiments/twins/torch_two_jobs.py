"""``two-jobs`` in PyTorch: do independent jobs on two GPUs take as long as one?

MXNet's CUDA wheels have no code for GPUs of compute capability 9.0 and later; PyTorch's have. Both run Python ahead of
the device, so the slides' code reads alike. With one GPU the jobs share it, in two streams: a large product fills a GPU
by itself, so there is little to gain.
"""

from __future__ import annotations

import statistics
from typing import List

from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import DDP, NEEDS
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.report import style
from mxdp.experiments.twins.common import LITTLE, PRESETS, RUN, where

ALONE, TURN, ONCE = "alone", "in turn", "at once"


@experiment
class TorchTwoJobs(Experiment):
    """Products on each of two GPUs (or streams) alone, on one after the other, and on both at once."""

    name = "torch-two-jobs"
    question = "PyTorch: do independent jobs on two GPUs take as long as one?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', in its PyTorch version"
    how_to_read = (
        "'Over one' is a row's time over the mean time of a job alone, the median over the rounds. 1 means that the "
        "jobs run side by side, 2 that one waits for the other. On one GPU the two jobs run in two streams, and "
        "nothing is judged. --kind cpu runs it without a GPU: PyTorch computes on the CPU while Python waits, so jobs "
        f"there run one after the other. {RUN}"
    )
    claims = {
        "both_over_one": Claim(
            "Jobs on two GPUs at once take at most 1.1 times as long as one job.",
            "the slides, where both took 1.02 times as long on two GPUs; read as 10 %",
            1.1,
        )
    }
    needs = NEEDS[DDP]
    compared = "products, against NumPy's, exactly"
    presets = PRESETS
    little = LITTLE

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case("job 1 alone", 1, settings={"run": ALONE, "job": 0}),
            Case("job 2 alone", 1, settings={"run": ALONE, "job": 1}),
            Case("both jobs, in turn", 2, settings={"run": TURN}),
            Case("both jobs at once", 2, settings={"run": ONCE}),
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return "Both at once over one: 1.00 on two GPUs; up to 2.00 on one GPU, if a product fills it; 2.00 on the CPU."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        alone = find_all(rows, run=ALONE)
        for row in rows if len(alone) == 2 else ():
            rounds = zip(*(each.samples for each in (row, *alone)))
            judged = row.case["run"] == ONCE and len({*row.case["devices"]}) > 1
            name = "both_over_one" if judged else "over_one"
            row.keep(name, [mine / statistics.mean(ones) for mine, *ones in rounds])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        (once,) = find_all(rows, run=ONCE)
        over = once.estimate("both_over_one" if "both_over_one" in once.rounds else "over_one")
        return f"On {where(once)}, two jobs at once take {over:.2f} times as long as one job alone."

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".4f", spread=True),
            Column(("both_over_one", "over_one"), "over one", ".2f", spread=True),
            Column("devices", "devices"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        style.row_bars(figure, result["rows"], "s", [style.COLOURS[row.case.get("job", 2)] for row in result["rows"]])
