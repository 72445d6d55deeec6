"""What does it cost to train in several processes, and by which engine?

Each device gets a process, and an engine sums the gradients over them: MPI (``mxdp.world()``), whose sums are jobs of
MXNet's engine, so nothing waits; MXNet's ``dist_sync``, where a server process adds up; Horovod over Gloo. All end with
the same parameters as one process with k devices. The yardstick is k processes that exchange nothing, each on its part
of the batch. A process that waits for MPI keeps its core busy, so more processes than cores cost more than as many
devices in one process.
"""

from __future__ import annotations

from typing import Dict, List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import ALONE, HOROVOD, MPI, NEEDS, ONE, SYNC, WORDS
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style


@experiment
class Machines(Experiment):
    """One process, and as many as devices by each engine."""

    name = "machines"
    question = "What does it cost to train in several processes, and by which engine?"
    source = "Slides 'Multi-GPU'; Dive into Deep Learning, 'Parameter Servers'"
    how_to_read = (
        "A round is some steps of LeNet; the rows take turns. 'Of alone' is the row's time over that of as many "
        "processes that exchange nothing (with one process: the training alone). All rows have the same batch, so "
        "each of k devices has a k-th of it. dist_sync has a server process beside the workers. Horovod averages over "
        "processes by default; here it sums, so all have the same parameters after a step."
    )
    claims = {
        "exchange": Claim(
            "With a core each, k processes by MPI take at most 1.1 times as long as without exchange.", "ours", 1.1
        ),
        "as_one": Claim(
            "With a core each, k processes by MPI take at most 1.1 times as long as one with k devices.", "ours", 1.1
        ),
    }
    compared = "parameters of every replica in every process after three steps; bit for bit among the processes"
    common = dict(kind="auto", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, devices=[2], rounds=1, timeout=300.0, steps=10),
        "full": dict(common, devices=[2], rounds=1, timeout=900.0, steps=20),
    }
    little = dict(data="synthetic", batch_size=24, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for n in settings["devices"]:
            one = {"engine": ONE, "processes": 1, "devices_in_all": n}
            cases.append(Case(f"{plural(n, 'device')}: one process", n, settings=one))
            for engine in (MPI, SYNC, HOROVOD, ALONE):
                settled = {"engine": engine, "processes": n, "devices_in_all": n}
                label, needs = f"{plural(n, 'device')}: {WORDS[engine]}", NEEDS.get(engine, {})
                cases.append(Case(label, n, settings=settled, reference=engine == ALONE, needs=needs))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "A step computes for tens of milliseconds and exchanges 0.45 MB. On the reference machine MPI sums that in "
            "0.1 ms, dist_sync in 2 ms. So with a core for each process all but dist_sync should take 1.00 to 1.05 "
            f"times as long as without any exchange. There are {plural(cores, 'core')} here."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            n = row.case["devices_in_all"]
            row.metrics["step_ms"] = row.median / settings["steps"] * 1e3
            alone, one = find(references, devices_in_all=n), find(rows, engine=ONE, devices_in_all=n)
            judged = row.case["engine"] == MPI and 1 < n <= process.cores()
            for claim, kept, below in (("exchange", "of_alone", alone), ("as_one", "of_one", one)):
                if row is not below:
                    row.keep_ratios(kept, below)
                if judged and kept in row.rounds:
                    row.rounds[claim] = row.rounds[kept]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        shown = _shown(rows, settings)
        said = [
            f"{shown[engine].estimate('of_alone'):.2f} times as long by {words}"
            for engine, words in ((MPI, "MPI"), (SYNC, "MXNet's dist_sync"))
            if engine in shown
        ]
        n = plural(shown[ONE].case["devices_in_all"], "process")
        return f"Exchanging gradients makes a step of {n} {' and '.join(said)}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        shown = _shown(rows, settings)
        if MPI not in shown:
            return ""
        return (
            f"By MPI it takes {shown[MPI].estimate('of_one'):.2f} times as long as in one process with as many "
            "devices: its sums are jobs of MXNet's engine, which run while backward still computes."
        )

    def columns(self) -> List[Column]:
        return [
            Column("step_ms", "ms/step", ".1f"),
            Column("of_alone", "of alone", ".2f", spread=True),
            Column("of_one", "of one process", ".2f", spread=True),
            Column("processes", "processes"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"] + result["references"]
        colours = [style.GREY if row.case["engine"] in (ONE, ALONE) else style.COLOURS[0] for row in rows]
        style.row_bars(figure, rows, "ms/step", colours, [row.metrics["step_ms"] / row.median for row in rows])


def _shown(rows: List[Row], settings: Settings) -> Dict[str, Row]:
    """The rows of the most processes that are judged, else of the most, by engine."""
    judged = [row.case["processes"] for row in rows if "exchange" in row.rounds]
    return {row.case["engine"]: row for row in find_all(rows, devices_in_all=max(judged or settings["devices"]))}
