"""How does training scale with devices, and where does the rest go?

Weak scaling: each device has its batch, and the whole batch grows. Strong scaling: all devices share one batch. Without
overlap a step on k devices takes ``t_step(k) = t_compute(B / k) + 2N / beta``: one device's time for its part of the
batch, and the all-reduce of N bytes of gradients, whose bandwidth beta counts both ways.

On GPUs the book finds that a second one brings LeNet nothing: half a batch leaves a GPU, which computes thousands of
numbers at a time, underused, so ``t_compute(B / 2)`` is about ``t_compute(B)``. A core computes a few at a time, so a
small batch fills it, and half a batch takes about half the time.

A second instrument is a step with its all-reduce less one without it, as inside ``no_sync``. It misses what backward
hides, and includes devices that come late and memory that others have used. The book finds it within tens of percent
of ``2N / beta``. Here it is none: an all-reduce is a small part of a step, and one step differs more from the next.
"""

import statistics
from itertools import product

from mxdp import backend, process
from mxdp.collectives import AllReduce
from mxdp.errors import plural, size
from mxdp.experiments import sources
from mxdp.experiments.data_parallel import break_even
from mxdp.experiments.devices import SEVERAL, devices_of
from mxdp.experiments.lab import Case, Work, factor, faster
from mxdp.experiments.networks import MOST, NETS, begin_anywhere, seconds_a_step
from mxdp.experiments.show import style
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict
from mxdp.timing import Timer

SOURCE = f"{sources.FIRST_PRINCIPLES}; {sources.IN_PRACTICE}"
COMPARED = break_even.COMPARED
TOGETHER = True
DEVICES = [n for n in (1, 2, 4) if n <= max(2, process.cores())]
# `lenet` and `resnet`: the batch of a device in weak scaling; in strong scaling all devices share that of two.
COMMON = dict(devices=DEVICES, width=64, lenet=128, resnet=8)
PRESETS = {
    "quick": dict(COMMON, at_least=0.3),
    "full": dict(COMMON, at_least=1.0, timeout=1800.0),
}
CHECKS = SEVERAL
LITTLE = dict(devices=[1, 2], width=4, lenet=4, resnet=2, at_least=0.01)
TURNS = 3
"""How often a round measures everything, in turn. The median counts."""
HALF = "LeNet: one device takes at least 0.9 of the time for half of the batch, so a second device brings nothing."
HALF_SOURCE = f"{sources.FIRST_PRINCIPLES}, on RTX 4090, batch 256, read as 0.9"
WEAK = """ResNet-18, weak scaling: {} devices reach at least {:.0%} of linear, as the book's with 256 pictures of
    64 x 64 a device (here: {} of 28 x 28)."""
BOOK_WEAK = {2: 0.88, 4: 0.82}
oracle = break_even.oracle


def cases(s):
    for net, (title, _) in NETS.items():
        for n in sorted({1, *s.devices}):
            for batch in sorted({s[net] * n, 2 * s[net]}):  # the same on two devices
                if n <= batch:
                    label = f"{title}, {plural(n, 'device')}, batch {batch}"
                    yield Case(label, n, net=net, batch=batch)


def expect(s, cores):
    n = max(s.devices)
    schedule = plan("direct", n)
    sums = []
    for title, count in NETS.values():
        seconds = predict(schedule, 4 * count, CPU.with_cores(cores))
        sums.append(f"{style.number(1e3 * seconds)} ms for {title}")
    return f"""Half a batch takes a core half the time, so up to {plural(cores, "core")} both kinds of scaling stay
        above 0.8 of linear. The all-reduce over {plural(n, "device")} takes {" and ".join(sums)}."""


