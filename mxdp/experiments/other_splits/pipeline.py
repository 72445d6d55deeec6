"""What do stages and micro-batches bring, and does the plan predict it?

A network is cut into stages, one on each device, and a batch into micro-batches that follow one another through them.
The plan (``python -m mxdp.plans gpipe 2 --micro-batches 4``) says how long a device idles: (p - 1) of m + p - 1 cycles.
With one micro-batch (plain model parallelism) one device works and the others wait. With many, p devices take little
more than 1/p of the time, if the stages are balanced and each has a core. GPipe and 1F1B take the same time; 1F1B keeps
fewer activations.
"""

import statistics

from mxdp.errors import plural
from mxdp.experiments.devices import SEVERAL, devices_of, several, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.other_splits import split
from mxdp.experiments.other_splits.split import LR, SplitNet, memory, network, stage_cuts, workers
from mxdp.experiments.show import style
from mxdp.parallel.stage_times import measure_stages
from mxdp.plans.cost.simulate import pipeline_seconds, pipeline_spans
from mxdp.plans.pipeline import PIPELINES, bubble, pipeline
from mxdp.tracing import record
from mxdp.tracing.recording import can_record

SOURCE = "Slides 'Multi-GPU', model parallelism; Dive into Deep Learning, 'Training on Multiple GPUs', the figure"
COMPARED = split.COMPARED
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, batch_size=128, micro_batches=[1, 2, 4, 8]),
    "full": dict(split.FULL, batch_size=256, micro_batches=[1, 2, 4, 8]),
}
CHECKS = {**SEVERAL, "micro_batches": split.INTEGERS}
LITTLE = dict(batch_size=40, micro_batches=[1, 4])
SOME = 4
"""Micro-batches that must be faster than one."""
CHECKED = 16
"""Samples that are compared with the serial run, at least."""
STEPS = RECORDED = 3


def cases(s):
    for stages in several(s):
        for schedule in sorted(PIPELINES, reverse=True):
            for m in s.micro_batches:
                label = f"{stages} x {schedule}, m = {m}"
                yield Case(label, stages, schedule=schedule, stages=stages, micro_batches=m)
    yield Case("one device", reference=True, schedule="gpipe", stages=1, micro_batches=1)


def expect(s, cores):
    said = []
    for n in several(s):
        for m in s.micro_batches:
            equal = [1 / (n * m)] * n
            share = pipeline_seconds(pipeline("gpipe", n, m), equal, equal, cores=cores) / 2
            said.append(f"{share:.2f} of one device's time on {n} devices with m = {m}")
    return (
        f"With equal stages, on {plural(cores, 'core')}, a step in m micro-batches takes {', '.join(said)}. Both "
        "schedules take the same time."
    )


def oracle(case, s):
    """A sample for each micro-batch, at least. There is no batch normalisation, so micro-batches change nothing."""
    return _split(case, s).compare(max(CHECKED, case.micro_batches))


def set_up(case, s):
    """A round measures the stages alone, for the prediction, and then steps with their updates. The first process looks
    at memory and at when tasks run, which are no times that are compared."""
    net, size = _split(case, s), s.batch_size
    made, (X, y) = net.make(), net.batch(size)
    for _ in range(2):
        made.step(X, y)
        measure_stages(made, X, y)
    cores, lasting = workers(made.devices), made.lasting_bytes(size)

    def predicted(times):
        return pipeline_seconds(made.plan, times.forward, times.backward, cores=cores, push=times.push)

    def step_and_update():
        made.step(X, y)
        made.update(LR, size)

    looks = {} if case.number else dict(
        predicted_end=predicted(measure_stages(made, X, y)),
        peak_bytes=memory(made.devices, lasting, lambda: made.step(X, y)),
        predicted_peak_bytes=max(map(sum, zip(lasting, made.peak_bytes(size)))),
        spans=recorded_spans(made, X, y),
    )  # fmt: skip

    def one_round():
        times = measure_stages(made, X, y)
        expected = predicted(times) + timed(lambda: made.update(0.0, size))
        made.step(X, y)
        seconds = statistics.median(timed(step_and_update) for _ in range(STEPS))
        known = dict(looks, workers=cores, stage_seconds=vars(times))
        return seconds, dict(known, predicted_over_measured=expected / seconds)

    return Work(one_round, made.devices)


