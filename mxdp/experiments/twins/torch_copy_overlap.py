"""``copy-overlap`` in PyTorch: can results be copied to the host while the next are computed?

The slides copy the results of 50 products to the host with the default stream and ordinary (pageable) memory: 0.12 s to
compute, 2.16 s to copy, 3.13 s for both "overlapped", longer than one after the other. Two things are missing there. A
copy to pageable memory makes the driver wait; to pinned memory it is a job of the GPU's. And work of one stream is done
in its order: copies need a stream of their own.
"""

from __future__ import annotations

from typing import List

from mxdp.experiments.engines import DDP, NEEDS
from mxdp.experiments.harness.claims import Claim, estimate
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, keep, row_bars
from mxdp.experiments.twins.common import LITTLE, PRESETS, RUN

PAGEABLE, PINNED = "pageable", "pinned"
DEFAULT, SIDE = "default stream", "side stream"
SLIDES = {"run": 0.12, "copy": 2.16, "both": 3.13}


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
        f"runs it without a GPU, where nothing overlaps. {RUN}"
    )
    claims = {
        "hidden": Claim(
            "From a GPU, copies to pinned memory in a stream of their own hide beside products: both take at most 1.15 "
            "times as long as the longer of the two.",
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
            "The sum of both for pageable memory and for one stream; the longer of the two for pinned memory and a "
            "side stream."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            parts = list(zip(row["seconds"]["samples"], row["rounds"]["run_ms"], row["rounds"]["copy_ms"]))
            keep(row, "over_longer", [both * 1e3 / max(run, copy) for both, run, copy in parts])
            keep(row, "over_sum", [both * 1e3 / (run + copy) for both, run, copy in parts])
            best = row["case"]["memory"] == PINNED and row["case"]["stream"] == SIDE
            if best and row["case"]["devices"][0].startswith("cuda"):
                row["rounds"]["hidden"] = row["rounds"]["over_longer"]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        slides, best = find(rows, memory=PAGEABLE, stream=DEFAULT), find(rows, memory=PINNED, stream=SIDE)
        assert slides is not None
        assert best is not None
        return (
            f"To pinned memory in a side stream, products and copies take {estimate(best, 'over_longer'):.2f} times as "
            f"long as the longer of the two; as the slides do it, {estimate(slides, 'over_longer'):.2f} times. On "
            f"{best['case']['devices'][0]} ({best['case']['processor']}); {settings['products']} products of "
            f"{settings['size']} x {settings['size']}."
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
        row_bars(figure, result["rows"], "ms", scale=[1e3] * len(result["rows"]))
