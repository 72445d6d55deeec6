"""What do stages and micro-batches bring, and does the plan know it beforehand?

A network is cut into stages, one on each device, and a batch into micro-batches that follow one another through them.
The plan (``python -m mxdp.plans gpipe 2 --micro-batches 4``) says how long a device idles: (p - 1) of m + p - 1 cycles.
With one micro-batch, plain model parallelism, one device works and the others wait; with many, p devices take little
more than 1/p of the time, if their stages are balanced and there is a core for each. GPipe and 1F1B take as long; 1F1B
keeps fewer activations.

The prediction of a row is the plan played through with the times of its stages, each measured alone in the same
process, a moment before.
"""

from __future__ import annotations

import statistics
from typing import TYPE_CHECKING, Any, Dict, Iterator, List, Optional, Tuple

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
)
from mxdp.experiments.other_splits.stage_pictures import Panel, staircase
from mxdp.experiments.report.rows import find_all, metric, plural, ratio
from mxdp.plans.cost.simulate import pipeline_seconds, pipeline_spans
from mxdp.plans.pipeline import PIPELINES, bubble, pipeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

CLAIM = 0.15
"""How far the prediction may be off."""
SEVERAL = 4
"""Micro-batches that must be faster than one."""
CHECKED = 16
"""Samples that are compared with the serial run, at least."""


