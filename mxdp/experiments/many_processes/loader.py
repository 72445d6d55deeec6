"""When does one loader hold up several devices, and does a loader for each process help?

The pictures are stored compressed; a loader decodes them on a processor while devices compute. If a batch takes D
seconds to load and C to compute on k devices, and there are p cores, a step takes at least max(D, C, (D + k C) / p)
with one loader, whose one thread decodes everything, and max(D / k, C, (D + k C) / p) with a loader for each of k
processes. So own loaders win only where the one can't keep up with the devices. CPU devices compute on the same cores,
so only slow decoding does it; GPUs compute faster, so they get there sooner.
"""

from __future__ import annotations

from typing import List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.exchanges import MPI, NEEDS, ONE
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.report import style

PARTS = ("input", "compute", "exchange")


@experiment
class Loaders(Experiment):
    """One loader and one for each process, at several costs of decoding."""

    name = "loader"
    question = "When does one loader hold up several devices, and does a loader for each process help?"
    source = "Slides 'Multi-GPU', DataParallel against DistributedDataParallel"
    how_to_read = (
        "In ms a step: all of it, and its parts measured alone: input (read and decode the batch), compute (forward, "
        "backward and update of all devices), exchange (sum the gradients). 'Decode x 8': a picture is stored 8 times "
        "as high and wide, compressed by zlib. 'Of one loader': the row's time over that of one process with one "
        "loader; 'exp.': what the parts would give if nothing else counted."
    )
    claims = {
        "dear": Claim(
            "If decoding takes far longer than computing, a loader a process takes at most 0.8 of one loader's time.",
            "the slides: one process that loads for all GPUs is the bottleneck; the bound is ours",
            0.8,
        ),
        "free": Claim(
            "If decoding is cheap, a loader a process takes at least 0.9 of one loader's time.", "ours", 0.9, least=True
        ),
    }
    needs = NEEDS[MPI]
    compared = "decoded pictures, exactly; parameters of every replica in every process after three steps"
    common = dict(devices=[2], kind="auto", data="auto", data_dir=None, seed=0, batch_size=64, lr=0.1)
    presets = {
        "quick": dict(common, rounds=1, timeout=300.0, steps=16, scales=[1, 8, 32]),
        "full": dict(common, rounds=1, timeout=900.0, steps=16, scales=[1, 8, 32]),
    }
    checks = {"scales": (lambda scales: len(set(scales)) == len(scales), "different whole numbers")}
    little = dict(data="synthetic", batch_size=8, steps=2, scales=[1, 2])

    def cases(self, settings: Settings) -> List[Case]:
        cases = []
        for n in settings["devices"]:
            for scale in settings["scales"]:
                for engine, processes, words in ((ONE, 1, "one loader"), (MPI, n, "a loader a process")):
                    settled = {"engine": engine, "processes": processes, "devices_in_all": n, "scale": scale}
                    cases.append(Case(f"{plural(n, 'device')}, decode x {scale}: {words}", n, settings=settled))
        return cases

    def predict(self, settings: Settings, cores: int) -> str:
        n = max(settings["devices"])
        said = [f"{expected(d, 1.0, n, cores):.2f}" for d in (0.0, n, 4.0 * n)]
        return (
            f"A loader for each of {n} processes, over one loader, on {plural(cores, 'core')}: {said[0]} with nothing "
            f"to decode; {said[1]} and {said[2]} where decoding takes {n} and {4 * n} times as long as computing."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        ends = {min(settings["scales"]): "free", max(settings["scales"]): "dear"}
        for row in rows:
            n, scale, engine = (row.case[key] for key in ("devices_in_all", "scale", "engine"))
            row.metrics["step_ms"] = row.median / settings["steps"] * 1e3
            one = find(rows, engine=ONE, scale=scale, devices_in_all=n)
            if one and engine == MPI:
                row.keep_ratios("of_one", one)
                if scale in ends and len(ends) > 1 and n > 1:
                    row.rounds[ends[scale]] = row.rounds["of_one"]
                parts = one.metrics
                row.metrics["expected"] = expected(parts["input_ms"], parts["compute_ms"], n, process.cores())

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        cheap, dear = (find_all(rows, engine=MPI, scale=end(settings["scales"]))[-1] for end in (min, max))
        parts = find_all(rows, engine=ONE, scale=dear.case["scale"])[-1].metrics
        more = "" if cheap is dear else f", and with the cheapest decoding {cheap.estimate('of_one'):.2f}"
        return (
            f"Where decoding takes {parts['input_ms'] / parts['compute_ms']:.1f} times as long as computing, "
            f"a loader for each process takes {dear.estimate('of_one'):.2f} of one loader's time{more}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("step_ms", "ms/step", ".1f"),
            *(Column(f"{part}_ms", part, ".1f") for part in PARTS),
            Column("of_one", "of one loader", ".2f", spread=True),
            Column("expected", "exp.", ".2f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"]
        colours = [style.COLOURS[row.case["engine"] == MPI] for row in rows]
        style.row_bars(figure, rows, "ms/step", colours, [row.metrics["step_ms"] / row.median for row in rows])


def expected(load: float, compute: float, n: int, cores: int) -> float:
    """A step's time by ``n`` loaders over that by one, which loads a batch in ``load``; ``n`` devices take ``compute``.

    >>> expected(4.0, 1.0, 2, 2), expected(0.0, 1.0, 2, 2)
    (0.75, 1.0)
    """
    own, one = (max(load / loaders, compute, (load + n * compute) / cores) for loaders in (n, 1))
    return own / one
