"""Where did the time of a training step go?

Some LeNet steps of :func:`mxdp.train` are recorded, with Python at most two steps ahead. The wall clock of the device
that works longest is split into parts that add up to it (:mod:`mxdp.tracing.breakdown`). On one device nearly all of it
should be compute. Two devices also communicate, and one waits for the other, at least as long as their times differ.
Where they share memory, compute takes longer than half of one device's time as well.
"""

from mxdp.errors import UsageError, plural
from mxdp.experiments import sources
from mxdp.experiments.data_parallel import lenet_steps
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.show import style
from mxdp.experiments.timelines import timeline_shares
from mxdp.scratch import get_params, init_lenet
from mxdp.tracing.recording import can_record
from mxdp.training import TrainStep

SOURCE = f"exercise 4 of {sources.PARALLELISM}; {sources.MULTIPLE_GPUS}"
COMPARED = "gradients and parameters of every replica, steps on an uneven batch"
COMMON = dict(devices=[1, 2], data="auto", data_dir=None, batch_size=256)
PRESETS = {
    "quick": dict(COMMON, data="synthetic", timeout=120.0, steps=7),
    "full": dict(COMMON, timeout=600.0, steps=10),
}
LITTLE = dict(batch_size=40, steps=2)
oracle = lenet_steps.oracle


def cases(s):
    for n in s.devices:
        yield Case(f"{plural(n, 'device')}, one bucket", n)


def expect(s, cores):
    return f"""Speed-up of the compute: {lenet_steps.expect_speedups(s, cores)}. The other parts are what several
        devices cost."""


def set_up(case, s):
    """A round is ``steps`` steps, recorded, after some that warm up. The row shows the last round's first three."""
    devices = devices_of(case, s)
    if not can_record(devices):
        several = plural(len(devices), "CPU device")
        raise UsageError(f"MXNet's profiler can't follow {several} on this machine: ask for fewer")
    step = TrainStep([get_params(init_lenet(s.seed), device) for device in devices], devices, 0.1)
    record = lenet_steps.recorder(
        lenet_steps.pictures(s).train, s.batch_size, s.seed, step, devices
    )

    def one_round():
        split = record(s.steps)
        three_steps = split.timeline.between(0.0, min(split.timeline.length, 3 * split.wall_clock))
        return split.wall_clock, {
            **split.shares(),
            "on_processor": split.on_processor,
            **timeline_shares(three_steps),
        }

    return Work(one_round)


def tell(t, s):
    one = t.maybe(devices=1)
    for row in t:
        for part, share in lenet_steps.mean_shares(row).items():
            setattr(row, f"mean_{part}", share)
        if one:
            row.speedup = one.seconds / row.seconds
        t.claim("At most 0.05 of the time of a step remains unexplained.", row.rest, at_most=0.05)
    t.column("seconds", "ms", ".1f", 1e3, spread=True, about="the time of a recorded step")
    t.column("speedup", "speed-up", ".2f", spread=True, about="one device's time over this row's")
    t.column(
        "on_processor",
        "on CPU",
        ".0%",
        about="the share of their working time in which devices had a processor",
    )
    for name, words in lenet_steps.PARTS.items():
        t.column(f"mean_{name}", words, ".1%", more=True)
    t.note("""Mean shares of the wall clock of the device that works longest add up to 100 %; the answer gives medians.
        Waiting: for another device's result, or because Python waited. Python: the device was idle, since nothing had
        been pushed. Input: the same, while a batch was made. Unexplained: idle for none of these reasons.""")
    row = t.rows[-1]
    other = lenet_steps.mean_shares(row)
    del other["compute"]
    most = max(other, key=lambda part: other[part])
    t.answer(f"""On {plural(row.devices, "device")} {row.compute:.1%} of a training step is compute; the next largest
        part, {lenet_steps.PARTS[most]}, takes {row.get(most):.1%}.""")
    if row.get("on_processor") is not None and row.on_processor.median < 0.95:
        t.explain(f"The devices had a processor for {row.on_processor:.0%} of their working time.")
    t.draw(lambda axes: _draw(axes, t.rows), 0.7 * len(t.rows) + 1.8)


def _draw(axes, rows):
    ms = [row.seconds.median * 1e3 for row in rows]
    left = [0.0] * len(rows)
    colours = (*style.COLOURS[:6], style.GREY)
    for (name, words), colour in zip(lenet_steps.PARTS.items(), colours):
        lengths = [row.get(f"mean_{name}") * time for row, time in zip(rows, ms)]
        axes.barh(range(len(rows)), lengths, 0.4, left, color=colour, label=words)
        left = [start + length for start, length in zip(left, lengths)]
    for y, row in enumerate(rows):
        text = f"{row.label}: {style.number(ms[y])} ms"
        axes.annotate(text, (0, y - 0.2), (3, 2), textcoords="offset points")
    axes.set(ylim=(len(rows) - 0.5, -0.7), xlabel="ms a step", yticks=[])
    axes.grid(axis="y", visible=False)
    style.legend_below(axes)
