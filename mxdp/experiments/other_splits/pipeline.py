"""What do stages and micro-batches bring, and does the plan predict it?

A network is cut into stages, one on each device, and a batch into micro-batches that follow one another through them.
The plan (``python -m mxdp.plans gpipe 2 --micro-batches 4``) says how long a device idles: (p - 1) of m + p - 1 cycles.
With one micro-batch (plain model parallelism) one device works and the others wait. With many, p devices take little
more than 1/p of the time, if the stages are balanced and each has a core. GPipe and 1F1B take the same time; 1F1B keeps
fewer activations.
"""

from __future__ import annotations

from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

from mxdp.errors import plural
from mxdp.experiments.harness.claims import Claim, estimate, off
from mxdp.experiments.harness.experiment import Case, Column, Experiment, Result, Row, Settings, experiment
from mxdp.experiments.other_splits.split import COMPARED, FULL, INTEGERS, QUICK
from mxdp.experiments.report import style
from mxdp.experiments.report.rows import find, find_all, keep, ratios
from mxdp.plans.cost.simulate import pipeline_seconds, pipeline_spans
from mxdp.plans.pipeline import PIPELINES, bubble, pipeline

SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B"}
SEVERAL = 4
"""Micro-batches that must be faster than one."""


@experiment
class PipelineStages(Experiment):
    """Both schedules, by number of micro-batches, against their plan; and one device for comparison."""

    name = "pipeline"
    question = "What do stages and micro-batches bring, and does the plan know it beforehand?"
    source = "Slides 'Multi-GPU', model parallelism; Dive into Deep Learning, 'Training on Multiple GPUs', the figure"
    how_to_read = (
        "A step is forward, backward and update of one batch. 'Pred./ms' is the time of the plan, simulated with the "
        "times of the stages, each measured alone just before, over the measured time. 'Idle' is the share of all "
        "devices' time in which they do nothing: measured in one recorded step; 'bubble' is what the plan's cycles "
        "predict for it. 'MB' is the memory of the device that needs most, with parameters and gradients, as MXNet "
        "counts it, and 'MB pred.' the same calculated from the shapes."
    )
    claims = {
        "several_of_one": Claim(
            f"Several micro-batches ({SEVERAL}, if measured, else the most) are faster than the fewest: with either "
            "schedule a step takes at most as long.",
            "the cost model",
            1.0,
        ),
        "predicted_at_most": Claim(
            "The plan knows the time of a step beforehand: it predicts at most 1.15 times the measured time, with each "
            "schedule and number of micro-batches.",
            "the cost model",
            1.15,
        ),
        "predicted_at_least": Claim(
            "The plan knows the time of a step beforehand: it predicts at least 0.85 times the measured time, with "
            "each schedule and number of micro-batches.",
            "the cost model",
            0.85,
            least=True,
        ),
    }
    """Of as many stages as there are cores, at most; with more, nothing is claimed."""
    together = True
    compared = COMPARED
    presets = {
        "quick": dict(QUICK, batch_size=128, micro_batches=[1, 2, 4, 8]),
        "full": dict(FULL, batch_size=256, micro_batches=[1, 2, 4, 8, 16]),
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
            for stages in settings["devices"]
            if stages > 1
            for schedule in sorted(PIPELINES, reverse=True)
            for m in settings["micro_batches"]
        ] + [Case("one device", 1, settings=one, reference=max(settings["devices"]) > 1)]

    def predict(self, settings: Settings, cores: int) -> str:
        if max(settings["devices"]) == 1:
            return "One device has one stage, and takes its own time."
        said = []
        for stages in [n for n in settings["devices"] if n > 1]:
            times = []
            for m in settings["micro_batches"]:
                equal = [1 / (stages * m)] * stages
                times.append(f"{pipeline_seconds(pipeline('gpipe', stages, m), equal, equal, cores=cores) / 2:.2f}")
            said.append(f"{', '.join(times)} of one device's time on {stages} devices")
        counts = ", ".join(map(str, settings["micro_batches"]))
        return (
            f"With m = {counts} micro-batches, a step takes {'; '.join(said)} (equal stages, on "
            f"{plural(cores, 'core')}). Both schedules take the same time."
        )

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
                keep(row, "of_one_device", ratios(row, references[0]))
        fewest, several = _ends(settings)
        for row in [row for row in rows if row["case"]["stages"] > 1]:
            case, predicted = row["case"], row["rounds"]["predicted_over_measured"]
            row["metrics"]["off"] = off(row, "predicted_seconds")
            roomy = _roomy(row)
            if roomy:
                keep(row, "predicted_at_most", predicted)
                keep(row, "predicted_at_least", predicted)
            first = find(rows, stages=case["stages"], schedule=case["schedule"], micro_batches=fewest)
            if first and case["micro_batches"] == several != fewest:
                keep(row, "several_of_one" if roomy else "of_fewest", ratios(row, first))

    def answer(self, rows: List[Row], references: List[Row], settings: Settings) -> str:
        if max(settings["devices"]) == 1:
            return "A pipeline needs at least 2 devices: run it with --devices 2."
        said, (fewest, several), most = [], _ends(settings), max(settings["micro_batches"])
        for stages in sorted({row["case"]["stages"] for row in rows}):
            own = find_all(rows, stages=stages, micro_batches=several)
            times = _each(own, "of_one_device")
            text = f"On {stages} devices a step with m = {several} takes {times} of one device's time"
            if fewest != several:
                name = "several_of_one" if _roomy(own[0]) else "of_fewest"
                text += f", and {_each(own, name)} of its time with m = {fewest}"
            said.append(f"{text}. By the plan a device idles {bubble(stages, several):.0%} of the time")
            said[-1] += f", with m = {fewest} {bubble(stages, fewest):.0%}." if fewest != several else "."
        for text, chosen in (
            ("The plan predicts {} times the measured time.", [row for row in rows if _roomy(row)]),
            ("With more stages than cores, for which nothing is claimed, it predicts {} times.",
             [row for row in rows if not _roomy(row)]),
        ):  # fmt: skip
            if chosen:
                said.append(text.format(_predicted(chosen)))
                errors = [each for row in chosen if (each := row["metrics"].get("off")) is not None]
                if errors:
                    said.append(f"{errors.count(0)} of {len(errors)} predictions agree (the intervals overlap).")
        stages = rows[0]["case"]["stages"]
        peaks = [row["metrics"]["peak_bytes"] for row in find_all(rows, stages=stages, micro_batches=most)]
        if None not in peaks:
            said.append(
                f"On {stages} devices with m = {most} the fullest device needs {peaks[0] / 1e6:.1f} MB with GPipe and "
                f"{peaks[1] / 1e6:.1f} MB with 1F1B: use that when memory is short."
            )
        return " ".join(said)

    def columns(self) -> List[Column]:
        return [
            Column("seconds_per_step", "ms", ".1f", 1e3),
            Column("predicted_over_measured", "pred./ms", ".2f", spread=True),
            Column("idle", "idle", ".0%"),
            Column("bubble", "bubble", ".0%"),
            Column("peak_bytes", "MB", ".1f", 1e-6),
            Column("predicted_peak_bytes", "MB pred.", ".1f", 1e-6),
        ]

    def draw(self, result: Result, figure: style.Figure) -> None:
        rows = find_all(result["rows"], stages=result["rows"][0]["case"]["stages"])
        fewest, several = _ends(result["settings"])
        chosen = find_all(rows, micro_batches=fewest)[:1]
        if several != fewest:
            chosen += find_all(rows, micro_batches=several)
        staircase(figure, [_panel(row) for row in chosen])