def set_up(case, s):
    """A round is some steps; on several devices also steps without the all-reduce, steps of one device on its shard,
    and all-reduces of one vector as long as all gradients. All take turns."""
    model, one, batch, shard = break_even.ready(case, s)
    devices = devices_of(case, s)
    count = sum(param.size for param in model.replicas[0])
    summed = AllReduce([backend.np.zeros(count, ctx=device) for device in devices], "auto")
    for _ in range(2):  # long ones
        one.step(*shard)
        model.step(*batch)
        summed()
    first, _ = seconds_a_step(model, batch, 1)
    steps = max(1, min(MOST, round(s.at_least / TURNS / first)))

    def turn():
        begin_anywhere(devices[0])
        seconds, _ = seconds_a_step(model, batch, steps)
        if case.devices == 1:
            return (seconds,)
        model.sums = False
        unsynced, _ = seconds_a_step(model, batch, steps)
        model.sums = True
        alone, _ = seconds_a_step(one, shard, steps)
        with Timer() as timer:
            for _ in range(steps):
                summed()
        return seconds, unsynced, alone, timer.sum() / steps

    def one_round():
        turns = [turn() for _ in range(TURNS)]
        seconds, *others = map(statistics.median, zip(*turns))
        names = ("unsynced_seconds", "shard_seconds", "allreduce_seconds")
        return seconds, dict(zip(names, others))

    return Work(one_round, nbytes=4 * count)


def _tell_columns(t):
    t.column(
        "seconds",
        "ms",
        ".4g",
        1e3,
        about="a step of the whole batch, of steps that follow one another",
    )
    t.column("samples_per_sec", "samples/s", ",.4g")
    t.column("weak", form=".2f", spread=True, about="efficiency with a batch a device: 1 is linear")
    t.column(
        "strong", form=".2f", spread=True, about="efficiency with one batch for all: 1 is linear"
    )
    t.column("predicted_seconds", "pred., ms", ".4g", 1e3, about="t_compute(B / k) + 2N / beta")
    t.column("off", "x", ".2f", about="by which factor the prediction is off the time")
    lost = "of the step, lost because"
    t.column(
        "to_compute", "compute", ".0%", about=f"{lost} t_compute does not fall as 1 / k", more=True
    )
    t.column(
        "to_sums",
        "all-reduce",
        ".0%",
        about=f"{lost} of communication: 2N / beta, measured alone",
        more=True,
    )
    t.column(
        "to_rest",
        "rest",
        "+.0%",
        about=f"{lost} devices slow each other down; negative: hidden",
        more=True,
    )
    t.column(
        "difference",
        "synced less unsynced, ms",
        ".3g",
        1e3,
        about="with the all-reduce less without",
        more=True,
    )
    t.column(
        "allreduce_seconds", "2N / beta, ms", ".3g", 1e3, about="an all-reduce by itself", more=True
    )
    t.column("instrument", "ratio", ".2f", spread=True, about="of these two", more=True)
    t.column("beta", "beta, GB/s", ".1f", 1e-9, about="2N over that time", more=True)


def tell(t, s):
    for row in t:
        row.samples_per_sec = row.batch / row.seconds
    several = [row for row in t.rows if row.devices > 1]
    for row in several:
        _tell_point(row, t, s[row.net])
    _tell_columns(t)
    t.first(several)
    halves = [row.half for row in t.find(net="lenet", devices=2)]
    t.claim(HALF, *halves, at_least=0.9, source=HALF_SOURCE)
    source = f"{sources.IN_PRACTICE}, on RTX 4090"
    for n, bound in BOOK_WEAK.items():
        reached = [row.get("weak") for row in t.find(net="resnet", devices=n)]
        t.claim(WEAK.format(n, bound, s.resnet), *reached, at_least=bound, source=source)
    n = max(s.devices)
    strong = t.one(net="lenet", devices=n, batch=2 * s.lenet)
    weak = t.one(net="resnet", devices=n, batch=n * s.resnet)
    t.answer(f"""On {plural(n, "device")} training LeNet with one batch for all {faster(n * strong.strong)} as on one,
        and ResNet-18 with a batch a device {faster(n * weak.weak)}.""")
    if halves:
        t.explain(f"""Half of LeNet's batch takes one device {halves[0]:.2f} of the whole batch's time: where devices
            are cores, a small batch fills one. On GPUs the book finds about 1, so a second one brings nothing.""")
    t.explain(f"""With and without its all-reduce ResNet-18's step differs by {weak.instrument:.2f} times 2N / beta, and
        LeNet's by {strong.instrument:.2f} times ({size(strong.nbytes)}). Where intervals are so wide, that difference
        measures nothing.""")
    t.draw(lambda axes: _draw_efficiency(axes, t, s))
    shared = [row for row in several if row.get("strong")]
    t.draw(lambda axes: _draw_lost(axes, shared), len(shared) * style.BAR_HEIGHT + 1.4)


