"""What do mxdp's settings and data path bring over the book's loop as it stands?

Both train the same network on the same data, with equal batches, learning rate and start.

- The book's loop (``measure/book_loop.py``): a data loader with four worker processes and a Python call for each
  sample, the book's operators, a ``waitall`` after each step, and MXNet's default environment, in which the devices
  wait for each other (see ``two-jobs``): two take as long as one.
- mxdp's: the data in memory, oneDNN's operators, and a process whose CPU contexts share nothing: two take half.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.environments import defaults
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style
from mxdp.plans.cost.link import speedup

BOOK = "`pip install --no-deps d2l==1.0.3` and `pip install ipython matplotlib-inline pandas`, or `make run`"


@experiment
class StockLoop(Experiment):
    """The book's loop and mxdp's, on one and on several devices."""

    name = "stock-loop"
    question = "What do mxdp's settings and data path bring over the book's loop as it stands?"
    source = "Dive into Deep Learning, 'Training on Multiple GPUs'; MXNet's default environment"
    how_to_read = (
        "A round is an epoch of 'samples' samples, data path included; the rows take turns, and each process goes on "
        "with the training of the one before it. 'Of the book's' is the "
        "row's time over that of the book's loop on as many devices, round by round. With MXNet's default "
        "threads the book's loop hangs on several devices where there are four cores or more; there it gets "
        "OMP_NUM_THREADS=1. 'Accuracy': on the test set, after the last round. The two loops shuffle differently."
    )
    claims = {
        "halves": Claim(
            "On several devices mxdp needs half of the book's time: at most 0.55 times as long.",
            "the cost model, which says at most half on two devices",
            0.55,
        )
    }
    compared = "gradients and parameters of every replica, against mxdp on one device"
    needs = dict.fromkeys(("d2l", "IPython", "matplotlib_inline", "pandas"), BOOK)
    common = dict(kind="auto", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, devices=[1, 2], rounds=1, timeout=300.0, samples=4352),
        "full": dict(common, devices=[2], rounds=1, timeout=900.0, samples=7680),
    }
    little = dict(devices=[2], samples=80, batch_size=40)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for n in settings["devices"]:
            for loop, environment in (("mxdp", {}), ("book", defaults(n))):
                settled = {"loop": loop, "num_devices": n}
                cases.append(Case(f"{loop}, {plural(n, 'device')}", n, settings=settled, environment=environment))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        said = [f"{1 / speedup(n, cores):.2f} on {plural(n, 'device')}" for n in settings["devices"]]
        return f"mxdp's time over the book's: at most {', '.join(said)}; less by the time that the book's loader takes."

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            row.metrics["sec_per_epoch"] = row.median
            row.metrics["samples_per_sec"] = row.case["epoch_samples"] / row.median
            devices = row.case["num_devices"]
            book = find(rows, loop="book", num_devices=devices)
            if book:
                row.keep("of_book", row.ratios(book))
                if row is not book and devices > 1:
                    row.rounds["halves"] = row.rounds["of_book"]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        said = [
            f"{row.estimate('of_book'):.2f} of the time that the book's loop takes on "
            f"{plural(row.case['num_devices'], 'device')}"
            for row in find_all(rows, loop="mxdp")[:-3:-1]
        ]
        return f"mxdp trains an epoch in {' and in '.join(said)}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        return (
            "mxdp's devices share no temporary space, so they work at the same time, and no loader hands over each "
            "sample."
        )

    def columns(self) -> List[Column]:
        return [
            Column("sec_per_epoch", "s/epoch", ".2f"),
            Column("seconds", "seconds", ".2f", spread=True),
            Column("samples_per_sec", "samples/s", ",.0f"),
            Column("of_book", "of the book's", ".2f", spread=True),
            Column("test_accuracy", "accuracy", ".4f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        colours = [style.GREY if row.case["loop"] == "book" else style.COLOURS[0] for row in result["rows"]]
        style.row_bars(figure, result["rows"], "s/epoch", colours)
