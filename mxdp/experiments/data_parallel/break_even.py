"""When does a second device pay?

"Two GPUs are slower than one" is what people ask most. The threads answer: take a larger batch, and mind the ratio of
compute to parameters. :mod:`mxdp.plans.cost.step` makes numbers of that, from what one device tells: a step on the
batch and on a part of it, Python's part, and the speed of the links.
"""

import statistics

from mxdp import backend, process
from mxdp.collectives.tuning import choose
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work, by_process, factor
from mxdp.experiments.links import calibrated
from mxdp.experiments.networks import (
    MOST,
    begin_anywhere,
    compared_step,
    in_buckets,
    on_all_and_one,
    seconds_a_step,
)
from mxdp.experiments.oracle import random_batch
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.link import fit_link
from mxdp.plans.cost.simulate import predict
from mxdp.plans.cost.step import break_even, step_seconds

SOURCE = f"{sources.SLOWER}; issues 2277, 4286, 5943 and 12577 are like it"
COMPARED = "gradients and parameters of every replica, against the shards one by one on one device"
TOGETHER = True
COMMON = dict(devices=[1, 2, 4], units=1024, width=64, at_least=0.1)
FEW = [16, 256]
MANY = [4, 16, 64, 256]
PRESETS = {
    "quick": dict(COMMON, lenet=FEW, mlp=FEW, resnet=[4, 12]),
    "full": dict(
        COMMON,
        timeout=1800.0,
        lenet=MANY,
        mlp=MANY,
        resnet=[4, 6, 8, 12],
    ),
}
LITTLE = dict(
    devices=[1, 2],
    units=16,
    width=4,
    at_least=0.01,
    lenet=[4],
    mlp=[4],
    resnet=[2],
)
NETS = {"lenet": "LeNet", "mlp": "MLP", "resnet": "ResNet-18"}
PAYS = """A second device pays if the batch is large enough: with each network's largest batch, two devices are faster
    than one."""


def cases(s):
    for net, title in NETS.items():
        for batch in s[net]:
            for n in s.devices:
                if n <= batch:
                    label = f"{title}, batch {batch}, {plural(n, 'device')}"
                    yield Case(label, n, net=net, batch=batch)


def expect(s, cores):
    return f"""Two devices pay where half the batch takes longer than Python and the all-reduce: with few parameters,
        much compute a sample, a large batch. More than {cores} devices bring nothing more."""


def oracle(case, s):
    many, one = on_all_and_one(case, s)
    yield from compared_step(many, one, random_batch(case.batch, s.seed))


