"""What do stages and micro-batches bring, and does the plan predict it?

A network is cut into stages, one on each device, and a batch into micro-batches that follow one another through them.
The plan (``python -m mxdp.plans gpipe 2 --micro-batches 4``) says how long a device idles: (p - 1) of m + p - 1 cycles.
With one micro-batch (plain model parallelism) one device works and the others wait. With many, p devices take little
more than 1/p of the time, if the stages are balanced and each has a core. GPipe and 1F1B take the same time; 1F1B keeps
fewer activations.
"""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Settings, experiment
from mxdp.experiments.harness.rows import Row, find, find_all
from mxdp.experiments.other_splits.split import COMPARED, FULL, INTEGERS, ONE_DEVICE, QUICK, several
from mxdp.experiments.other_splits.staircases import panel, staircase
from mxdp.experiments.report import style
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.pipeline import PIPELINES, bubble, pipeline

SEVERAL = 4
"""Micro-batches that must be faster than one."""


@experiment
class PipelineStages(Experiment):
    """Both schedules, by number of micro-batches, against their plan; and one device for comparison."""

    name = "pipeline"
    question = "What do stages and micro-batches bring, and does the plan predict it?"
    source = "Slides 'Multi-GPU', model parallelism; Dive into Deep Learning, 'Training on Multiple GPUs', the figure"
    how_to_read = (
        "A step is forward, backward and update of one batch; a round gives the median of three. 'Pred./ms' is the "
        "predicted over the measured time: the plan is simulated with the times of the stages, each measured alone "
        "just before. 'Idle' is the share of all devices' time in which they do nothing, measured in one recorded "
        "step; 'bubble' is what the plan's cycles predict for it. 'MB' is the memory of the device that needs most, "
        "with parameters and gradients, as MXNet counts it, and 'MB pred.' is calculated from the shapes."
    )
    claims = {
        "several_of_one": Claim(
            f"With several micro-batches ({SEVERAL}, if measured, else the most), a step of either schedule takes at "
            "most as long as with the fewest.",
            "the cost model",
            1.0,
        ),
        "predicted_at_most": Claim(
            "The plan predicts the time of a step: at most 1.15 times the measured time, with each schedule and number "
            "of micro-batches.",
            "the cost model",
            1.15,
        ),
        "predicted_at_least": Claim(
            "The plan predicts the time of a step: at least 0.85 times the measured time, with each schedule and "
            "number of micro-batches.",
            "the cost model",
            0.85,
            least=True,
        ),
    }
    """For at most as many stages as there are cores."""
    together = True
    compared = COMPARED
    presets = {
        "quick": dict(QUICK, rounds=1, batch_size=128, micro_batches=[1, 2, 4, 8]),
        "full": dict(FULL, rounds=1, batch_size=256, micro_batches=[1, 2, 4, 8]),
    }
    checks = {"micro_batches": INTEGERS}
    little = dict(batch_size=40, micro_batches=[1, 4])

    def cases(self, settings: Settings) -> List[Case]:
        one = {"schedule": "gpipe", "stages": 1, "micro_batches": 1}
        return [
            Case(
                f"{stages} x {schedule}, m = {m}",
                stages,
                settings=dict(schedule=schedule, stages=stages, micro_batches=m),
            )
            for stages in several(settings)
            for schedule in sorted(PIPELINES, reverse=True)
            for m in settings["micro_batches"]
        ] + [Case("one device", 1, settings=one, reference=bool(several(settings)))]

    def predict(self, settings: Settings, cores: int) -> str:
        said = []
        for stages in several(settings):
            times = []
            for m in settings["micro_batches"]:
                equal = [1 / (stages * m)] * stages
                times.append(f"{pipeline_seconds(pipeline('gpipe', stages, m), equal, equal, cores=cores) / 2:.2f}")
            said.append(f"{', '.join(times)} of one device's time on {stages} devices")
        if not said:
            return ONE_DEVICE
        counts = ", ".join(map(str, settings["micro_batches"]))
        return (
            f"With m = {counts} micro-batches, a step takes {'; '.join(said)} (equal stages, on "
            f"{plural(cores, 'core')}). Both schedules take the same time."
        )

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            metrics = row.metrics
            metrics["seconds_per_step"] = row.median
            metrics["bubble"] = bubble(row.case["stages"], row.case["micro_batches"])
            metrics["idle"] = idle(metrics["spans"], row.case["stages"])
            for name in ("peak", "predicted_peak"):
                by_device = metrics[f"{name}_by_device"]
                metrics[f"{name}_bytes"] = max(by_device) if by_device else None
            if references:
                row.keep("of_one_device", row.ratios(references[0]))
        fewest, most = _ends(settings)
        for row in rows:
            if 1 < row.case["stages"] <= row.metrics["workers"]:
                for name in ("predicted_at_most", "predicted_at_least"):
                    row.keep(name, row.rounds["predicted_over_measured"])
                first = find(rows, **{**row.case, "micro_batches": fewest})
                if first and row.case["micro_batches"] == most != fewest:
                    row.keep("several_of_one", row.ratios(first))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if not several(settings):
            return ONE_DEVICE
        row = find_all(rows, schedule="gpipe", micro_batches=_ends(settings)[1])[0]
        return (
            f"On {row.case['stages']} devices, GPipe with {plural(row.case['micro_batches'], 'micro-batch')} takes "
            f"{row.estimate('of_one_device'):.2f} of one device's time, and the plan predicts "
            f"{row.estimate('predicted_over_measured'):.2f} times what was measured."
        )

    def explanation(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        most, stages = max(settings["micro_batches"]), rows[0].case["stages"]
        peaks = [row.metrics["peak_bytes"] for row in find_all(rows, stages=stages, micro_batches=most)]
        if stages == 1 or None in peaks:
            return ""
        gpipe, one_forward = (f"{peak / 1e6:.1f} MB" for peak in peaks)
        return (
            f"1F1B keeps fewer activations: with {plural(most, 'micro-batch')} it needs {one_forward} on the fullest "
            f"device, and GPipe {gpipe}."
        )

    def columns(self) -> List[Column]:
        return [
            Column("seconds_per_step", "ms", ".1f", 1e3),
            Column("of_one_device", "of 1 dev.", ".2f"),
            Column("predicted_over_measured", "pred./ms", ".2f", spread=True),
            Column("idle", "idle", ".0%"),
            Column("bubble", "bubble", ".0%"),
            Column("peak_bytes", "MB", ".1f", 1e-6),
            Column("predicted_peak_bytes", "MB pred.", ".1f", 1e-6),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = find_all(result["rows"], stages=result["rows"][0].case["stages"])
        fewest, most = _ends(result["settings"])
        chosen = find_all(rows, micro_batches=most)
        if most != fewest:
            chosen += find_all(rows, micro_batches=fewest)[:1]
        staircase(figure, [panel(row) for row in chosen])


def idle(spans: List[Any], stages: int) -> Optional[float]:
    """The share of all devices' time, from the first task's start to the last one's end, in which no task ran.

    >>> idle([(0, "F0", 0.0, 1.0), (1, "F0", 1.0, 3.0), (0, "B0", 3.0, 4.0)], stages=2)
    0.5
    """
    if not spans:
        return None
    starts, stops = ([float(span[place]) for span in spans] for place in (2, 3))
    return 1 - (sum(stops) - sum(starts)) / (stages * (max(stops) - min(starts)))


def _ends(settings: Settings) -> Tuple[int, int]:
    """The smallest number of micro-batches, and the number that must be faster."""
    counts = sorted(settings["micro_batches"])
    return counts[0], SEVERAL if SEVERAL in counts else counts[-1]