@experiment
class PipelineStages(Experiment):
    """Both schedules, by number of micro-batches, against their plan; and one device for comparison."""

    name = "pipeline"
    question = "What do stages and micro-batches bring, and does the plan know it beforehand?"
    source = "Slides 'Multi-GPU', model parallelism; Dive into Deep Learning, 'Training on Multiple GPUs', the figure"
    how_to_read = (
        "A step is forward, backward and update of one batch. 'Pred.' is the plan played through with the stages' "
        "times, each measured alone just before; 'off' is how far that is from the time. Idle: of all devices' time "
        "in one recorded step, and of the plan's cycles (the bubble). MB: of the device that needs most, counted by "
        "MXNet, and predicted from the shapes; parameters and gradients included."
    )
    together = True
    presets = {
        "quick": dict(
            devices=[2], kind="auto", seed=0, rounds=5, timeout=120.0, batch_size=128, micro_batches=[1, 2, 4, 8]
        ),
        "full": dict(
            devices=[2, 4],
            kind="auto",
            seed=0,
            rounds=9,
            timeout=1200.0,
            batch_size=256,
            micro_batches=[1, 2, 4, 8, 16],
        ),
    }

    def __init__(self) -> None:
        self._cuts: Dict[int, Tuple[int, ...]] = {}

    def cases(self, settings: Settings) -> List[Case]:
        one = {"schedule": "gpipe", "stages": 1, "micro_batches": 1}
        return [
            Case(
                f"{stages} x {schedule}, m = {m}",
                stages,
                settings=dict(schedule=schedule, stages=stages, micro_batches=m),
            )
            for stages in settings["devices"]
            if stages > 1
            for schedule in sorted(PIPELINES, reverse=True)
            for m in settings["micro_batches"]
        ] + [Case("one device, whole batch", 1, settings=one, reference=max(settings["devices"]) > 1)]

    def predict(self, settings: Settings, cores: int) -> str:
        said = []
        for stages in settings["devices"]:
            if stages == 1:
                continue
            times = []
            for m in settings["micro_batches"]:
                equal = [1 / (stages * m)] * stages
                times.append(f"{pipeline_seconds(pipeline('gpipe', stages, m), equal, equal, cores=cores) / 2:.2f}")
            said.append(f"{stages} devices: {', '.join(times)}")
        counts = ", ".join(map(str, settings["micro_batches"]))
        return (
            f"With equal stages, on {plural(cores, 'core')}, m = {counts} micro-batches take of one device's time: "
            f"{'; '.join(said) or 'all of it, with one stage'}. Both schedules alike."
        )

    def oracle(self, case: Case, settings: Settings) -> Oracle:
        from mxdp.experiments.other_splits.work.stages import check_pipeline, problem

        samples = max(CHECKED, case.settings["micro_batches"])
        params, X, y = problem(samples, settings["seed"])
        checked, wrong = check_pipeline(self._pipeline(case, settings), params, X, y)
        return Oracle(checked, wrong, "scores, losses, gradients and updated parameters, against one device's")

    def run(self, case: Case, settings: Settings) -> Iterator[Any]:
        from mxdp import Timer
        from mxdp.experiments.other_splits.work.stages import LR, memory, problem, recorded_spans, workers
        from mxdp.parallel.stage_times import measure_stages

        made, batch_size = self._pipeline(case, settings), settings["batch_size"]
        _, X, y = problem(batch_size, settings["seed"])
        made.step(X, y)
        lasting, cores = made.lasting_bytes(batch_size), workers(made)

        def predicted(times: Any) -> float:
            return pipeline_seconds(made.plan, times.forward, times.backward, (), cores, times.push)

        found = {
            "predicted_end": predicted(measure_stages(made, X, y)),
            "bytes_moved": made.bytes_moved(batch_size),
            "peak_by_device": memory(made.devices, lasting, lambda: made.step(X, y)),
            "predicted_peak_by_device": [sum(both) for both in zip(lasting, made.peak_bytes(batch_size))],
            "spans": recorded_spans(made, X, y),
            "cuts": list(made.cuts),
            "workers": cores,
        }
        yield Ready([str(device) for device in made.devices])
        timer, history = Timer(), []
        while True:
            times = measure_stages(made, X, y)
            with timer:
                made.update(0.0, batch_size)
            update = timer.times[-1]
            made.step(X, y)
            with timer:
                made.step(X, y)
                made.update(LR, batch_size)
            expected = predicted(times) + update
            history.append((expected, expected / timer.times[-1]))
            found["predicted_seconds"], found["predicted_over_measured"] = map(statistics.median, zip(*history))
            found["stage_seconds"] = {"forward": times.forward, "backward": times.backward, "push": times.push}
            yield Round(timer.times[-1], found)

    def _pipeline(self, case: Case, settings: Settings) -> Any:
        from mxdp.experiments.measure.devices import devices_of
        from mxdp.experiments.other_splits.work.stages import INPUT, NET, problem
        from mxdp.parallel.layer_costs import find_cuts
        from mxdp.parallel.pipeline import Pipeline

        devices, stages = devices_of(case, settings), case.settings["stages"]
        params, _, _ = problem(1, settings["seed"])
        if stages not in self._cuts:
            plan = pipeline("gpipe", stages, SEVERAL)
            self._cuts[stages] = find_cuts(NET, params, INPUT, devices[0], plan, settings["batch_size"])
        m, schedule = case.settings["micro_batches"], case.settings["schedule"]
        return Pipeline(NET, params, INPUT, devices, m, schedule, self._cuts[stages])

    def finish(self, rows: List[Row], references: List[Row], settings: Settings) -> None:
        for row in rows + references:
            metrics = row["metrics"]
            metrics["seconds_per_step"] = row["seconds"]["median"]
            metrics["bubble"] = bubble(row["case"]["stages"], row["case"]["micro_batches"])
            metrics["idle"] = idle(metrics["spans"], row["case"]["stages"])
            for name in ("peak", "predicted_peak"):
                by_device = metrics[f"{name}_by_device"]
                metrics[f"{name}_bytes"] = max(by_device) if by_device else None
            if references:
                metrics["of_one_device"] = ratio(row, references[0])

    def verdict(self, rows: List[Row], references: List[Row], settings: Settings) -> Verdict:
        if not find_all(rows, stages=max(settings["devices"])) or max(settings["devices"]) == 1:
            return Verdict(None, "A pipeline needs 2 devices at least: run it with --devices 2.")
        roomy = [row for row in rows if row["case"]["stages"] <= row["metrics"]["workers"]]
        if not roomy:
            return Verdict(None, f"More stages than the {plural(rows[0]['metrics']['workers'], 'core')}: no claim.")
        off, faster = _off(roomy), True
        said = [f"The plan's time is off by {off:.0%} at most (claim: {CLAIM:.0%})."]
        if len(roomy) < len(rows):
            crowded = [row for row in rows if row not in roomy]
            said.append(f"With more stages than cores, for which nothing is claimed, by {_off(crowded):.0%}.")
        for stages in sorted({row["case"]["stages"] for row in rows}):
            own = find_all(rows, stages=stages)
            one, several = (find_all(own, micro_batches=m) for m in _ends(settings))
            if one != several:
                shares = [ratio(many, single) for many, single in zip(several, one)]
                faster = faster and (max(shares) < 1 or several[0] not in roomy)
                best = min(own, key=lambda row: row["seconds"]["median"])
                said.append(
                    f"On {stages} devices {_ends(settings)[1]} micro-batches take {max(shares):.2f} of one's time; the "
                    f"fastest, {best['label']}, takes {best['metrics']['of_one_device']:.2f} of one device's."
                )
            said.append(_memory(own))
        said.append(
            "Take stages when the network does not fit on one device; as many micro-batches as leave each enough work; "
            "and 1F1B rather than GPipe when memory is short."
        )
        return Verdict(off <= CLAIM and faster, " ".join(filter(None, said)))

    def columns(self) -> List[Column]:
        return [
            Column("ms", lambda row: f"{row['metrics']['seconds_per_step'] * 1e3:.1f}"),
            Column("pred.", lambda row: f"{row['metrics']['predicted_seconds'] * 1e3:.1f}"),
            Column("off", lambda row: f"{row['metrics']['predicted_over_measured'] - 1:+.0%}"),
            metric("idle", "idle", "{:.0%}"),
            metric("bubble", "plan", "{:.0%}"),
            Column("MB", lambda row: f"{row['metrics']['peak_bytes'] / 1e6:.1f}"),
            Column("MB pred.", lambda row: f"{row['metrics']['predicted_peak_bytes'] / 1e6:.1f}"),
        ]

    def draw(self, result: Result, figure: Figure) -> None:
        rows = [row for row in result["rows"] if row["case"]["stages"] == result["rows"][0]["case"]["stages"]]
        first, last = _ends(result["settings"])
        chosen = find_all(rows, micro_batches=first)[:1] + (find_all(rows, micro_batches=last) if last != first else [])
        panels = [
            Panel(_title(row), row["metrics"]["spans"] or _planned(row), row["metrics"]["predicted_end"])
            for row in chosen
        ]
        staircase(figure, panels)