def recorded_spans(made, X, y):
    """When each task of a step ran, in the quickest of three recorded steps: stage, task, start and end in seconds.
    Empty where MXNet's profiler can't follow the devices. Waits."""
    steps = []
    for _ in range(RECORDED if can_record(made.devices) else 0):
        with record(made.devices) as recording:
            made.step(X, y)
        steps.append(spans(recording.timeline, made))
    return min(steps, key=lambda step: max(stop for *_, stop in step), default=[])


def spans(timeline, made):
    """The tasks in a recording. On each device they follow the plan's order, and each ends when its stage's token is
    passed on."""
    found = []
    for stage, device in enumerate(made.devices):
        tasks, work = iter(made.plan.tasks[stage]), []
        for event in timeline.lanes[str(device)]:
            if event.name == "ImperativeBulk":
                work.append(event)
            elif event.name == "size_array" and work:
                found.append((stage, str(next(tasks)), work[0].start, work[-1].end))
                work = []
    began = min(start for _, _, start, _ in found)
    return [(stage, task, start - began, stop - began) for stage, task, start, stop in found]


def _split(case, s):
    devices = devices_of(case, s)
    cuts = stage_cuts(devices[0], case.stages, SOME, s.batch_size, s.seed)
    options = {"micro_batches": case.micro_batches, "schedule": case.schedule, "cuts": cuts}
    return SplitNet("pipeline", *network("stages"), devices, s.seed, options)


def tell(t, s):
    t.column("seconds", "ms", ".1f", 1e3, about=f"a step's time: forward, backward, update; the median of {STEPS}")
    t.column("of_one_device", "of 1 dev.", ".2f", about="that over the time of one device")
    about = "predicted over measured: the plan is simulated with the stages' times, each measured alone just before"
    t.column("predicted_over_measured", "pred./ms", ".2f", spread=True, about=about)
    about = "the share of all devices' time in which they do nothing, measured in one recorded step"
    t.column("idle", form=".0%", about=about)
    t.column("bubble", form=".0%", about="what the plan's cycles predict for that")
    about = "the memory of the device that needs most, with parameters and gradients, as MXNet counts it in one step"
    t.column("peak_bytes", "MB", ".1f", 1e-6, about=f"{about} of the first process")
    t.column("predicted_peak_bytes", "MB pred.", ".1f", 1e-6, about="that, calculated from the shapes")
    for row in t:
        row.bubble, row.idle = bubble(row.stages, row.micro_batches), tell_idle(row.spans, row.stages)
        row.of_one_device = row.seconds / t.one(stages=1).seconds
    counts, stages = sorted(s.micro_batches), several(s)[0]
    fewest, most = counts[0], SOME if SOME in counts else counts[-1]
    for row in t.rows:
        if row.stages <= row.workers.median:  # it has a core for each of its stages
            what = "The plan predicts the time of a step"
            where = "times the measured time, with each schedule and number of micro-batches."
            off, model = row.predicted_over_measured, "the cost model"
            t.claim(f"{what}: at most 1.15 {where}", off, at_most=1.15, source=model)
            t.claim(f"{what}: at least 0.85 {where}", off, at_least=0.85, source=model)
            if row.micro_batches == most != fewest:
                over = row.seconds / t.one(stages=row.stages, schedule=row.schedule, micro_batches=fewest).seconds
                what = f"With several micro-batches ({SOME}, if measured, else the most), a step of either schedule"
                t.claim(f"{what} takes at most as long as with the fewest.", over, at_most=1.0, source=model)
    row = t.one(schedule="gpipe", micro_batches=most, stages=stages)
    t.answer(
        f"On {stages} devices, GPipe with {plural(most, 'micro-batch')} takes {row.of_one_device:.2f} of one device's "
        f"time, and the plan predicts {row.predicted_over_measured:.2f} times what was measured."
    )
    gpipe, one_forward = (row.get("peak_bytes") for row in t.find(stages=stages, micro_batches=counts[-1]))
    if gpipe and one_forward:
        t.explain(
            f"1F1B keeps fewer activations: with {plural(counts[-1], 'micro-batch')} it needs {one_forward / 1e6:.1f} "
            f"MB on the fullest device, and GPipe {gpipe / 1e6:.1f} MB."
        )
    shown = t.find(stages=stages, micro_batches=most)
    shown += t.find(stages=stages, micro_batches=fewest)[:1] if most != fewest else []
    t.draw(lambda figure: _draw(figure, shown))


