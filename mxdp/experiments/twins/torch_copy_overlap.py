"""``copy-overlap`` in PyTorch: can results be copied to the host while the next are computed?

The slides copy the results of 50 products to the host in the default stream and to ordinary (pageable) memory: 0.12 s
to compute, 2.16 s to copy, 3.13 s for both "overlapped", longer than one after the other. Two things are missing. A
copy to pageable memory makes the driver wait; a copy to pinned memory is a job of the GPU. And a stream does its work
in order, so copies need a stream of their own.
"""

from __future__ import annotations

from typing import List

from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import DDP, NEEDS
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.report import style
from mxdp.experiments.twins.common import LITTLE, PRESETS, where

PAGEABLE, PINNED = "pageable", "pinned"
DEFAULT, SIDE = "default stream", "side stream"


@experiment
class TorchCopyOverlap(Experiment):
    """Pageable and pinned memory, one stream and two."""

    name = "torch-copy-overlap"
    question = "PyTorch: can results be copied to the host while the next are computed?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', in its PyTorch version, and its slides"
    how_to_read = (
        "In ms, run: the products alone; copy: the copies of their results to the host alone; both: each copy pushed "
        "after its product, with one wait at the end. '/longer' is both over the longer of the two (1: the other is "
        "hidden), '/sum' both over their sum (1: nothing is hidden). The slides: 120 ms, 2160 ms, 3130 ms. --kind cpu "
        "runs it without a GPU, where nothing overlaps."
    )
    claims = {
        "hidden": Claim(
            "From a GPU to pinned memory, in a stream of their own, copies beside products take at most 1.15 times as "
            "long as the longer of the two.",
            "the slides say 'Overlapping shaves real time'; the bound is ours",
            1.15,
        )
    }
    needs = NEEDS[DDP]
    compared = "the copies on the host, against NumPy's products, exactly"
    presets = PRESETS
    little = LITTLE

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{memory}, {stream}", 1, settings={"memory": memory, "stream": stream})
            for memory in (PAGEABLE, PINNED)
            for stream in (DEFAULT, SIDE)
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "Both take as long as the longer of the two with pinned memory and a side stream, otherwise as long as one "
            "after the other."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            parts = list(zip(row.samples, row.rounds["run_ms"], row.rounds["copy_ms"]))
            row.keep("over_longer", [both * 1e3 / max(run, copy) for both, run, copy in parts])
            row.keep("over_sum", [both * 1e3 / (run + copy) for both, run, copy in parts])
            best = row.case["memory"] == PINNED and row.case["stream"] == SIDE
            if best and row.devices[0].startswith("cuda"):
                row.rounds["hidden"] = row.rounds["over_longer"]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        (slides,), (best,) = (
            find_all(rows, memory=memory, stream=stream) for memory, stream in ((PAGEABLE, DEFAULT), (PINNED, SIDE))
        )
        return (
            f"On {where(best)}, products and copies take {best.estimate('over_longer'):.2f} times the longer one's "
            "time with pinned memory and a side stream; as the slides do it, "
            f"{slides.estimate('over_longer'):.2f} times."
        )

    def columns(self) -> List[Column]:
        return [
            Column("run_ms", "run", ".1f"),
            Column("copy_ms", "copy", ".1f"),
            Column("seconds", "both", ".1f", 1e3, spread=True),
            Column("over_longer", "/longer", ".2f", spread=True),
            Column("over_sum", "/sum", ".2f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        style.row_bars(figure, result["rows"], "ms", scale=[1e3] * len(result["rows"]))
