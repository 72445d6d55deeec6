"""What do stages and micro-batches bring, and does the plan predict it?

A network is cut into stages, one on each device, and a batch into micro-batches that follow one another through them.
The plan (``python -m mxdp.plans gpipe 2 --micro-batches 4``) says how long a device idles: (p - 1) of m + p - 1 cycles.
With one micro-batch (plain model parallelism) one device works and the others wait. With many, p devices take little
more than 1/p of the time, if the stages are balanced and each has a core. GPipe and 1F1B take the same time; 1F1B keeps
fewer activations.
"""

import statistics

from mxdp.errors import plural
from mxdp.experiments.devices import devices_of, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.other_splits import split
from mxdp.experiments.other_splits.split import LR, ONE_DEVICE, SplitNet, memory, network, several, stage_cuts, workers
from mxdp.experiments.other_splits.staircases import draw_staircase, tell_panel
from mxdp.parallel.stage_times import measure_stages
from mxdp.plans.cost.simulate import pipeline_seconds
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
CHECKS = {"micro_batches": split.INTEGERS}
LITTLE = dict(batch_size=40, micro_batches=[1, 4])
SEVERAL = 4
"""Micro-batches that must be faster than one."""
CHECKED = 16
"""Samples that are compared with the serial run, at least."""
STEPS = RECORDED = 3


def cases(s):
    for stages in several(s):
        for schedule in sorted(PIPELINES, reverse=True):
            for m in s.micro_batches:
                own = dict(schedule=schedule, stages=stages, micro_batches=m)
                yield Case(f"{stages} x {schedule}, m = {m}", stages, **own)
    yield Case("one device", reference=bool(several(s)), schedule="gpipe", stages=1, micro_batches=1)


def expect(s, cores):
    if not several(s):
        return ONE_DEVICE

    def share(stages, m):
        equal = [1 / (stages * m)] * stages
        return f"{pipeline_seconds(pipeline('gpipe', stages, m), equal, equal, cores=cores) / 2:.2f}"

    said = (
        f"{', '.join(share(n, m) for m in s.micro_batches)} of one device's time on {n} devices" for n in several(s)
    )
    counts, where = ", ".join(map(str, s.micro_batches)), f"(equal stages, on {plural(cores, 'core')})"
    return (
        f"With m = {counts} micro-batches, a step takes {'; '.join(said)} {where}. Both schedules take the same time."
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
        cuts=made.cuts,
    )  # fmt: skip

    def one_round():
        times = measure_stages(made, X, y)
        expected = predicted(times) + timed(lambda: made.update(0.0, size))
        made.step(X, y)
        seconds = statistics.median(timed(step_and_update) for _ in range(STEPS))
        known = dict(looks, workers=cores, stage_seconds=vars(times))
        return seconds, dict(known, predicted_seconds=expected, predicted_over_measured=expected / seconds)

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
    cuts = stage_cuts(devices[0], case.stages, SEVERAL, s.batch_size, s.seed)
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
    if not several(s):
        t.answer(ONE_DEVICE)
        return
    counts, stages = sorted(s.micro_batches), several(s)[0]
    fewest, most = counts[0], SEVERAL if SEVERAL in counts else counts[-1]
    for row in t.rows:
        if row.stages <= row.workers.median:
            _tell_claims(t, row, fewest, most)
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
    t.draw(lambda figure: draw_staircase(figure, list(map(tell_panel, shown))))


def _tell_claims(t, row, fewest, most):
    """What is claimed of a row that has a core for each of its stages."""
    for side, bound in (("at most", 1.15), ("at least", 0.85)):
        where = f"{side} {bound} times the measured time, with each schedule and number of micro-batches."
        sentence, limit = f"The plan predicts the time of a step: {where}", {side.replace(" ", "_"): bound}
        t.claim(sentence, row.predicted_over_measured, source="the cost model", **limit)
    if row.micro_batches == most != fewest:
        over = row.seconds / t.one(stages=row.stages, schedule=row.schedule, micro_batches=fewest).seconds
        several = f"With several micro-batches ({SEVERAL}, if measured, else the most), a step of either schedule takes"
        t.claim(f"{several} at most as long as with the fewest.", over, at_most=1.0, source="the cost model")


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