def idle(spans: List[Any], stages: int) -> Optional[float]:
    """The share of all devices' time, from the first task's start to the last one's end, in which no task ran.

    >>> idle([(0, "F0", 0.0, 1.0), (1, "F0", 1.0, 3.0), (0, "B0", 3.0, 4.0)], stages=2)
    0.5
    """
    if not spans:
        return None
    starts, stops = ([float(span[place]) for span in spans] for place in (2, 3))
    return 1 - (sum(stops) - sum(starts)) / (stages * (max(stops) - min(starts)))


def _off(rows: List[Row]) -> float:
    """How far the worst prediction is off."""
    return max(abs(float(row["metrics"]["predicted_over_measured"]) - 1) for row in rows)


def _ends(settings: Settings) -> Tuple[int, int]:
    """The fewest micro-batches, and those that are to be faster."""
    counts = sorted(settings["micro_batches"])
    return counts[0], SEVERAL if SEVERAL in counts else counts[-1]


def _memory(rows: List[Row]) -> str:
    """How much less 1F1B needs with the most micro-batches."""
    most = find_all(rows, micro_batches=max(row["case"]["micro_batches"] for row in rows))
    peaks = {row["case"]["schedule"]: row["metrics"]["peak_bytes"] for row in most}
    if None in peaks.values() or len(peaks) < 2:
        return ""
    return (
        f"With {most[0]['case']['micro_batches']} micro-batches GPipe needs {peaks['gpipe'] / 1e6:.1f} MB on its "
        f"fullest device, 1F1B {peaks['1f1b'] / 1e6:.1f}."
    )


def _planned(row: Row) -> List[Any]:
    """What the plan says, where nothing could be recorded."""
    case, times, cores = row["case"], row["metrics"]["stage_seconds"], row["metrics"]["workers"]
    plan = pipeline(case["schedule"], case["stages"], case["micro_batches"])
    spans = pipeline_spans(plan, times["forward"], times["backward"], cores=cores, push=times["push"])
    return [(stage, str(task), *span) for (stage, task), span in spans.items()]


def _title(row: Row) -> str:
    how = "measured" if row["metrics"]["spans"] else "as planned"
    return f"{row['case']['schedule']}, m = {row['case']['micro_batches']}, {how}"