def idle(spans: List[Any], stages: int) -> Optional[float]:
    """The share of all devices' time, from the first task's start to the last one's end, in which no task ran.

    >>> idle([(0, "F0", 0.0, 1.0), (1, "F0", 1.0, 3.0), (0, "B0", 3.0, 4.0)], stages=2)
    0.5
    """
    if not spans:
        return None
    starts, stops = ([float(span[place]) for span in spans] for place in (2, 3))
    return 1 - (sum(stops) - sum(starts)) / (stages * (max(stops) - min(starts)))


def _roomy(row: Row) -> bool:
    """Has each of its stages a core?"""
    return bool(row["case"]["stages"] <= row["metrics"]["workers"])


def _each(rows: List[Row], name: str) -> str:
    return " and ".join(f"{estimate(row, name):.2f} with {SCHEDULES[row['case']['schedule']]}" for row in rows)


def _predicted(rows: List[Row]) -> str:
    """What the plan predicts over what was measured, of all rows."""
    each = [estimate(row, "predicted_over_measured").median for row in rows]
    return f"{min(each):.2f} to {max(each):.2f}"


def _ends(settings: Settings) -> Tuple[int, int]:
    """The smallest number of micro-batches, and the number that must be faster."""
    counts = sorted(settings["micro_batches"])
    return counts[0], SEVERAL if SEVERAL in counts else counts[-1]


