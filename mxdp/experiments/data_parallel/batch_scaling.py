"""On k devices, is a batch k times as large as good, and with which learning rate?

The sums of an all-reduce don't depend on the number of devices, so devices decide the time, and batch and learning rate
the accuracy. After as many samples, k times the batch has made 1 / k of the updates. Three rules for the learning rate:

- kept: the updates together go 1 / k of the way.
- times k: one update goes as far as the k that it replaces (Goyal et al., "Accurate, Large Minibatch SGD", 2017).
- times the square root of k: the noise of an update stays the same (Krizhevsky, "One weird trick", 2014).
"""

import statistics

from mxdp.datasets import load, minibatches
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.data_parallel.lenet_steps import pictures
from mxdp.experiments.devices import WARM_UP, devices_of, timed
from mxdp.experiments.lab import Case, Work, faster
from mxdp.experiments.networks import set_params
from mxdp.experiments.oracle import tolerances_of
from mxdp.scratch import evaluate, get_params, init_lenet, lenet, train_batch
from mxdp.training import BoundNet, TrainStep, train_steps

SOURCE = f"exercises 1 and 2 of {sources.MULTIPLE_GPUS}"
COMPARED = "parameters after one step, with the rule's learning rate"
TOGETHER = True
COMMON = dict(devices=[1, 2], data="auto", data_dir=None, lr=0.1, batch_size=32)
PRESETS = {
    "quick": dict(COMMON, timeout=600.0, times=[2, 4], samples=8192, test=1000),
    "full": dict(COMMON, timeout=3600.0, times=[2], samples=12288, test=2000, processes=6),
}
LITTLE = dict(data="synthetic", batch_size=4, times=[2], samples=64, test=100)
RULES = {"kept": 0.0, "root": 0.5, "linear": 1.0}
"""A learning rate is multiplied by k to this power."""
PARTS = 8
"""The parts of a training. The network is evaluated after each; its accuracy is the mean of the last three."""
CHECKS = {
    "times": (lambda times: min(times) > 1, "above 1, as in 2,4"),
    "samples": (lambda samples: samples % PARTS == 0, f"a multiple of {PARTS}"),
}
SCALE = 0.1
"""Larger weights than the book's, which learn nothing in so few steps."""


def cases(s):
    n = max(s.devices)
    size = s.batch_size
    for devices in sorted({1, n}):
        yield Case(
            f"batch {size}, {plural(devices, 'device')}",
            devices,
            times=1,
            rule="",
            batch=size,
            rate=s.lr,
        )
    for k in sorted({n, *s.times} - {1}):
        for rule, power in RULES.items():
            rate = s.lr * k**power
            batch = k * size
            label = f"batch {batch}, lr {rate:.3g}"
            yield Case(label, n, times=k, rule=rule, batch=batch, rate=rate)


def expect(s, cores):
    return """With k times the batch and the learning rate the accuracy stays; with the learning rate kept it is that of
        1 / k of the updates. A large batch takes less time, since it saves the fixed costs of steps."""


def training(case, s, data):
    """Replicas, and a function that sets them to a seed's start; it returns one that trains and says the seconds."""
    devices = devices_of(case, s)
    replicas = [get_params(init_lenet(s.seed, SCALE), device) for device in devices]
    step = TrainStep(replicas, devices, case.rate)

    def begin(seed):
        set_params(replicas, init_lenet(seed, SCALE))
        stream = Stream(data.train, case.batch, seed)

        def train_on(samples):
            return timed(lambda: train_steps(stream.take(samples), step))

        return train_on

    return replicas, begin


def oracle(case, s):
    devices = devices_of(case, s)
    data = load("synthetic", seed=s.seed)
    batch = s.batch_size * case.times
    lr = s.lr * case.times ** RULES.get(case.rule, 0.0)
    replicas, begin = training(case, s, data)
    for seed in (s.seed, s.seed + 1):
        begin(seed)(batch)
        serial = get_params(init_lenet(seed, SCALE), devices[0])
        X, y = next(minibatches(data.train, batch, seed, epoch=0))
        train_batch(X, y, [serial], devices[:1], lr)
        for replica in replicas:
            for param, expected, tolerance in zip(replica, serial, tolerances_of(batch)):
                yield param.asnumpy(), expected.asnumpy(), tolerance


def set_up(case, s):
    """A round is a whole training from a seed of its own, evaluated PARTS times outside the clock."""
    data = pictures(s)
    seeds = case.seeds(s.seed)
    net = BoundNet(lenet)
    replicas, begin = training(case, s, data)

    def train(seed, parts):
        train_on = begin(seed)
        seconds = 0.0
        accuracies = []
        for _ in range(parts):
            seconds += train_on(s.samples // PARTS)
            accuracies.append(evaluate(data.test, replicas, net=net))
        return seconds, {"test_accuracy": statistics.mean(accuracies[-3:]), "seed": seed}

    begin(s.seed)(WARM_UP * case.batch)  # a part has few steps of a large batch
    train(s.seed, 1)
    return Work(lambda: train(next(seeds), PARTS), data=data.name)


def tell(t, s):
    n = max(s.devices)
    base = t.one(times=1, devices=n)
    one = t.one(times=1, devices=1)
    for row in t.rows:
        row.of_base = row.seconds / base.seconds
        if row is not base:
            row.gain = row.test_accuracy - base.test_accuracy
    t.column("seconds", form=".2f", about="to train on 'samples' samples")
    t.column(
        "of_base",
        "of the time",
        ".2f",
        spread=True,
        about="over that of the smallest batch on as many devices",
    )
    t.column(
        "test_accuracy",
        "accuracy",
        ".3f",
        about=f"the mean of the last three of {PARTS} evaluations",
    )
    t.column(
        "gain",
        "differs",
        "+.3f",
        spread=True,
        about="from the smallest batch on as many devices, seed by seed",
    )
    t.note("One device differs by the order of its sums alone, which training magnifies.")
    kept = t.maybe(times=n, rule="kept")
    root = t.maybe(times=n, rule="root")
    linear = t.maybe(times=n, rule="linear")
    if linear is None:
        return t.answer("One device has nothing to scale: run it with --devices 1,2.")
    t.claim(
        "With the learning rate kept, k times the batch is less accurate after as many samples.",
        kept.gain,
        at_most=0.0,
        source=f"{sources.GOYAL}, for ResNet-50 and with a warm-up",
    )
    t.answer(f"""On {plural(n, "device")}, {n} times the batch and the learning rate change the accuracy by
        {linear.gain:+.3f}; the training {faster(1 / linear.of_base)}.""")
    t.explain(f"""The accuracy changes by {kept.gain:+.3f} with {kept.label} and {root.gain:+.3f} with {root.label}.
        Other sums on one device alone change it by {one.gain:+.3f}.""")
    t.bars("test_accuracy", "", title="Accuracy after as many samples", colour="rule")
