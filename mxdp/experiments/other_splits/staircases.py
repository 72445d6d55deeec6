"""The picture of ``pipeline``: when each task of a step ran, on each stage."""

from __future__ import annotations

from typing import Any, NamedTuple, Sequence

from mxdp.errors import plural
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import style
from mxdp.plans.cost.simulate import pipeline_spans
from mxdp.plans.pipeline import pipeline


class Panel(NamedTuple):
    """A title, tasks (stage, name, start and end in seconds), and the predicted end of the last task."""

    title: str
    spans: Sequence[Any]
    expected: float


def panel(row: Row) -> Panel:
    """The recorded tasks, or the planned ones where nothing could be recorded."""
    case, metrics = row.case, row.metrics
    schedule = {"gpipe": "GPipe", "1f1b": "1F1B"}[case["schedule"]]
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
    """One panel above the other, on the same scale. A box is a task: blue forward, orange backward, labelled with its
    name, or only with its micro-batch if a box of its colour is too narrow for the name, or not at all. A dashed line
    behind the boxes marks the predicted end of the last task."""
    from matplotlib.patches import Patch

    stages = 1 + max(span[0] for panel in panels for span in panel.spans)
    end = 1e3 * max([*(span[3] for panel in panels for span in panel.spans), *(each.expected for each in panels)])
    figure.set_size_inches(style.WIDTH, len(panels) * (1.05 + 0.4 * stages) + 0.35)
    for axes, panel in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels):
        narrow = {
            name[0]
            for _, name, start, stop in panel.spans
            if _room(name[1:], end) < 1e3 * (stop - start) < _room(name, end)
        }
        for stage, name, start, stop in panel.spans:
            left, width = 1e3 * start, 1e3 * (stop - start)
            colour, ink = (style.COLOURS[0], "white") if name.startswith("F") else (style.COLOURS[1], style.INK)
            axes.barh(stage, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.8)
            text = name[1:] if name[0] in narrow else name
            if width > _room(text, end):
                axes.annotate(text, (left + width / 2, stage), ha="center", va="center", color=ink, fontsize=9.5)
        axes.axvline(1e3 * panel.expected, color=style.INK, linestyle="--", zorder=0.9, label="predicted end")
        axes.set(title=panel.title, xlabel="ms", xlim=(0, 1.01 * end), ylim=(stages - 0.4, -0.6))
        axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
        axes.grid(axis="y", visible=False)
    passes = [Patch(color=colour, label=label) for colour, label in zip(style.COLOURS, ("F: forward", "B: backward"))]
    figure.legend(handles=[*passes, axes.lines[0]], loc="outside lower center", ncols=3)
