"""Would a user be better off with something else?

The same network, initial weights, batch size, learning rate, data and machine, by what a reader of the book might
pick: the book's own loop, ``gluon.Trainer``, Horovod, PyTorch, and mxdp. Each uses its own data path. All must follow
the same losses: a peer that computes something else is not compared.
"""

from __future__ import annotations

import math
from typing import List

from mxdp.errors import plural
from mxdp.experiments.engines import ALONE, DDP, HOROVOD, MPI, NEEDS, ONE
from mxdp.experiments.harness.claims import Claim, estimate
from mxdp.experiments.harness.environments import defaults
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, keep, ratios, row_bars

BOOK, GLUON, HYBRID, TORCH, MXDP, MXDP_MPI, CEILING = (
    "book", "gluon", "gluon-hybrid", "torch", "mxdp", "mxdp-mpi", "ceiling",
)  # fmt: skip
BOOK_NEEDS = {"d2l": "`make`, or `pip install --no-deps d2l==1.0.3` and `pip install ipython matplotlib-inline pandas`"}
ENGINES = {HOROVOD: HOROVOD, DDP: DDP, MXDP_MPI: MPI, CEILING: ALONE}
"""Of the peers that have a process for each device; the others have one."""
ORDER = (BOOK, GLUON, HYBRID, HOROVOD, TORCH, DDP, MXDP, MXDP_MPI, CEILING)
WORDS = {
    BOOK: "the book's loop",
    GLUON: "gluon.Trainer",
    HYBRID: "gluon.Trainer, hybridised",
    HOROVOD: "Horovod",
    TORCH: "PyTorch",
    DDP: "PyTorch's DDP",
    MXDP: "mxdp",
    MXDP_MPI: "mxdp by MPI",
    CEILING: "nothing exchanged",
}


