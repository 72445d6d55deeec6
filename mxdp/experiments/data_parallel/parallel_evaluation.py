"""Can the accuracy be computed on all devices, and how much faster is that?

Each device classifies its shard of a batch and counts its right answers; the host adds up whole numbers. So nothing is
rounded, and no replica talks to another: the cost model says that k devices with a core each take 1 / k of the time.
"""

from itertools import islice

from mxdp.backend import np
from mxdp.datasets import Split, load, minibatches
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.data_parallel.lenet_steps import expect_speedups, pictures
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Work, by_process, faster
from mxdp.scratch import evaluate, get_params, init_lenet, lenet
from mxdp.timing import Timer
from mxdp.training import BoundNet, TrainStep

SOURCE = f"exercise 4 of {sources.MULTIPLE_GPUS}"
COMPARED = "right answers in uneven batches, against the labels of the highest scores"
PRESETS = {
    "quick": dict(devices=[1, 2], data="auto", data_dir=None, batch_size=500, steps=100),
}
LITTLE = dict(data="synthetic", batch_size=100, steps=2)


def cases(s):
    for n in s.devices:
        yield Case(plural(n, "device"), n)


def expect(s, cores):
    return f"The same accuracy. Speed-up over one device: {expect_speedups(s, cores)}."


def oracle(case, s):
    """Batches that leave the devices shards of other lengths, and a last one with fewer samples than devices."""
    data = load("synthetic", seed=s.seed).test
    params = init_lenet(s.seed, scale=0.1)
    replicas = [get_params(params, device) for device in devices_of(case, s)]
    for samples, batch_size in ((1, 1), (61, 7), (61, 61)):
        few = Split(data.X[:samples], data.y[:samples])
        scores = lenet(np.array(few.X), params).asnumpy()
        right = (scores.argmax(axis=1) == few.y).sum()
        yield evaluate(few, replicas, batch_size, BoundNet(lenet)) * samples, right, 1e-9


def set_up(case, s):
    """A round evaluates, on the whole test set, a network trained on one device: all cases have the same bits."""
    devices = devices_of(case, s)
    data = pictures(s)
    # Larger weights than the book's, which learn nothing in so few steps.
    params = get_params(init_lenet(s.seed, scale=0.1), devices[0])
    step = TrainStep([params], devices[:1], 0.1)
    batches = minibatches(data.train, 32, s.seed, epoch=0)
    for X, y in islice(batches, s.steps):
        step(X, y)
    replicas = [get_params(params, device) for device in devices]
    net = BoundNet(lenet)

    def one_round():
        with Timer() as timer:
            accuracy = evaluate(data.test, replicas, s.batch_size, net)
        right = round(accuracy * len(data.test))
        return timer.sum(), {"right": right, "test_accuracy": accuracy}

    one_round()
    return Work(one_round, data=data.name)


def tell(t, s):
    one = t.maybe(devices=1)
    several = []
    if one:
        for row in t:
            row.speedup = one.seconds / row.seconds
            row.differs = by_process(max, row.right - one.right, one.right - row.right)
        several = [row for row in t if row.devices > 1]
    same = "As many answers are right as on one device: 0 differ."
    for row in several:
        t.claim(same, row.differs, at_most=0, exact=True)
    t.column(
        "seconds",
        form=".3f",
        about="the whole test set, in batches of 'batch_size' samples a device",
    )
    t.column("speedup", "speed-up", ".2f", spread=True, about="one device's time over this row's")
    t.column("test_accuracy", "accuracy", ".4f")
    t.column("differs", form=".0f", about="by how many the right answers differ from one device's")
    if several:
        row = several[-1]
        found = "another accuracy" if any(row.differs.values) else "the same accuracy"
        t.answer(
            f"On {row.label} evaluation {faster(row.speedup)} as on one device, and finds {found}."
        )
    else:
        t.answer("One device has nothing to compare with: run it with --devices 1,2.")
