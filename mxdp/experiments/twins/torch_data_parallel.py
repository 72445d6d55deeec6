"""``epochs`` in PyTorch: one process, DataParallel, and DistributedDataParallel (DDP).

DataParallel is one process that copies the parameters to every GPU for each step; DDP gives each device a process and
sums gradients while backward runs. On GPUs DDP uses NCCL. Without any, two processes use Gloo on the CPU, so this runs
everywhere.
"""

from __future__ import annotations

from typing import List

from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import DDP, NEEDS
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style
from mxdp.experiments.twins.common import RUN, where
from mxdp.plans.cost.link import speedup

ONE, DP = "one process", "DataParallel"


@experiment
class TorchDataParallel(Experiment):
    """LeNet on one device, by DataParallel on two GPUs, and by DDP in two processes."""

    name = "torch-data-parallel"
    question = "PyTorch: what does a second device bring to a step?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs', in its PyTorch version; slides 'Multi-GPU'"
    how_to_read = (
        "A round is some steps of LeNet on batches of the same size; the rows take turns. 'Speed-up' is one process's "
        "time over the row's. DDP sums gradients while backward still computes others. It runs on GPUs by NCCL if "
        "there is one for each process, else on the CPU by Gloo, with one thread a process; so does the one process. "
        f"{RUN}"
    )
    claims = {
        "ddp_gain": Claim(
            "Two processes by DDP are at least 1.3 times as fast as one.",
            "the slides: DDP scales nearly linearly; the bound is ours, for a network as small as LeNet",
            1.3,
            least=True,
        )
    }
    needs = NEEDS[DDP]
    compared = "parameters of every process after three steps, against one process; bit for bit between processes"
    common = dict(kind="auto", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, rounds=1, timeout=300.0, steps=10),
        "full": dict(common, rounds=1, timeout=600.0, steps=20),
    }
    little = dict(data="synthetic", batch_size=24, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case("one process", 1, settings={"engine": ONE, "processes": 1, "data_parallel": 0}),
            Case("one process, DataParallel on 2 GPUs", 2, settings={"engine": DP, "processes": 1, "data_parallel": 2}),
            Case("two processes, DDP", 2, settings={"engine": DDP, "processes": 2, "data_parallel": 0}),
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return f"DDP's speed-up on the CPU, with {cores} cores: {speedup(2, cores):.2f}; on two GPUs up to 2.00."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        one = find(rows, engine=ONE)
        for row in rows:
            row.metrics["step_ms"] = row.median / settings["steps"] * 1e3
            if one:
                row.keep("speedup", one.ratios(row))
        ddp = find(rows, engine=DDP)
        if ddp and "speedup" in ddp.rounds:
            ddp.rounds["ddp_gain"] = ddp.rounds["speedup"]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        (ddp,), parallel = (find_all(rows, engine=engine) for engine in (DDP, DP))
        more = "".join(f", DataParallel {row.estimate('speedup'):.2f} times" for row in parallel)
        return (
            f"On {where(ddp)}, DDP in two processes makes a step {ddp.estimate('speedup'):.2f} times as fast as one "
            f"process does{more}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("step_ms", "ms/step", ".1f"),
            Column("speedup", "speed-up", ".2f", spread=True),
            Column("devices", "devices"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        scale = [row.metrics["step_ms"] / row.median for row in result["rows"]]
        style.row_bars(figure, result["rows"], "ms/step", scale=scale)
