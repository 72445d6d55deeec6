"""Would a user be better off with something else?

The same network, initial weights, batch size, learning rate, data and machine, by what a reader of the book might
pick: the book's own loop, ``gluon.Trainer``, Horovod, PyTorch, and mxdp. Each uses its own data path. All must follow
the same losses: a peer that computes something else is not compared.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.environments import defaults
from mxdp.experiments.harness.exchanges import ALONE, DDP, HOROVOD, MPI, NEEDS, ONE
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

BOOK, GLUON, HYBRID, TORCH, MXDP, MXDP_MPI, CEILING = (
    "book", "gluon", "gluon-hybrid", "torch", "mxdp", "mxdp-mpi", "ceiling",
)  # fmt: skip
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
"""The peers, in the order of the rows."""
ENGINES = {HOROVOD: HOROVOD, DDP: DDP, MXDP_MPI: MPI, CEILING: ALONE}
"""Of the peers that have a process for each device; the others have one."""
BOOK_NEEDS = {"d2l": "`make`, or `pip install --no-deps d2l==1.0.3` and `pip install ipython matplotlib-inline pandas`"}


@experiment
class Peers(Experiment):
    """mxdp beside what a user would pick instead, on one and on two devices."""

    name = "peers"
    question = "Would a user be better off with something else?"
    source = "ours"
    how_to_read = (
        "A round is the same number of samples for all, each with its own data path; the rows take turns. The "
        "book's loop is d2l's loader and helpers in MXNet's default environment. gluon.Trainer has the store 'device', "
        "two contexts of one process and mxdp's settings; hybridised, it has static memory and shapes. PyTorch has a "
        "thread for each device, and mxdp's settings of the allocator, for fairness. DDP, Horovod and mxdp by MPI have "
        "a process for each device. 'Of mxdp' is the row's time over mxdp's in one process on as many devices: above "
        "1, mxdp is faster. Training waits for the slowest device in each step. Processes that exchange nothing do not "
        "wait, so they gain wherever the cores are slow at different moments; what waiting would cost them is "
        "calculated from the times of their steps. Two rows have half of the batch and twice the steps: there Python "
        "and the exchange weigh more."
    )
    claims = {
        "of_book": Claim("On two devices mxdp takes at most half of the book's time.", "ours", 0.5),
        "of_ddp": Claim("Two processes by MPI take at most 0.9 of the time of PyTorch's DDP.", "ours", 0.9),
        "of_torch": Claim("On one and on two devices mxdp takes at most 0.95 of PyTorch's time.", "ours", 0.95),
        "of_hybrid": Claim(
            "On two devices mxdp is no slower than a hybridised gluon.Trainer: at most 1.00 of its time.", "ours", 1.0
        ),
        **{
            f"of_ceiling{half}": Claim(
                f"On two devices{words} mxdp is at least {bound} times as fast as processes that exchange nothing.",
                "ours",
                bound,
                least=True,
            )
            for half, words, bound in (("", "", 0.97), ("_half", ", with batches of half the size,", 0.95))
        },
        "exchange": Claim(
            "The exchange is cheap: two processes by MPI take at most 1.05 times as long as two that exchange nothing.",
            "ours",
            1.05,
        ),
    }
    compared = "the losses of five steps on one batch, against mxdp on one device"
    common = dict(devices=[1, 2], kind="auto", data="auto", data_dir=None, seed=0, batch_size=256, lr=0.2)
    presets = {
        "quick": dict(common, rounds=1, timeout=600.0, samples=2560, looks=1),
        "full": dict(common, rounds=1, timeout=1200.0, samples=5120, looks=1),
    }
    little = dict(rounds=1, devices=[2], data="digits", batch_size=24, samples=168)

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        whole, half = settings["batch_size"], settings["batch_size"] // 2
        for n in settings["devices"]:
            peers = [(peer, whole) for peer in WORDS] + [(MXDP, half), (CEILING, half)]
            if n == 1:
                peers = [(peer, whole) for peer in (HYBRID, TORCH, MXDP)]  # the others are there to use several
            for peer, batch_size in peers:
                engine = ENGINES.get(peer, ONE)
                settled = dict(peer=peer, engine=engine, devices_in_all=n, batch_size=batch_size)
                settled["processes"] = n if peer in ENGINES else 1
                needs = {BOOK: BOOK_NEEDS, TORCH: NEEDS[DDP]}.get(peer, NEEDS.get(engine, {}))
                environment = defaults(n) if peer == BOOK else {}
                label = f"{plural(n, 'device')}{f', batch {half}' if batch_size == half else ''}: {WORDS[peer]}"
                cases.append(Case(label, n, 1, settled, environment, reference=peer == CEILING, needs=needs))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "All compute the same convolutions. On two devices the book's loop takes at least twice as long as mxdp, "
            "since its devices wait for each other; the others should be within a fifth of mxdp."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            case, rounds = row.case, row.rounds
            row.metrics["sec_per_step"] = row.median / case["steps"]
            if settings["samples"] is None:
                row.metrics["sec_per_epoch"] = row.median
            mxdp, by_mpi = (
                find(rows, peer=peer, devices_in_all=case["devices_in_all"], batch_size=case["batch_size"])
                for peer in (MXDP, MXDP_MPI)
            )
            peer, half = case["peer"], "_half" if case["batch_size"] < settings["batch_size"] else ""
            if mxdp:
                row.keep("of_mxdp", row.ratios(mxdp))
                claim = {BOOK: "of_book", TORCH: "of_torch", HYBRID: "of_hybrid"}.get(peer)
                if claim and (case["devices_in_all"] > 1 or peer == TORCH):
                    rounds[claim] = mxdp.ratios(row)
            if mxdp and peer == CEILING:
                rounds[f"of_ceiling{half}"] = row.ratios(mxdp)
            if by_mpi and peer in (DDP, CEILING):
                rounds["of_ddp" if peer == DDP else "exchange"] = by_mpi.ratios(row)

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        n = max(settings["devices"])
        peers = {row.case["peer"]: row for row in find_all(rows, devices_in_all=n, batch_size=settings["batch_size"])}
        said = [
            f"{peers[peer].estimate('of_mxdp'):.2f} times as long by {words}"
            for peer, words in ((HYBRID, "a hybridised gluon.Trainer"), (TORCH, "PyTorch"))
            if peer in peers
        ]
        return f"Compared with mxdp on {plural(n, 'device')}, training takes {' and '.join(said)}."

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        alone = find(references, batch_size=settings["batch_size"])
        if not (alone and "waiting" in alone.rounds):
            return ""
        times = f"{alone.estimate('waiting'):.2f} times as long"
        return f"Processes that exchange nothing would take {times} if each step waited for the slower one."

    def columns(self) -> List[Column]:
        return [
            Column("sec_per_step", "ms/step", ".1f", 1e3),
            Column("sec_per_epoch", "s/epoch", ".2f"),
            Column("of_mxdp", "of mxdp", ".2f", spread=True),
            Column("test_accuracy", "accuracy", ".4f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"] + result["references"]
        colours = [style.COLOURS[0] if row.case["peer"] in (MXDP, MXDP_MPI) else style.GREY for row in rows]
        style.row_bars(figure, rows, "ms/step", colours, [1e3 / row.case["steps"] for row in rows])