class Panel(NamedTuple):
    """A title, tasks (stage, name, start and end in seconds), and the predicted end of the last task."""

    title: str
    spans: Sequence[Any]
    expected: float


def _panel(row: Row) -> Panel:
    """The recorded tasks, or the planned ones where nothing could be recorded."""
    case, metrics = row["case"], row["metrics"]
    schedule = SCHEDULES.get(case["schedule"], case["schedule"])
    title, spans = f"{schedule}, {plural(case['micro_batches'], 'micro-batch')}", metrics["spans"]
    if spans:
        return Panel(f"{title}, measured", spans, metrics["predicted_end"])
    times, plan = metrics["stage_seconds"], pipeline(case["schedule"], case["stages"], case["micro_batches"])
    planned = pipeline_spans(plan, times["forward"], times["backward"], cores=metrics["workers"], push=times["push"])
    spans = [(stage, str(task), *span) for (stage, task), span in planned.items()]
    return Panel(f"{title}, as planned", spans, metrics["predicted_end"])


def _room(text: str, end: float) -> float:
    """How much of a time axis up to ``end`` the text in a box takes."""
    return (0.006 + 0.017 * len(text)) * end


def staircase(figure: style.Figure, panels: Sequence[Panel]) -> None:
    """One panel above the other, with one time axis. Forward passes are blue, backward passes orange, and idle time
    white. In a box stands its task, or only the micro-batch if a box of its colour is too narrow for the task, or
    nothing. Behind the boxes, a dashed line marks the predicted end of the last task."""
    from matplotlib.patches import Patch

    stages = 1 + max(span[0] for panel in panels for span in panel.spans)
    end = 1e3 * max([*(span[3] for panel in panels for span in panel.spans), *(each.expected for each in panels)])
    figure.set_size_inches(style.WIDTH, len(panels) * (0.65 + 0.4 * stages) + 0.75)
    for axes, panel in zip(figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0], panels):
        narrow = {
            name[0]
            for _, name, start, stop in panel.spans
            if _room(name[1:], end) < 1e3 * (stop - start) < _room(name, end)
        }
        for stage, name, start, stop in panel.spans:
            left, width = 1e3 * start, 1e3 * (stop - start)
            colour, light = (style.COLOURS[0], "white") if name.startswith("F") else (style.COLOURS[1], style.INK)
            axes.barh(stage, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.8)
            text = name[1:] if name[0] in narrow else name
            if width > _room(text, end):
                axes.annotate(text, (left + width / 2, stage), ha="center", va="center", color=light, fontsize=9.5)
        axes.axvline(1e3 * panel.expected, color=style.INK, linestyle="--", zorder=0.9, label="predicted end")
        axes.set(title=panel.title, xlim=(0, 1.01 * end), ylim=(stages - 0.4, -0.6))
        axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
        axes.grid(axis="y", visible=False)
    axes.set_xlabel("ms; in the boxes: the number of the micro-batch")
    passes = [Patch(color=colour, label=label) for colour, label in zip(style.COLOURS, ("F: forward", "B: backward"))]
    figure.legend(handles=[*passes, axes.lines[0]], loc="outside lower center", ncols=3)