def ready(case, s):
    """The network on all devices and on one; the batch, and the largest shard of it."""
    model, one = on_all_and_one(case, s)
    batch = random_batch(case.batch, s.seed)
    largest = -(-case.batch // case.devices)
    return model, one, batch, [array[:largest] for array in batch]


def set_up(case, s):
    """A round is some steps, and on several devices what the prediction takes: steps of one device on its shard, and
    the links' speeds."""
    model, one, batch, shard = ready(case, s)
    devices = devices_of(case, s)
    n = case.devices
    machine = None
    if n > 1:
        machine = calibrated(tuple(backend.devices(max(s.devices), s.kind)))
    for _ in range(2):  # long ones
        one.step(*shard)
        model.step(*batch)
    first, _ = seconds_a_step(model, batch, 1)
    steps = max(1, min(MOST, round(s.at_least / first)))

    def one_round():
        begin_anywhere(devices[0])
        seconds, _ = _second_time(model, batch, steps)
        if n == 1:
            return seconds
        shard_seconds, python = _second_time(one, shard, steps)
        sums = sums_seconds([param.size for param in model.replicas[0]], devices, machine)
        return seconds, dict(
            shard_seconds=shard_seconds, python_seconds=python, allreduce_seconds=sums
        )

    return Work(one_round, cores=process.cores() if devices[0].device_type == "cpu" else None)


def _second_time(model, batch, steps):
    """What the second of two measurements says: all cases share a network, which keeps the graphs of few shapes."""
    seconds_a_step(model, batch, steps)
    return seconds_a_step(model, batch, steps)


def sums_seconds(sizes, devices, machine):
    """Predicted time of the sums of all gradients (float32, ``sizes`` elements), in the buckets that the step has."""
    seconds = 0.0
    for inside in in_buckets(sizes):
        schedule = plan(choose(devices, inside, 4), len(devices), inside)
        seconds += predict(schedule, 4 * sum(inside), machine)
    return seconds


def _tell_columns(t):
    t.column("seconds", "ms", scale=1e3, about="of a step, of steps that follow one another")
    t.column(
        "speedup",
        "speed-up",
        ".2f",
        spread=True,
        about="one device's time for the same whole batch over this",
    )
    t.column(
        "predicted",
        "pred.",
        ".2f",
        spread=True,
        about="from part of the batch, Python's time and the links",
    )
    t.column(
        "pays",
        about="it pays if the speed-up is above 1, which is open where the interval touches 1",
    )
    t.column("right", about="whether the prediction is on the measured side of 1")
    t.column(
        "off",
        "step x",
        ".2f",
        about="by which factor the predicted time of a step is off the measured one",
    )


def tell(t, s):
    points = []
    for row in t.rows:
        one = t.maybe(net=row.net, batch=row.batch, devices=1)
        if one and row.devices > 1:
            _tell_point(row, one)
            points.append(row)
    two = [row for row in points if row.devices == 2]
    _tell_columns(t)
    if not two:
        return t.answer("There is nothing to compare: run it with --devices 1,2.")
    t.first(two)
    largest = [row.speedup for row in two if row.batch == max(s[row.net])]
    t.claim(PAYS, *largest, at_least=1.0, source=sources.SLOWER)
    *words, last = [_tell_batches(net, s, two) for net in NETS]
    t.answer(f"By batch, a second device surely pays {', '.join(words)} and {last}.")
    judged = [row for row in points if row.pays != "open"]
    t.explain(f"""Of {len(points)} points on several devices, {len(judged)} have an interval that does not touch 1; the
        prediction is on the right side of 1 at {sum(row.right for row in judged)} of these.""")
    usual = statistics.median(row.off.median for row in points)
    worst = max(points, key=lambda row: row.off.median)
    t.explain(f"""The predicted times of a step are off by a factor of {usual:.2f} in the middle, and at most of
        {worst.off:.2f} ({worst.label}).""")
    words = []
    for net, title in NETS.items():
        samples = _tell_break_even(t, net)
        if samples is not None:
            words.append(f"{samples:.1f} samples a device for {title}")
        rows = [row for row in points if row.net == net]
        t.bars("speedup", "times", title=title, colour="devices", rows=rows)
    if words:
        t.explain(f"Predicted for two devices, the break-even is at {', '.join(words)}.")


def _tell_point(row, one):
    """What a row on several devices says beside that on one. Without an interval it is open whether it pays."""

    def predicted(shard, python, allreduce):
        return step_seconds(shard, python, row.devices, row.cores, allreduce)

    row.predicted_seconds = by_process(
        predicted, row.shard_seconds, row.python_seconds, row.allreduce_seconds
    )
    row.speedup = 1 / (row.seconds / one.seconds)
    row.predicted = 1 / (row.predicted_seconds / one.seconds)
    row.off = factor(row.predicted_seconds / row.seconds)
    row.pays = "open"
    if row.speedup.low is not None and row.speedup.low > 1:
        row.pays = "yes"
    if row.speedup.high is not None and row.speedup.high < 1:
        row.pays = "no"
    row.right = None
    if row.pays != "open":
        row.right = (row.predicted.median > 1) == (row.pays == "yes")


def _tell_batches(net, s, rows):
    """The batch from which all larger ones surely pay, and what is known of the largest that doesn't."""
    answers = {row.batch: row.pays for row in rows if row.net == net}
    slower = [batch for batch, answer in answers.items() if answer != "yes"]
    paying = [batch for batch in s[net] if batch > max(slower, default=0)]
    undecided = [str(batch) for batch in slower if answers[batch] == "open"]
    words = f"from {min(paying)}" if paying else "nowhere"
    words += f" for {NETS[net]}"
    if undecided:
        words += f" ({', '.join(undecided)}: open)"
    elif slower:
        words += f" ({max(slower)}: no)"
    return words


def _tell_break_even(t, net):
    """The break-even in samples a device, predicted by a line through one device's times; None without two sizes."""
    several = [row for row in t.find(net=net) if row.devices > 1]
    times = [(row.batch, row.seconds.median) for row in t.find(net=net, devices=1)]
    times += [(-(-row.batch // row.devices), row.shard_seconds.median) for row in several]
    two = t.find(net=net, devices=2)
    if not two or len({samples for samples, _ in times}) < 2:
        return None
    python = statistics.median(row.python_seconds.median for row in two)
    allreduce = statistics.median(row.allreduce_seconds.median for row in two)
    return break_even(fit_link(times), python, 2, two[0].cores, allreduce)
