"""See the overlap instead of believing it: a timeline of any other experiment.

    python -m mxdp.experiments run profile --of two-jobs

Each case of that experiment runs as it always does, in a process of its own kind, once for every round; the rounds are
recorded by MXNet's profiler. What is expected is what that experiment expects, and what is measured is how busy the
devices were, how long two of them were at the same time, and how much of the communication lay beside compute.
"""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any, Iterator, List, Sequence, Tuple

from mxdp.errors import UsageError
from mxdp.experiments.harness.experiment import (
    Case,
    Column,
    Experiment,
    Oracle,
    Ready,
    Result,
    Round,
    Row,
    Settings,
    Verdict,
    experiment,
    find,
)
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import metric

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OVERHEAD = 1.25
"""A recorded round may take so many times as long as a plain one before the timeline is doubted."""


@experiment
class Profile(Experiment):
    """The cases of another experiment (``of``), each of its rounds recorded."""

    name = "profile"
    question = "What did each device do, and when?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 4"
    how_to_read = (
        "Busy: the share of the round in which each device worked. Together: in which at least two did. Hidden: how "
        "much of the copies and sums lay beside compute. Cost: a recorded round over a plain one. The report has the "
        "timelines, and a trace of each for ui.perfetto.dev."
    )
    presets = {
        "quick": dict(devices=[2], kind="auto", seed=0, rounds=5, timeout=120.0, of="two-jobs"),
        "full": dict(devices=[2], kind="auto", seed=0, rounds=9, timeout=3600.0, of="two-jobs"),
    }

    def cases(self, settings: Settings) -> List[Case]:
        other, its = _other(settings)
        return [case for case in other.cases(its) if case.processes == 1]

    def predict(self, settings: Settings, cores: int) -> str:
        other, its = _other(settings)
        return f"What {other.name} expects: {other.predict(its, cores)}"

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        other, its = _other(settings)
        return other.oracle(case, its)

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp.backend import mx
        from mxdp.experiments.measure.timelines import recorded

        other, its = _other(settings)
        rounds = other.run(case, {**its, "rounds": 2 * settings["rounds"] + 1})
        ready: Ready = next(rounds)
        yield ready
        devices = [mx.Context(*_kind_and_number(name)) for name in ready.devices]
        measured: List[Round] = []
        while True:
            plain: Round = next(rounds)
            metrics = recorded(lambda: measured.append(next(rounds)), devices)
            if not metrics:
                raise UsageError(f"MXNet's profiler can't follow {len(devices)} CPU devices on this machine")
            seconds = measured[-1].seconds
            yield Round(seconds, {**metrics, "cost": seconds / plain.seconds})

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        said = [f"{row['label']}: {row['metrics']['together']:.0%}" for row in rows + references]
        worst = max((row["metrics"]["cost"] for row in rows + references if row["metrics"]["busy"]), default=1.0)
        command = nsys_command(settings["of"], ["--kind", "gpu"])
        return Verdict(
            worst <= OVERHEAD,
            f"Two devices worked at the same time for these shares of a round: {'; '.join(said)}. Recording made a "
            f"round at most {worst:.2f} times as long. With GPUs, NVIDIA's own profiler sees more: {command}",
        )

    def columns(self) -> List[Column]:
        return [
            Column(
                "busy", lambda row: ", ".join(f"{share:.0%}" for share in row["metrics"]["busy"].values()) or "none"
            ),
            metric("together", "together", "{:.0%}"),
            metric("hidden", "hidden", "{:.0%}"),
            Column("critical", lambda row: str(row["metrics"]["critical"])),
            metric("cost", "cost"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = result["rows"] + result["references"]
        axes = figure.add_subplot()
        labels, values, colours = [], [], []
        for number, row in enumerate(rows):
            for device, share in row["metrics"]["busy"].items():
                labels.append(f"{row['label']}: {device}")
                values.append(100 * share)
                colours.append(style.COLOURS[number % len(style.COLOURS)])
        style.bars(axes, labels, values, unit="% busy", colours=colours)


def _other(settings: Settings) -> Tuple[Experiment, Settings]:
    """The experiment that is recorded, and its settings: its quick ones, with what both have in common.

    Raises:
        UsageError: there is none of that name, or it is this one.
    """
    other = find(settings["of"])
    if isinstance(other, Profile):
        raise UsageError("profile can't record itself: set 'of' to another experiment")
    common = {key: value for key, value in settings.items() if key in other.presets["quick"] and key != "timeout"}
    return other, {**other.presets["quick"], **common}


def _kind_and_number(device: str) -> Any:
    kind, _, number = device.rstrip(")").partition("(")
    return kind, int(number)


def nsys_command(name: str, arguments: Sequence[str] = ()) -> str:
    """The shell command that runs experiment ``name`` under NVIDIA's Nsight Systems. It only returns the text.

    Nsight Systems records what MXNet's profiler does not see: CUDA calls, kernels and copies, cuDNN, cuBLAS and the
    waits of the operating system, in child processes too. MXNet's operators have names in it if MXNet's build has NVTX
    and its profiler runs. ``nsys-ui`` opens the report. The command was never run on a GPU. Source: the User Guide of
    Nsight Systems, "CLI profile command switch options".
    """
    command = ["nsys", "profile", "--trace=cuda,cudnn,cublas,nvtx,osrt", "--sample=none", "--force-overwrite=true"]
    command += [f"--output={name}", "python", "-m", "mxdp.experiments", "run", name, *arguments]
    return " ".join(map(shlex.quote, command))
