"""A worker is lost in the middle of a training: who notices, when, and what is lost?

A worker can die (killed, out of memory), stop without dying, or be cut off with its machine: then its connections stay
open, and it says nothing. What the others do depends on the engine:

- ``python -m mxdp.launch`` ends the job by MPI's ``mpiexec``, and a guard beside each rank tells when it has stopped.
  With ``--restarts`` it starts all ranks again, and :func:`mxdp.train` goes on from its last checkpoint.
- MXNet's ``dist_sync`` waits for the worker's gradients.
- Horovod's launcher ends the job when a process dies.

Only the first starts again by itself. With the others somebody has to notice, and must have kept checkpoints.
"""

from __future__ import annotations

from typing import List

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import HOROVOD, MPI, NEEDS, SYNC, WORDS
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find_all
from mxdp.experiments.report import style

KILLED, STOPPED, CUT_OFF = "killed", "stopped", "cut off"
WITHIN = 30


@experiment
class LostWorker(Experiment):
    """A killed and a stopped worker under each engine."""

    name = "lost-worker"
    question = "A worker is lost in the middle of a training: who notices, when, and what is lost?"
    source = "MXNet issue 9709 and ps-lite issue 68, where lost workers and servers are reported; the launcher is ours"
    how_to_read = (
        "A round is a training of two processes. In the middle the last one is killed (SIGKILL), stopped (SIGSTOP) or "
        "cut off: each process is in a network namespace of its own, as if on two hosts, and the cable between them "
        "goes down until the launcher has noticed. 'Seconds' is the time until the engine ends the job or raises an "
        "error in the other process; where it did neither, it is how long we waited, and 'noticed' says no. 'Lost' "
        "counts steps that are done again. 'Same' says whether the training ended with the parameters of an "
        "undisturbed one, bit for bit."
    )
    claims = {
        "notice": Claim(
            f"mxdp's launcher notices a worker that is killed, stopped or cut off within {WITHIN} s.",
            "ours",
            WITHIN,
        ),
        "same_end": Claim(
            "Started again by the launcher, the training ends with the bits of an undisturbed one.",
            "ours",
            1,
            least=True,
            exact=True,
        ),
    }
    together = True
    compared = "parameters of the processes of an undisturbed training, with each other, bit for bit"
    common = dict(devices=[2], kind="cpu", data="synthetic", data_dir=None, seed=0, batch_size=20, lr=0.3, budget=0.0)
    presets = {
        "quick": dict(common, rounds=1, timeout=600.0, samples=400, silent=3.0, wait=8.0),
        "full": dict(common, rounds=1, timeout=600.0, samples=400, silent=3.0, wait=8.0),
    }
    checks = {"devices": (lambda counts: min(counts) > 1, "2 or more, since one process is lost")}
    little = dict(rounds=1, samples=100, silent=2.0, wait=2.0)

    def cases(self, settings: Settings) -> List[Case]:
        return [
            Case(
                f"{harm}: {WORDS[engine]}",
                n,
                settings={"engine": engine, "processes": n, "devices_in_all": n, "harm": harm},
                environment={"HOROVOD_GLOO_TIMEOUT_SECONDS": "30"},  # its own; a crew's is longer
                needs=NEEDS.get(engine, {}),
            )
            for n in settings["devices"]
            for harm, engines in ((KILLED, (MPI, SYNC, HOROVOD)), (STOPPED, (MPI, SYNC, HOROVOD)), (CUT_OFF, (MPI,)))
            for engine in engines
        ]

    def predict(self, settings: Settings, cores: int) -> str:
        return (
            "A connection that closes is noticed at once, a silent one only by asking. mxdp's launcher names a killed "
            "worker within 2 s, and one that is stopped or cut off after its --silent-after, here "
            f"{settings['silent']:g} s. dist_sync notices none."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in find_all(rows, engine=MPI):
            row.rounds["notice"] = row.samples
            row.rounds["same_end"] = [float(each) for each in row.rounds["same"]]

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        ours = find_all(rows, engine=MPI)
        if not ours:
            return "Without MPI, nothing was measured of mxdp's launcher."
        killed, slowest = find_all(ours, harm=KILLED)[-1], max(ours, key=lambda row: row.median)
        return (
            f"mxdp's launcher notices a killed worker after {killed.estimate():.2f} s and one that falls silent after "
            f"{slowest.estimate():.1f} s; the training then repeats "
            f"{plural(round(max(row.metrics['lost'] for row in ours)), 'step')}."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        deaf = [row.label for row in rows if not row.metrics["noticed"]]
        return f"Not noticed within {settings['wait']:g} s: {'; '.join(deaf)}." if deaf else ""

    def columns(self) -> List[Column]:
        return [
            Column("seconds", "seconds", ".1f", spread=True),
            Column("noticed", "noticed"),
            Column("lost", "lost", ".0f"),
            Column("same", "same"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        colours = [style.COLOURS[0] if row.metrics["noticed"] else style.GREY for row in result["rows"]]
        labels = [row.label + ("" if row.metrics["noticed"] else ": not noticed") for row in result["rows"]]
        style.row_bars(figure, result["rows"], "s", colours, labels=labels)