def tell_idle(spans, stages):
    """The share of all devices' time, from the first task's start to the last one's end, in which no task ran; None
    without tasks.

    >>> tell_idle([(0, "F0", 0.0, 1.0), (1, "F0", 1.0, 3.0), (0, "B0", 3.0, 4.0)], stages=2)
    0.5
    """
    if not spans:
        return None
    starts, stops = ([float(span[place]) for span in spans] for place in (2, 3))
    return 1 - (sum(stops) - sum(starts)) / (stages * (max(stops) - min(starts)))


def _draw(figure, rows):
    """When each task of a step ran, on each stage, or was planned where nothing could be recorded. A box is a task,
    with its name if there is room. A dashed line marks the predicted end of the last task."""
    from matplotlib.patches import Patch

    figure.set_size_inches(style.WIDTH, len(rows) * (1.05 + 0.4 * rows[0].stages) + 0.35)
    parts = figure.subplots(len(rows), 1, squeeze=False, sharex=True)[:, 0]
    spans = [row.spans or _tell_planned(row) for row in rows]
    end = 1e3 * max(stop for tasks in spans for *_, stop in tasks)
    for axes, row, tasks in zip(parts, rows, spans):
        for stage, name, start, stop in tasks:
            left, width, forward = 1e3 * start, 1e3 * (stop - start), name.startswith("F")
            colour, ink = (style.COLOURS[0], "white") if forward else (style.COLOURS[1], style.INK)
            axes.barh(stage, width, left=left, height=0.8, color=colour, edgecolor="white", linewidth=0.8)
            text = next((text for text in (name, name[1:]) if width > (0.006 + 0.017 * len(text)) * end), "")
            axes.annotate(text, (left + width / 2, stage), ha="center", va="center", color=ink, fontsize=9.5)
        expected = 1e3 * row.predicted_end.median
        axes.axvline(expected, color=style.INK, linestyle="--", zorder=0.9, label="predicted end")
        schedule = {"gpipe": "GPipe", "1f1b": "1F1B"}[row.schedule]
        how = "measured" if row.spans else "as planned"
        axes.set_title(f"{schedule}, {plural(row.micro_batches, 'micro-batch')}, {how}")
        axes.set(xlabel="ms", ylim=(row.stages - 0.4, -0.6))
        axes.set_yticks(range(row.stages), [f"stage {stage}" for stage in range(row.stages)])
        axes.tick_params(labelbottom=True)
        axes.grid(axis="y", visible=False)
    passes = [Patch(color=colour, label=label) for colour, label in zip(style.COLOURS, ("F: forward", "B: backward"))]
    figure.legend(handles=[*passes, axes.lines[0]], loc="outside lower center", ncols=3)


def _tell_planned(row):
    times, plan = row.stage_seconds, pipeline(row.schedule, row.stages, row.micro_batches)
    cores = int(row.workers.median)
    planned = pipeline_spans(plan, times["forward"], times["backward"], cores=cores, push=times["push"])
    return [(stage, str(task), *span) for (stage, task), span in planned.items()]
