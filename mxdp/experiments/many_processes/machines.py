"""What does it cost to train in several processes, and by which engine?

Where one process is not enough (another machine, Python's lock, a library that can't have two devices), each device
gets a process, and an engine sums the gradients over them. All of these train the same network on the same batches, and
end with the same parameters:

- one process with k devices, as everywhere else in mxdp;
- k processes of one device by MPI (``mxdp.world()``): the sums are jobs of MXNet's engine, so nothing waits;
- MXNet's ``dist_sync``: a server process adds up, and the parameters' keys go over TCP;
- Horovod over Gloo, if it is installed.

The yardstick is k processes that exchange nothing, each on its part of the batch. A process of MPI's that waits spins
on its core, so more processes than cores cost more than devices in one process do.
"""

from __future__ import annotations

from typing import List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.engines import ALONE, HOROVOD, MPI, NEEDS, ONE, SYNC, WORDS
from mxdp.experiments.harness.claims import Claim, estimate
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, keep, ratios, row_bars


@experiment
class Machines(Experiment):
    """One process, and as many as devices by each engine."""

    name = "machines"
    question = "What does it cost to train in several processes, and by which engine?"
    source = "Slides 'Multi-GPU'; Dive into Deep Learning, 'Parameter Servers'"
    how_to_read = (
        "A round is some steps of LeNet; the rows take turns. 'Of alone' is the row's time over that of as many "
        "processes that exchange nothing, each on its part of the batch (with one process: the training alone). The "
        "batch is the same for all, so k devices have a k-th of it each. dist_sync has one server process beside the "
        "workers. Horovod averages over processes by default and is asked for sums: all have the same parameters after "
        "a step."
    )
    claims = {
        "exchange": Claim(
            "Where each process has a core, the exchange by MPI costs little: a step takes at most 1.05 times as long "
            "as in processes that exchange nothing.",
            "ours",
            1.05,
        ),
        "as_one": Claim(
            "Where each process has a core, processes by MPI are no slower than devices in one process: at most 1.05 "
            "times as long a step.",
            "ours",
            1.05,
        ),
    }
    compared = "parameters of every replica in every process after three steps; bit for bit among the processes"
    common = dict(
        kind="auto", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2,
    )  # fmt: skip
    presets = {
        "quick": dict(common, devices=[2], rounds=6, timeout=300.0, steps=10),
        "full": dict(common, devices=[1, 2, 4], rounds=2, timeout=3600.0, steps=40),
    }
    little = dict(data="synthetic", batch_size=24, steps=2)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for n in settings["devices"]:
            one = {"engine": ONE, "processes": 1, "devices_in_all": n}
            cases.append(Case(f"{plural(n, 'device')}: one process", n, settings=one))
            for engine in (MPI, SYNC, HOROVOD, ALONE):
                settled = {"engine": engine, "processes": n, "devices_in_all": n}
                words, needs = WORDS[engine], NEEDS.get(engine, {})
                label = f"{plural(n, 'device')}: {words}"
                cases.append(Case(label, n, settings=settled, reference=engine == ALONE, needs=needs))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "A step computes for tens of milliseconds and exchanges 0.45 MB. On the reference machine MPI adds that up "
            "in 0.1 ms, dist_sync in 2 ms: with a core for each process all but dist_sync should take 1.00 to 1.05 of "
            f"the time of processes that exchange nothing. There are {plural(cores, 'core')} here."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            case = row["case"]
            row["metrics"]["step_ms"] = row["seconds"]["median"] / settings["steps"] * 1e3
            alone = find(references, devices_in_all=case["devices_in_all"])
            one = find(rows, engine=ONE, devices_in_all=case["devices_in_all"])
            if alone and row is not alone:
                keep(row, "of_alone", ratios(row, alone))
            if one and row is not one:
                keep(row, "of_one", ratios(row, one))
            if case["engine"] == MPI and 1 < case["processes"] <= process.cores():
                for claim, kept in (("exchange", "of_alone"), ("as_one", "of_one")):
                    if kept in row["rounds"]:
                        row["rounds"][claim] = row["rounds"][kept]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        n = max(settings["devices"])
        judged = [row for row in rows if "exchange" in row["rounds"]]
        shown = judged or find_all(rows, engine=MPI, devices_in_all=n)
        said = [
            f"By MPI a step of {plural(row['case']['processes'], 'process')} takes {estimate(row, 'of_alone'):.2f} "
            f"times as long as without any exchange, and {estimate(row, 'of_one'):.2f} times as long as in one process."
            for row in shown
        ] or ["Nothing was measured by MPI."]
        others = [
            f"{WORDS[row['case']['engine']]} {estimate(row, 'of_alone'):.2f}"
            for row in find_all(rows, devices_in_all=shown[-1]["case"]["devices_in_all"] if shown else n)
            if row["case"]["engine"] not in (MPI, ONE) and "of_alone" in row["rounds"]
        ]
        more = f" As many processes by {', '.join(others)} times as long." if others else ""
        return f"{' '.join(said)} The sums are jobs of MXNet's engine, which run while backward still computes.{more}"

    def columns(self) -> List[Column]:
        return [
            Column("step_ms", "ms/step", ".1f"),
            Column("of_alone", "of alone", ".2f", spread=True),
            Column("of_one", "of one process", ".2f", spread=True),
            Column("processes", "processes"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"] + result["references"]
        colours = [style.GREY if row["case"]["engine"] in (ONE, ALONE) else style.COLOURS[0] for row in rows]
        scale = [row["metrics"]["step_ms"] / row["seconds"]["median"] for row in rows]
        row_bars(figure, rows, "ms/step", colours, scale)
