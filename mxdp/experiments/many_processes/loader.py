"""One loader that feeds all devices, or a loader for each process: when does that matter?

The slides name one process that loads for all GPUs as the bottleneck of DataParallel. Here the pictures are stored
compressed, and to load one means to decompress it and scale it down: work for a processor, while devices compute. With
D seconds of loading a batch, C of computing on k devices, and p cores, nothing is faster than

- one loader: max(D, C, (D + k C) / p), since one thread decodes everything;
- a loader for each of k processes: max(D / k, C, (D + k C) / p).

So own loaders win only where the one can't keep up with the devices. On CPU devices, which compute on the same cores,
that takes a dear decoding; GPUs compute faster, and get there sooner.
"""

from __future__ import annotations

from typing import List

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments.engines import MPI, NEEDS, ONE
from mxdp.experiments.harness.claims import Claim, estimate
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, keep, ratios, row_bars

PARTS = ("input", "compute", "exchange")


@experiment
class Loaders(Experiment):
    """One loader and one for each process, at several costs of decoding."""

    name = "loader"
    question = "When does one loader hold up several devices, and does one for each process help?"
    source = "Slides 'Multi-GPU', DataParallel against DistributedDataParallel"
    how_to_read = (
        "In ms a step: all of it, and its parts measured alone: input (read and decode the batch), compute (forward, "
        "backward and update of all devices), exchange (sum the gradients). 'Decode x 8': each picture is stored 8 "
        "times as high and wide, compressed by zlib. 'Of one loader' is the row's time over that of one process with "
        "one loader; 'exp.' is what the parts would give if nothing else counted."
    )
    claims = {
        "dear": Claim(
            "Where decoding takes far longer than computing, a loader for each process wins: at most 0.8 of the time "
            "with one loader.",
            "the slides: one process that loads for all GPUs is the bottleneck; the bound is ours",
            0.8,
        ),
        "free": Claim(
            "Where decoding costs next to nothing, it gains nothing: at least 0.9 of the time with one loader.",
            "ours",
            0.9,
            least=True,
        ),
    }
    needs = NEEDS[MPI]
    compared = "decoded pictures, exactly; parameters of every replica in every process after three steps"
    common = dict(devices=[2], kind="auto", data="auto", data_dir=None, seed=0, batch_size=64, lr=0.1)
    presets = {
        "quick": dict(common, rounds=6, timeout=300.0, steps=16, scales=[1, 8, 32]),
        "full": dict(common, rounds=2, timeout=3600.0, steps=20, scales=[1, 4, 8, 16, 24, 32]),
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
        said = [f"{expected(d, 1.0, n, n, cores) / expected(d, 1.0, n, 1, cores):.2f}" for d in (0.0, n, 4.0 * n)]
        return (
            f"A loader for each of {n} processes, over one loader, on {plural(cores, 'core')}: {said[0]} where nothing "
            f"is decoded; {said[1]} where a batch takes {n} times as long to decode as the devices compute; {said[2]} "
            f"at {4 * n} times."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        ends = {min(settings["scales"]): "free", max(settings["scales"]): "dear"}
        for row in rows:
            case, metrics = row["case"], row["metrics"]
            metrics["step_ms"] = row["seconds"]["median"] / settings["steps"] * 1e3
            same = {"scale": case["scale"], "devices_in_all": case["devices_in_all"]}
            one = find(rows, engine=ONE, **same)
            if one and case["engine"] == MPI:
                keep(row, "of_one", ratios(row, one))
                if case["scale"] in ends and len(settings["scales"]) > 1 and case["processes"] > 1:
                    row["rounds"][ends[case["scale"]]] = row["rounds"]["of_one"]
                n, parts = case["processes"], one["metrics"]
                own, single = (
                    expected(parts["input_ms"], parts["compute_ms"], n, loaders, process.cores()) for loaders in (n, 1)
                )
                metrics["expected"] = own / single

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        own = [row for row in rows if row["case"]["engine"] == MPI]
        said = [f"{estimate(row, 'of_one'):.2f} of the time at x {row['case']['scale']}" for row in own]
        costs = [
            f"{row['metrics']['input_ms']:.0f} ms to load beside {row['metrics']['compute_ms']:.0f} ms to compute"
            for row in (find(rows, engine=ONE, scale=each) for each in (settings["scales"][0], settings["scales"][-1]))
            if row
        ]
        return (
            f"A loader for each process takes {', '.join(said)}. It helps where one thread can't decode as fast as the "
            f"devices compute: a batch takes {' and '.join(costs)} at the cheapest and the dearest."
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
        colours = [style.COLOURS[row["case"]["engine"] == MPI] for row in rows]
        row_bars(
            figure, rows, "ms/step", colours, [row["metrics"]["step_ms"] / row["seconds"]["median"] for row in rows]
        )


def expected(load: float, compute: float, devices: int, loaders: int, cores: int) -> float:
    """Seconds of a step, if ``load`` is one loader's time for a batch and ``compute`` that of all devices side by side.

    >>> expected(4.0, 1.0, 2, 1, 2), expected(4.0, 1.0, 2, 2, 2), expected(0.0, 1.0, 2, 1, 2)
    (4.0, 3.0, 1.0)
    """
    return max(load / loaders, compute, (load + devices * compute) / cores)
