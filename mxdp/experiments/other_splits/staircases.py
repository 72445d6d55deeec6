"""The picture of ``pipeline``: when each task of a step ran, on each stage."""

from mxdp.errors import plural
from mxdp.experiments.show import style
from mxdp.plans.cost.simulate import pipeline_spans
from mxdp.plans.pipeline import pipeline


def tell_panel(row):
    """A title, tasks (stage, name, start and end in seconds), and the predicted end of the last task: recorded ones, or
    the planned ones where nothing could be recorded."""
    schedule = {"gpipe": "GPipe", "1f1b": "1F1B"}[row.schedule]
    title, spans, end = f"{schedule}, {plural(row.micro_batches, 'micro-batch')}", row.spans, row.predicted_end.median
    if spans:
        return f"{title}, measured", spans, end
    times, plan = row.stage_seconds, pipeline(row.schedule, row.stages, row.micro_batches)
    cores = int(row.workers.median)
    planned = pipeline_spans(plan, times["forward"], times["backward"], cores=cores, push=times["push"])
    return f"{title}, as planned", [(stage, str(task), *span) for (stage, task), span in planned.items()], end


def draw_staircase(figure, panels):
    """One panel above the other, on the same scale. A box is a task: blue forward, orange backward, labelled with its
    name, or only with its micro-batch if a box of its colour is too narrow for the name, or not at all. A dashed line
    behind the boxes marks the predicted end of the last task."""
    from matplotlib.patches import Patch

    every = [span for _, spans, _ in panels for span in spans]
    stages = 1 + max(span[0] for span in every)
    end = 1e3 * max([*(span[3] for span in every), *(expected for *_, expected in panels)])

    def room(text):
        """How much of the time axis the text in a box takes."""
        return (0.006 + 0.017 * len(text)) * end

    figure.set_size_inches(style.WIDTH, len(panels) * (1.05 + 0.4 * stages) + 0.35)
    for axes, (title, spans, expected) in zip(figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels):
        narrow = {
            name[0] for _, name, start, stop in spans if room(name[1:]) < 1e3 * (stop - start) < room(name)
        }  # fmt: skip
        for stage, name, start, stop in spans:
            left, width = 1e3 * start, 1e3 * (stop - start)
            colour, ink = (style.COLOURS[0], "white") if name.startswith("F") else (style.COLOURS[1], style.INK)
            axes.barh(stage, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.8)
            text = name[1:] if name[0] in narrow else name
            if width > room(text):
                axes.annotate(text, (left + width / 2, stage), ha="center", va="center", color=ink, fontsize=9.5)
        axes.axvline(1e3 * expected, color=style.INK, linestyle="--", zorder=0.9, label="predicted end")
        axes.set(title=title, xlabel="ms", xlim=(0, 1.01 * end), ylim=(stages - 0.4, -0.6))
        axes.set_yticks(range(stages), [f"stage {stage}" for stage in range(stages)])
        axes.grid(axis="y", visible=False)
    passes = [Patch(color=colour, label=label) for colour, label in zip(style.COLOURS, ("F: forward", "B: backward"))]
    figure.legend(handles=[*passes, axes.lines[0]], loc="outside lower center", ncols=3)
