"""See the overlap instead of believing it: a timeline of any other experiment.

    python -m mxdp.experiments run profile --of two-jobs

Each case of that experiment runs in a process of its own, as always. A round runs it twice: once plain, and once
recorded by MXNet's profiler. The prediction is that of the other experiment. Measured is how busy the devices are, how
long two of them work at the same time, and how much of the communication lies beside compute.
"""

from __future__ import annotations

import shlex
from typing import List, Sequence, Tuple

from mxdp.errors import UsageError
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment, find
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style


@experiment
class Profile(Experiment):
    """The cases of another experiment (``of``), each of its rounds recorded."""

    name = "profile"
    question = "For how much of the time do two devices work at once?"
    source = "Dive into Deep Learning, 'Automatic Parallelism', exercise 4"
    how_to_read = (
        "Busy: the share of the round in which each device worked. Together: the share in which at least two did. "
        "Comm. beside compute: the share of the copies and sums that lay beside compute. Cost: a recorded round over a "
        "plain one, the median over the rounds. The other numbers are of the last round, whose timelines are in the "
        "report, with a trace of each for ui.perfetto.dev."
    )
    compared = "what the recorded experiment compares"
    presets = {
        "quick": dict(devices=[2], kind="auto", seed=0, rounds=1, timeout=120.0, of="two-jobs"),
        "full": dict(devices=[2], kind="auto", seed=0, rounds=1, timeout=3600.0, of="two-jobs"),
    }

    little = dict(of="layerwise", units=16, batch_sizes=[4], steps=2)  # the last three are the recorded experiment's

    def cases(self, settings: Settings) -> List[Case]:
        other, its = recorded_experiment(settings)
        return [case for case in other.cases(its) if case.processes == 1]

    def predict(self, settings: Settings, cores: int) -> str:
        other, its = recorded_experiment(settings)
        return f"What {other.name} expects: {other.predict(its, cores)}"

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        most = max(rows + references, key=lambda row: row.estimate("together").median)
        return (
            f"Two devices work at the same time for up to {most.estimate('together'):.0%} of a round; that is the case "
            f"{most.label!r} of {settings['of']}."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        worst = max(rows + references, key=lambda row: row.estimate("cost").median)
        doubt = " Doubt timelines that cost so much time." if worst.at_most("cost", 1.25) is False else ""
        return (
            f"A recorded round takes at most {worst.estimate('cost'):.2f} times as long as a plain one.{doubt} With "
            f"GPUs, NVIDIA's own profiler sees more: {nsys_command(settings['of'], ['--kind', 'gpu'])}"
        )

    def columns(self) -> List[Column]:
        return [
            Column("busy", "busy", ".0%"),
            Column("together", "together", ".0%"),
            Column("hidden", "comm. beside compute", ".0%"),
            Column("critical", "critical"),
            Column("cost", "cost", ".2f"),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = result["rows"] + result["references"]
        axes = figure.add_subplot()
        labels, values, colours = [], [], []
        devices = sorted({device for row in rows for device in row.metrics["busy"]})
        for row in rows:
            for device, share in row.metrics["busy"].items():
                labels.append(f"{row.label}: {device}")
                values.append(100 * share)
                colours.append(style.COLOURS[devices.index(device) % len(style.COLOURS)])
        style.bars(axes, labels, values, unit="%", colours=colours)
        axes.set(xlabel="share of the round in which the device works, %", xticks=range(0, 101, 20))


def recorded_experiment(settings: Settings) -> Tuple[Experiment, Settings]:
    """The experiment to record, and its settings: its quick ones, but those of ``settings`` where it has the same.

    Raises:
        UsageError: no experiment has that name, or it is this one.
    """
    other = find(settings["of"])
    if isinstance(other, Profile):
        raise UsageError("profile can't record itself: set 'of' to another experiment")
    common = {key: value for key, value in settings.items() if key in other.presets["quick"] and key != "timeout"}
    return other, {**other.presets["quick"], **common}


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