@experiment
class Peers(Experiment):
    """mxdp beside what a user would pick instead, on one and on two devices."""

    name = "peers"
    question = "Would a user be better off with something else?"
    source = "ours"
    how_to_read = (
        "A round is the same number of samples for all, each with its own data path; the rows take turns. The "
        "book's loop is d2l's loader and helpers in MXNet's default environment. gluon.Trainer has the store 'device', "
        "two contexts of one process and mxdp's settings; hybridised, with static memory and shapes. PyTorch has a "
        "thread for each device; DDP, Horovod and mxdp by MPI have a process for each. For fairness PyTorch has mxdp's "
        "settings of the allocator, too. 'Of mxdp' is the row's time over mxdp's in one process on as many devices: "
        "above 1 mxdp is faster. Training waits for the slowest device in each step. Processes that exchange nothing "
        "don't, so they gain on it wherever the cores of a machine are slow at different moments: what waiting would "
        "cost them is calculated from their steps' own times. Two rows have half of the batch and twice the steps: "
        "there Python and the exchange weigh more."
    )
    claims = {
        "of_book": Claim("On two devices mxdp takes at most 0.45 of the book's time.", "ours", 0.45),
        "of_ddp": Claim("Two processes by MPI take at most 0.82 of the time of PyTorch's DDP.", "ours", 0.82),
        "of_torch": Claim("On one and on two devices mxdp takes at most 0.95 of PyTorch's time.", "ours", 0.95),
        "of_hybrid": Claim(
            "On two devices mxdp is no slower than a hybridised gluon.Trainer: at most 1.00 of its time.", "ours", 1.0
        ),
        "of_ceiling": Claim(
            "On two devices mxdp is at least 0.97 times as fast as processes that exchange nothing.",
            "ours",
            0.97,
            least=True,
        ),
        "of_ceiling_half": Claim(
            "On two devices, with batches of half the size, mxdp is at least 0.95 times as fast as processes that "
            "exchange nothing.",
            "ours",
            0.95,
            least=True,
        ),
        "of_waiting": Claim(
            "On two devices mxdp is at least 0.97 times as fast as processes that exchange nothing would be if each "
            "step waited for the slower one.",
            "ours",
            0.97,
            least=True,
        ),
        "of_waiting_half": Claim(
            "On two devices, with batches of half the size, mxdp is at least 0.95 times as fast as processes that "
            "exchange nothing would be if each step waited for the slower one.",
            "ours",
            0.95,
            least=True,
        ),
        "exchange": Claim(
            "Two processes by MPI take at most 1.05 times as long as two that exchange nothing.", "ours", 1.05
        ),
    }
    compared = "the losses of five steps on one batch, against mxdp on one device"
    common = dict(devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, rounds=18, timeout=600.0, samples=2560, repeats=1, looks=1),
        # One look at nine processes: its intervals leave out the fastest and the slowest. With six they would not.
        "full": dict(common, rounds=1, timeout=7200.0, samples=None, repeats=9, looks=1),
    }
    little = dict(devices=[2], data="digits", batch_size=24, samples=168)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        whole, half = settings["batch_size"], settings["batch_size"] // 2
        for n in settings["devices"]:
            for peer, batch_size in [*((peer, whole) for peer in ORDER), (MXDP, half), (CEILING, half)]:
                if n == 1 and (peer in (DDP, MXDP_MPI, CEILING) or batch_size == half):
                    continue
                engine = ENGINES.get(peer, ONE)
                needs = {BOOK: BOOK_NEEDS, TORCH: NEEDS[DDP]}.get(peer, NEEDS.get(engine, {}))
                settled = {
                    "peer": peer,
                    "engine": engine,
                    "processes": n if peer in ENGINES else 1,
                    "devices_in_all": n,
                    "batch_size": batch_size,
                }
                environment = defaults(n) if peer == BOOK else {}
                smaller = f", batch {half}" if batch_size == half else ""
                label = f"{plural(n, 'device')}{smaller}: {WORDS[peer]}"
                cases.append(Case(label, n, 1, settled, environment, reference=peer == CEILING, needs=needs))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "All compute the same convolutions. On two devices of a machine with two cores the book's loop takes twice "
            "as long or more, as its devices wait for each other; the others should be within a fifth of mxdp."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            case, metrics = row["case"], row["metrics"]
            metrics["sec_per_step"] = row["seconds"]["median"] / case["steps"]
            if settings["samples"] is None:
                metrics["sec_per_epoch"] = row["seconds"]["median"]
            same = {key: case[key] for key in ("devices_in_all", "batch_size")}
            mxdp = find(rows, peer=MXDP, **same)
            if mxdp:
                keep(row, "of_mxdp", ratios(row, mxdp))
            judged = {BOOK: "of_book", TORCH: "of_torch", HYBRID: "of_hybrid"}.get(case["peer"])
            if mxdp and judged and (case["devices_in_all"] > 1 or judged == "of_torch"):
                row["rounds"][judged] = ratios(mxdp, row)
            by_mpi = find(rows, peer=MXDP_MPI, **same)
            if by_mpi and case["peer"] == DDP:
                row["rounds"]["of_ddp"] = ratios(by_mpi, row)
            if mxdp and case["peer"] == CEILING:
                half = "_half" if case["batch_size"] < settings["batch_size"] else ""
                speeds = row["rounds"][f"of_ceiling{half}"] = ratios(row, mxdp)
                if "waiting" in row["rounds"]:  # of very few steps it is not known
                    waiting = row["rounds"]["waiting"]
                    row["rounds"][f"of_waiting{half}"] = [speed * each for speed, each in zip(speeds, waiting)]
            if by_mpi and case["peer"] == CEILING:
                row["rounds"]["exchange"] = ratios(by_mpi, row)

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        said = []
        for n in settings["devices"][::-1]:
            others = [
                f"{WORDS[row['case']['peer']]} {estimate(row, 'of_mxdp'):.2f}"
                for row in rows + references
                if row["case"]["devices_in_all"] == n
                and row["case"]["batch_size"] == settings["batch_size"]
                and row["case"]["peer"] != MXDP
                and "of_mxdp" in row["rounds"]
            ]
            said.append(f"On {plural(n, 'device')}, in times of mxdp's time: {', '.join(others)}.")
        said.append("Above 1 mxdp is faster. All followed the same losses.")
        for row in references:
            if row["case"]["batch_size"] == settings["batch_size"] and "waiting" in row["rounds"]:
                said.append(
                    "If each step waited for the slower process, 'nothing exchanged' would take "
                    f"{estimate(row, 'waiting'):.2f} times as long."
                )
        return " ".join(said)

    def columns(self) -> List[Column]:
        return [
            Column("sec_per_step", "ms/step", ".1f", 1e3),
            Column("sec_per_epoch", "s/epoch", ".2f"),
            Column("of_mxdp", "of mxdp", ".2f", spread=True),
            Column("test_accuracy", "accuracy", ".4f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"] + result["references"]
        colours = [style.COLOURS[0] if row["case"]["peer"] in (MXDP, MXDP_MPI) else style.GREY for row in rows]
        row_bars(figure, rows, "ms/step", colours, [1e3 / row["case"]["steps"] for row in rows])


def steps_of(samples: int, batch_size: int) -> int:
    """The steps that this number of samples takes.

    >>> steps_of(60000, 256), steps_of(2560, 256)
    (235, 10)
    """
    return math.ceil(samples / batch_size)
