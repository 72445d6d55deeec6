"""What if nobody waits for the others?

Synchronous training adds up the gradients of all workers and steps once: every worker waits for the slowest. With
``dist_async`` the server updates the parameters with each gradient as it comes. Nobody waits, but a gradient was
computed from parameters that others have changed since: it is stale by as many updates.

To be compared, one asynchronous update moves the parameters by its own part of the batch alone: k of them together go
as far as one synchronous update. With k equal workers, then, nothing is gained. If one of them takes f times as long as
the others, the synchronous rate is that of the slow one, k / f parts of a batch a unit of time, the asynchronous
k - 1 + 1 / f.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.engines import ASYNC, SYNC
from mxdp.experiments.harness.claims import Claim, estimate
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, keep, ratios, row_bars

SLOW = 2.0
"""How many times as long the slow worker takes to compute."""
EVEN, ONE_SLOW = "equal workers", "one slow worker"


@experiment
class AsyncSgd(Experiment):
    """MXNet's ``dist_sync`` and ``dist_async``, with equal workers and with a slow one."""

    name = "async-sgd"
    question = "What if nobody waits for the others?"
    source = "Dive into Deep Learning, 'Parameter Servers', exercise 2"
    how_to_read = (
        "A round trains from the start until the test accuracy is reached; its time leaves out the evaluations. "
        "'Updates' counts parts of batches: k workers' parts make a synchronous step. A gradient is stale by the "
        "updates that the server has made between the worker's pull of the parameters and its own update, in the "
        "median and at most. The slow worker sleeps after it has computed, so that it takes twice as long. One server, "
        "one device a worker."
    )
    claims = {
        "slow_gain": Claim(
            "Beside a worker of half the speed nobody should wait: to the same accuracy, asynchronous training takes "
            "at most 0.9 of the synchronous time.",
            "ours, from the rates at which workers deliver (2 / 3 of the time with two workers)",
            0.9,
        ),
    }
    compared = "parameters after known gradients from all workers, against NumPy's sum: each counts once"
    common = dict(devices=[2], kind="cpu", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, rounds=6, timeout=600.0, accuracy=0.6, updates=20, most_updates=800),
        "full": dict(common, rounds=2, timeout=7200.0, accuracy=0.7, updates=20, most_updates=4000),
    }
    little = dict(data="synthetic", batch_size=16, accuracy=0.01, updates=2, most_updates=4)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{engine}, {plural(n, 'worker')}, {workers}",
                n,
                settings={"engine": engine, "processes": n, "workers": workers},
            )
            for n in settings["devices"]
            for workers in (EVEN, ONE_SLOW)
            for engine in (SYNC, ASYNC)
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        n = max(settings["devices"])
        rate = n / SLOW / (n - 1 + 1 / SLOW)
        return (
            f"To as many updates, asynchronous over synchronous time: 1.00 with equal workers; {rate:.2f} with a "
            f"worker that takes {SLOW:g} times as long. More updates are needed, as gradients are stale by about "
            f"{plural(n - 1, 'update')}."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            case = row["case"]
            sync = find(rows, engine=SYNC, workers=case["workers"], processes=case["processes"])
            if sync and row is not sync:
                name = "slow_gain" if case["workers"] == ONE_SLOW and case["processes"] > 1 else "of_sync"
                keep(row, name, ratios(row, sync))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        late = [row["label"] for row in rows if not row["metrics"]["reached"]]
        if late:
            return (
                f"The accuracy {settings['accuracy']:g} was not reached by {', '.join(late)} within "
                f"{settings['most_updates']} updates: compare with a lower --accuracy or with --most-updates."
            )
        said = []
        for row in (row for row in rows if row["case"]["engine"] == ASYNC):
            name = "slow_gain" if "slow_gain" in row["rounds"] else "of_sync"
            said.append(f"{estimate(row, name):.2f} of the synchronous time with {row['case']['workers']}")
        stale = [f"{row['metrics']['staleness']:.1f}" for row in rows if row["case"]["engine"] == ASYNC]
        return (
            f"To a test accuracy of {settings['accuracy']:g}, asynchronous training takes {' and '.join(said)}. Nobody "
            f"waits for the slow one; gradients are stale by {' and '.join(stale)} updates in the median."
        )

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".2f", spread=True),
            Column(("slow_gain", "of_sync"), "of sync", ".2f", spread=True),
            Column("updates", "updates", ".0f"),
            Column("staleness", "stale", ".1f"),
            Column("stalest", "at most", ".0f"),
            Column("test_accuracy", "accuracy", ".3f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        colours = [style.COLOURS[row["case"]["engine"] == ASYNC] for row in result["rows"]]
        row_bars(figure, result["rows"], "s", colours)
