"""What if no worker waits for the others?

In synchronous training every worker waits for the slowest. With ``dist_async`` the server applies each gradient when it
arrives. No worker waits, but a gradient is stale: it was computed from parameters that others have updated since.
An asynchronous update applies one worker's part of the batch, so k equal workers gain nothing. If one worker takes f
times as long as the others, synchronous training does k / f parts of a batch in that time, asynchronous k - 1 + 1 / f.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import ASYNC, SYNC
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

SLOW = 2.0
"""How many times as long the slow worker takes to compute."""
EVEN, ONE_SLOW = "equal workers", "one slow worker"


@experiment
class AsyncSgd(Experiment):
    """MXNet's ``dist_sync`` and ``dist_async``, with equal workers and with a slow one."""

    name = "async-sgd"
    question = "What if no worker waits for the others?"
    source = "Dive into Deep Learning, 'Parameter Servers', exercise 2"
    how_to_read = (
        "A round trains from the start until the test accuracy is reached; its time leaves out the evaluations. "
        "'Updates' counts parts of batches: k workers' parts make a synchronous step. 'Stale' counts the updates by "
        "others between a worker's pull of the parameters and its own update, in the median and at most. The slow "
        "worker sleeps after it has computed, so it takes twice as long. There is one server; a worker has one device."
    )
    claims = {
        "slow_rate": Claim(
            "Beside a worker of half the speed, dist_async takes at most 0.8 of dist_sync's time for as many updates.",
            "the rates at which workers deliver: 2 / 3 of the time with two workers; the bound is ours",
            0.8,
        )
    }
    compared = "parameters after known gradients from all workers, against NumPy's sum: each counts once"
    common = dict(devices=[2], kind="cpu", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, rounds=1, timeout=600.0, accuracy=0.6, updates=20, most_updates=800),
        "full": dict(common, rounds=1, timeout=900.0, accuracy=0.6, updates=20, most_updates=1600),
    }
    little = dict(rounds=1, data="synthetic", batch_size=16, accuracy=0.01, updates=2, most_updates=4)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(f"{engine}, {plural(n, 'worker')}, {pace}", n, settings=dict(engine=engine, processes=n, workers=pace))
            for n in settings["devices"]
            for pace in (EVEN, ONE_SLOW)
            for engine in (SYNC, ASYNC)
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        n = max(settings["devices"])
        rate = n / SLOW / (n - 1 + 1 / SLOW)
        return (
            f"For as many updates, asynchronous over synchronous time: 1.00 with equal workers; {rate:.2f} with a "
            f"worker that takes {SLOW:g} times as long. More updates are needed, since gradients are stale by about "
            f"{plural(n - 1, 'update')}."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows:
            sync = find(rows, engine=SYNC, workers=row.case["workers"], processes=row.case["processes"])
            if sync is None or row is sync:
                continue
            row.keep_ratios("of_sync", sync)
            if row.case["workers"] == ONE_SLOW and row.case["processes"] > 1:
                counts = zip(row.ratios(sync), row.ratios(sync, "updates"))
                row.keep("slow_rate", [seconds / updates for seconds, updates in counts])

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        late = [row.label for row in rows if not row.metrics["reached"]]
        if late:
            return (
                f"{len(late)} of {plural(len(rows), 'training')} did not reach the accuracy {settings['accuracy']:g} "
                f"within {settings['most_updates']} updates."
            )
        even, slow = (
            row.estimate("of_sync") for row in find_all(rows, engine=ASYNC, processes=max(settings["devices"]))
        )
        return (
            f"Asynchronous training reaches the accuracy {settings['accuracy']:g} in {slow:.2f} of the synchronous "
            f"time beside a worker of half the speed, and in {even:.2f} of it with equal workers."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        late = [row.label for row in rows if not row.metrics["reached"]]
        cure = "compare with a lower --accuracy, or with more --most-updates"
        return f"Not reached by {', '.join(late)}: {cure}." if late else ""

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".2f", spread=True),
            Column("of_sync", "of sync", ".2f", spread=True),
            Column("slow_rate", "an update", ".2f", spread=True),
            Column("updates", "updates", ".0f"),
            Column("staleness", "stale", ".1f"),
            Column("stalest", "at most", ".0f"),
            Column("test_accuracy", "accuracy", ".3f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        colours = [style.COLOURS[row.case["engine"] == ASYNC] for row in result["rows"]]
        style.row_bars(figure, result["rows"], "s", colours)
