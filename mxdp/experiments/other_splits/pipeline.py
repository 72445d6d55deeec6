"""What do stages and micro-batches bring, and does the plan predict it?

A network is cut into stages, one on each device, and a batch into micro-batches that follow one another through them.
The plan (``python -m mxdp.plans gpipe 2 --micro-batches 4``) says how long a device idles: (p - 1) of m + p - 1 cycles.
With one micro-batch one device works and the others wait. With many, p devices take little more than 1/p of the time,
if the stages are balanced and each has a core. 1F1B takes as long as GPipe, and keeps fewer activations.
"""

import statistics
from functools import partial

from mxdp import process
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import SEVERAL, devices_of, several, timed
from mxdp.experiments.lab import Case, Work, factor, faster
from mxdp.experiments.other_splits import split
from mxdp.parallel.stage_times import measure_stages
from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.pipeline import PIPELINES, bubble, pipeline

SOURCE = f"{sources.GPIPE}; the figure of {sources.MULTIPLE_GPUS}"
COMPARED = split.COMPARED
TOGETHER = True
PRESETS = {
    "quick": dict(split.QUICK, batch_size=128, micro_batches=[1, 2, 4, 8]),
    "full": dict(split.FULL, batch_size=256, micro_batches=[1, 2, 4, 8]),
}
CHECKS = SEVERAL
LITTLE = dict(batch_size=40, micro_batches=[1, 4])
SOME = 4
"""Micro-batches that must be faster than one."""
CHECKED = 16
"""Samples that are compared with the serial run, at least."""
STEPS = 3


def cases(s):
    for stages in several(s):
        for schedule in sorted(PIPELINES, reverse=True):
            for m in s.micro_batches:
                label = f"{stages} x {schedule}, m = {m}"
                yield Case(label, stages, schedule=schedule, stages=stages, micro_batches=m)
    yield Case("one device", reference=True, schedule="gpipe", stages=1, micro_batches=1)


def expect(s, cores):
    speedups = []
    for n in several(s):
        for m in s.micro_batches:
            equal = [1 / (n * m)] * n
            spans = pipeline_spans(pipeline("gpipe", n, m), equal, equal, cores=cores)
            speedups.append(f"{2 / last_end(spans):.2f} times on {n} devices with m = {m}")
    return f"""With equal stages, on {plural(cores, "core")}, a step in m micro-batches is as fast as one device's
        {", ".join(speedups)}. Both schedules take the same time."""


def oracle(case, s):
    """There is no batch normalisation, so micro-batches change nothing."""
    return _split(case, s).compare(CHECKED)


def set_up(case, s):
    """A round measures the stages alone, and then steps with their updates. The first looks at memory, too."""
    net = _split(case, s)
    size = s.batch_size
    made = net.make(size)
    X, y = net.batch(size)
    step = partial(made.step, X, y)
    for _ in range(2):
        step()
        measure_stages(made, X, y)
        made.update(0.0, size)
    # Devices, and Python, that can work at the same time: one for each core, or all, if they are GPUs.
    cores = process.cores() if made.devices[0].device_type == "cpu" else len(made.devices) + 1
    known: dict = {"workers": cores}
    if not case.number:
        lasting = made.lasting_bytes(size)
        known["peak_bytes"] = split.memory(made.devices, lasting, step)
        known["predicted_peak_bytes"] = split.fullest(lasting, made.peak_bytes(size))

    def one_round():
        times = measure_stages(made, X, y)
        spans = pipeline_spans(
            made.plan, times.forward, times.backward, cores=cores, push=times.push
        )
        expected = last_end(spans) + timed(lambda: made.update(0.0, size))
        step()
        seconds = statistics.median(timed(lambda: split.train(made, X, y)) for _ in range(STEPS))
        return seconds, dict(known, predicted_over_measured=expected / seconds)

    return Work(one_round, record=step)


def _split(case, s):
    device = devices_of(case, s)[0]
    cuts = split.stage_cuts(device, case.stages, SOME, s.batch_size, s.seed)
    return split.split_net(
        case,
        s,
        "pipeline",
        "stages",
        micro_batches=case.micro_batches,
        schedule=case.schedule,
        cuts=cuts,
    )


def tell(t, s):
    t.column(
        "seconds",
        "ms",
        ".1f",
        1e3,
        about=f"a step's time: forward, backward, update; the median of {STEPS}",
    )
    t.column("of_one_device", "of 1 dev.", ".2f", about="that over the time of one device")
    t.column(
        "predicted_over_measured",
        "pred./ms",
        ".2f",
        spread=True,
        about="predicted over measured: the plan is simulated with the stages' times, each measured alone just before",
    )
    t.column(
        "idle",
        form=".0%",
        about="the share of all devices' time in which they do nothing, measured in one recorded step",
    )
    t.column("bubble", form=".0%", about="what the plan's cycles predict for that")
    about = "the memory of the device that needs most, with parameters and gradients, as MXNet counts it in one step"
    t.column("peak_bytes", "MB", ".1f", 1e-6, about=f"{about} of the first process")
    t.column(
        "predicted_peak_bytes", "MB pred.", ".1f", 1e-6, about="that, calculated from the shapes"
    )
    one = t.one(stages=1)
    for row in t:
        row.bubble = bubble(row.stages, row.micro_batches)
        row.idle = 1 - statistics.mean(row.busy.values()) if row.get("busy") else None
        row.of_one_device = row.seconds / one.seconds
    if not t.rows:
        return
    stages = t.rows[0].stages
    counts = sorted({row.micro_batches for row in t.rows})
    fewest = counts[0]
    most = SOME if SOME in counts else counts[-1]
    what = f"With several micro-batches ({SOME}, if measured, else the most), a step of either schedule"
    sentence = f"{what} takes at most as long as with the fewest."
    predicted = []
    for row in t.rows:
        if row.stages <= row.workers.median:  # it has a core for each of its stages
            predicted.append(factor(row.predicted_over_measured))
            if row.micro_batches == most != fewest:
                few = t.one(stages=row.stages, schedule=row.schedule, micro_batches=fewest)
                t.claim(sentence, row.seconds / few.seconds, at_most=1.0, source=sources.GPIPE)
    row = t.one(schedule="gpipe", micro_batches=most, stages=stages)
    t.answer(f"""On {stages} devices, GPipe with {plural(most, "micro-batch")} {faster(1 / row.of_one_device)} as one
        device, and the plan predicts {row.predicted_over_measured:.2f} times the measured time.""")
    if predicted:
        worst = max(predicted, key=lambda number: number.median)
        t.explain(f"""Of {plural(len(predicted), "row")} with a core for each stage, the prediction is furthest off in
            '{worst.label}': by a factor of {worst:.2f}.""")
    gpipe, one_forward = t.find(stages=stages, micro_batches=counts[-1])
    if gpipe.get("peak_bytes") and one_forward.get("peak_bytes"):
        t.explain(f"""1F1B keeps fewer activations: with {plural(counts[-1], "micro-batch")} it needs
            {one_forward.peak_bytes / 1e6:.1f} MB on the fullest device, and GPipe {gpipe.peak_bytes / 1e6:.1f} MB.""")
    rows = [*t.find(stages=stages), *t.references]
    t.bars(unit="ms", scale=1e3, title="Time of a step", colour="schedule", rows=rows)
