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
PRESETS = {
    "quick": dict(COMMON, lenet=[16, 256], mlp=[16, 256], resnet=[4, 12]),
    "full": dict(
        COMMON, timeout=1800.0, lenet=[4, 16, 64, 256], mlp=[4, 16, 64, 256], resnet=[4, 6, 8, 12]
    ),
}
LITTLE = dict(devices=[1, 2], units=16, width=4, at_least=0.01, lenet=[4], mlp=[4], resnet=[2])
NETS = {"lenet": "LeNet", "mlp": "MLP", "resnet": "ResNet-18"}
PAYS = """A second device pays if the batch is large enough: with each network's largest batch, two devices are faster
    than one."""


def cases(s):
    for net, title in NETS.items():
        for batch in s[net]:
            for n in s.devices:
                if n <= batch:
                    yield Case(
                        f"{title}, batch {batch}, {plural(n, 'device')}", n, net=net, batch=batch
                    )


def expect(s, cores):
    return f"""Two devices pay where half the batch takes longer than Python and the all-reduce: with few parameters,
        much compute a sample, a large batch. More than {cores} devices bring nothing more."""


def oracle(case, s):
    many, one = on_all_and_one(case, s)
    yield from compared_step(many, one, random_batch(case.batch, s.seed))


def set_up(case, s):
    """A round is some steps, and on several devices what the prediction takes: steps of one device on its shard, and
    the links' speeds."""
    (model, one), devices, n = on_all_and_one(case, s), devices_of(case, s), case.devices
    all_devices, batch = (
        tuple(backend.devices(max(s.devices), s.kind)),
        random_batch(case.batch, s.seed),
    )
    shard = tuple(array[: -(-case.batch // n)] for array in batch)
    machine = calibrated(all_devices) if n > 1 else None
    for _ in range(2):  # long ones
        one.step(*shard)
        model.step(*batch)
    steps = max(1, min(MOST, round(s.at_least / seconds_a_step(model, batch, 1)[0])))

    def one_round():
        begin_anywhere(devices[0])
        # The second of two measurements: all cases share a network, which keeps the graphs of few shapes.
        seconds, _ = [seconds_a_step(model, batch, steps) for _ in range(2)][-1]
        if n == 1:
            return seconds
        shard_seconds, python = [seconds_a_step(one, shard, steps) for _ in range(2)][-1]
        predicted = sums_seconds([param.size for param in model.replicas[0]], devices, machine)
        return seconds, dict(
            shard_seconds=shard_seconds, python_seconds=python, allreduce_seconds=predicted
        )

    return Work(one_round, cores=process.cores() if devices[0].device_type == "cpu" else None)


def sums_seconds(sizes, devices, machine):
    """Predicted time of the sums of all gradients (float32, ``sizes`` elements), in the buckets that the step has."""
    return sum(
        predict(plan(choose(devices, inside, 4), len(devices), inside), 4 * sum(inside), machine)
        for inside in in_buckets(sizes)
    )


def tell(t, s):
    points = [
        row
        for row in t.rows
        if row.devices > 1 and t.maybe(net=row.net, batch=row.batch, devices=1)
    ]
    two = [row for row in points if row.devices == 2]
    for row in points:
        _tell_point(row, t.one(net=row.net, batch=row.batch, devices=1))
    judged = [row for row in points if row.pays != "open"]
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
    if not two:
        return t.answer("There is nothing to compare: run it with --devices 1,2.")
    t.first(two)
    for row in points:
        largest = row.batch == max(s[row.net])
        t.claim(
            PAYS,
            row.speedup if row.devices == 2 and largest else None,
            at_least=1.0,
            source=sources.SLOWER,
        )
    *words, last = [_tell_batches(net, s, two) for net in NETS]
    t.answer(f"By batch, a second device surely pays {', '.join(words)} and {last}.")
    t.explain(f"""Of {len(points)} points on several devices, {len(judged)} have an interval that does not touch 1; the
        prediction is on the right side of 1 at {sum(row.right for row in judged)} of these.""")
    usual = statistics.median(row.off.median for row in points)
    worst = max(points, key=lambda row: row.off.median)
    t.explain(f"""The predicted times of a step are off by a factor of {usual:.2f} in the middle, and at most of
        {worst.off:.2f} ({worst.label}).""")
    least = {title: _tell_break_even(t, net) for net, title in NETS.items()}
    words = [
        f"{samples:.1f} samples a device for {title}"
        for title, samples in least.items()
        if samples is not None
    ]
    if words:
        t.explain(f"Predicted for two devices, the break-even is at {', '.join(words)}.")
    for net, title in NETS.items():
        t.bars(
            "speedup",
            "times",
            title=title,
            colour="devices",
            rows=[row for row in points if row.net == net],
        )


def _tell_point(row, one):
    """What a row on several devices says beside that on one. Without an interval it is open whether it pays."""
    times = row.shard_seconds, row.python_seconds, row.allreduce_seconds
    row.predicted_seconds = by_process(
        lambda a, b, c: step_seconds(a, b, row.devices, row.cores, c), *times
    )
    row.speedup, row.predicted = (
        1 / (row.seconds / one.seconds),
        1 / (row.predicted_seconds / one.seconds),
    )
    row.off = factor(row.predicted_seconds / row.seconds)
    row.pays = "open"
    if row.speedup.low is not None and row.speedup.low > 1:
        row.pays = "yes"
    if row.speedup.high is not None and row.speedup.high < 1:
        row.pays = "no"
    row.right = None if row.pays == "open" else (row.predicted.median > 1) == (row.pays == "yes")


def _tell_batches(net, s, rows):
    """The batch from which all larger ones surely pay, and what is known of the largest that doesn't."""
    answers = {row.batch: row.pays for row in rows if row.net == net}
    slower = [batch for batch, answer in answers.items() if answer != "yes"]
    paying = [batch for batch in s[net] if batch > max(slower, default=0)]
    undecided = [str(batch) for batch in slower if answers[batch] == "open"]
    below = (
        f" ({', '.join(undecided)}: open)"
        if undecided
        else f" ({max(slower)}: no)"
        if slower
        else ""
    )
    return f"{f'from {min(paying)}' if paying else 'nowhere'} for {NETS[net]}{below}"


def _tell_break_even(t, net):
    """In samples a device, predicted by a line through one device's times; None without times of two sizes."""
    several = [row for row in t.find(net=net) if row.devices > 1]
    times = [(row.batch, row.seconds.median) for row in t.find(net=net, devices=1)]
    times += [(-(-row.batch // row.devices), row.shard_seconds.median) for row in several]
    two = [row for row in several if row.devices == 2]
    if not two or len({samples for samples, _ in times}) < 2:
        return None
    names = "python_seconds", "allreduce_seconds"
    python, allreduce = (statistics.median(row.get(name).median for row in two) for name in names)
    return break_even(fit_link(times), python, 2, two[0].cores, allreduce)