def _tell_point(row, t, batch):
    """What a row on several devices says beside those on one. ``batch``: of a device, in weak scaling."""
    k = row.devices
    whole = t.one(net=row.net, devices=1, batch=2 * batch).seconds
    row.predicted_seconds = row.shard_seconds + row.allreduce_seconds
    row.off = factor(row.predicted_seconds / row.seconds)
    row.to_sums = row.allreduce_seconds / row.seconds
    row.to_rest = (row.seconds - row.predicted_seconds) / row.seconds
    row.difference = row.seconds - row.unsynced_seconds
    row.instrument = row.difference / row.allreduce_seconds
    row.beta = 2.0 * row.nbytes / row.allreduce_seconds
    if row.batch == k * batch:
        row.weak = t.one(net=row.net, devices=1, batch=batch).seconds / row.seconds
    if row.batch == 2 * batch:
        row.strong = whole / row.seconds / k
        row.half = row.shard_seconds / whole
        row.to_compute = (row.shard_seconds - whole / k) / row.seconds


def _draw_efficiency(axes, t, s):
    """Efficiency over devices: measured, and predicted from one device and the all-reduce (dashed)."""
    for at, (net, kind) in enumerate(product(NETS, ("weak", "strong"))):
        counts = [1]
        measured = [1.0]
        predicted = [1.0]
        for row in t.find(net=net):
            efficiency = row.get(kind)
            if efficiency is not None:
                counts.append(row.devices)
                measured.append(efficiency.median)
                predicted.append((efficiency * row.seconds / row.predicted_seconds).median)
        colour = style.COLOURS[at]
        marker = style.MARKERS[at]
        axes.plot(counts, measured, f"{marker}-", color=colour, label=f"{NETS[net][0]}, {kind}")
        axes.plot(counts, predicted, "--", color=colour, linewidth=1.2)
    axes.axhline(1, color=style.GREY, linewidth=1)
    axes.set(
        xlabel="devices (dashed: predicted)",
        ylabel="of linear",
        xticks=sorted({1, *s.devices}),
        ylim=(0, None),
    )
    axes.legend(fontsize=9.5, ncols=2, loc="lower center")


def _draw_lost(axes, rows):
    """Strong scaling: a step in its parts, in units of one device's time over k; a mark where the step ends."""
    words = {
        "1 / k": style.LIGHT_GREY,
        "compute": style.COLOURS[0],
        "all-reduce": style.COLOURS[4],
        "rest": "#DDDDDD",
    }
    for y, row in enumerate(rows):
        lost = [row.get(name).median for name in ("to_compute", "to_sums", "to_rest")]
        unit = 1 - sum(lost)
        left = 0.0
        for (name, colour), part in zip(words.items(), (unit, *lost)):
            wide = max(0.0, part / unit)  # what is hidden has no width
            label = name if y == 0 else None
            axes.barh(y, wide, left=left, height=style.THICK, color=colour, label=label)
            left += wide
        axes.plot([1 / unit] * 2, [y - 0.3, y + 0.3], color=style.INK)
        axes.annotate(
            row.label, (0, y - style.THICK / 2), (3, 2), textcoords="offset points", va="bottom"
        )
    axes.set(ylim=(len(rows) - 0.5, -0.8), yticks=[], xlabel="one device's time / k")
    axes.set_title("Strong scaling: where a step's time goes")
    style.legend_below(axes)
