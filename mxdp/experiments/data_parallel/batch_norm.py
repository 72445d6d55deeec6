"""Batch normalisation on k devices: what do each device's own statistics change, and what do common ones cost?

In batch normalisation a sample's result depends on the others of its batch. So several devices train another network
than one does, unless they exchange statistics: per layer two numbers a channel forward, and two backward. The
statistics of n samples are off by about 1 / sqrt(n) of a deviation. Running statistics are saved for evaluation:
synchronised, all replicas have the same; otherwise each has those of its shards, and PyTorch saves those of rank 0.
"""

from functools import lru_cache

import numpy as onp

from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.data_parallel.lenet_steps import pictures
from mxdp.experiments.data_parallel.normed_lenet import APART, OWN, SYNCED, WAYS, NormedLeNet
from mxdp.experiments.devices import WARM_UP, devices_of
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.oracle import random_batch

SOURCE = f"{sources.BATCH_NORMALIZATION}; {sources.MULTIPLE_GPUS}"
COMPARED = "summed gradients and running statistics of every replica, in an uneven batch"
TOGETHER = True
COMMON = dict(devices=[2], data="auto", data_dir=None, lr=0.25)
PRESETS = {
    "quick": dict(COMMON, timeout=600.0, shards=[8, 64], steps=30, test=1000),
    "full": dict(
        COMMON,
        timeout=3600.0,
        shards=[8, 32, 64],
        steps=50,
        test=5000,
        processes=6,
    ),
}
LITTLE = dict(data="synthetic", shards=[4, 32], steps=2, test=50)
CHECKS = {
    "shards": (
        lambda shards: min(shards) > 1 and len(set(shards)) == len(shards),
        "different numbers above 1, as in 8,32: one sample has no variance",
    )
}
TOLERANCE = 1e-3
"""The error may be this share of the largest number: a gradient behind four normalisations is a difference of sums.
The largest that was seen is 1.2e-4."""


def cases(s):
    n = max(s.devices)
    for shard in s.shards:
        for way in WAYS:
            yield Case(f"{shard}: {way}", n, way=way, shard=shard, batch=n * shard)


def expect(s, cores):
    shares = ", ".join(f"{n**-0.5:.2f} with {plural(n, 'sample')}" for n in s.shards)
    return f"A shard's mean is off by this share of a deviation: {shares}. Synchronised, only rounding differs."


def oracle(case, s):
    """The serial run is on one device, by MXNet's own normalisation, of each part that is normalised as one."""
    devices = devices_of(case, s)
    X, y = random_batch(8 * len(devices) + 1, s.seed)
    net = NormedLeNet(devices, case.way, s.seed)
    net.backward(X, y)
    shards = onp.array_split(onp.arange(len(X)), len(devices))
    gradients = []
    for group in net.groups:
        serial = NormedLeNet(devices[:1], OWN, s.seed)
        samples = onp.concatenate([shards[rank] for rank in group])
        serial.backward(X[samples], y[samples])
        gradients.append([param.grad.asnumpy() for param in serial.replicas[0]])
        for rank in group:
            for array, expected in zip(net.running[rank], serial.running[0]):
                yield array.asnumpy(), expected.asnumpy(), TOLERANCE
    for params in net.replicas:
        for param, *parts in zip(params, *gradients):
            yield param.grad.asnumpy(), sum(parts), TOLERANCE


def set_up(case, s):
    """A round trains 'steps' steps from a seed of its own, equal in all rows; its time is a step's."""
    devices = devices_of(case, s)
    data = pictures(s)
    seeds = case.seeds(s.seed)
    net = NormedLeNet(devices, case.way, s.seed, case.batch, s.lr)

    def one_round():
        seed = next(seeds)
        net.restart(seed)
        seconds = net.train(data.train, seed, s.steps)
        start, end, serial = _serial(data, devices[0], case.batch, s.lr, seed, s.steps)
        way = onp.linalg.norm(end - start)
        saved = net.accuracy(data.test, net.running[0])
        other = net.accuracy(data.test, net.running[-1])
        return seconds, {
            "differs": float(onp.linalg.norm(net.flat() - end) / way),
            "test_accuracy": saved,
            "gain": saved - serial,
            "other_replica": abs(other - saved),
            "seed": seed,
        }

    net.train(data.train, s.seed, WARM_UP)
    return Work(one_round, data=data.name)


@lru_cache(maxsize=None)
def _serial(data, device, batch, lr, seed, steps):
    """Train one device with MXNet's normalisation, once a process: parameters before and after, and the accuracy."""
    net = NormedLeNet([device], OWN, seed, batch, lr)
    start = net.flat()
    net.train(data.train, seed, steps)
    return start, net.flat(), net.accuracy(data.test, net.running[0])


def _tell_columns(t):
    t.column("seconds", "ms", ".1f", 1e3, about="of a step")
    t.column(
        "of_own",
        "of own",
        ".2f",
        spread=True,
        about="the time over that with MXNet's operator on each shard",
    )
    t.column(
        "differs",
        form=".2g",
        spread=True,
        about="from one device's parameters, over the way from their start",
    )
    t.column("test_accuracy", "accuracy", ".3f", about="with the running statistics of replica 0")
    t.column(
        "gain",
        "from serial",
        "+.3f",
        spread=True,
        more=True,
        about="that less the serial run's accuracy",
    )
    t.column(
        "other_replica",
        "other replica",
        ".3f",
        spread=True,
        more=True,
        about="change with the last's statistics",
    )


def tell(t, s):
    for row in t:
        if row.way != OWN:
            row.of_own = row.seconds / t.one(way=OWN, shard=row.shard).seconds
    small = {row.way: row for row in t.find(shard=min(s.shards))}
    large = {row.way: row for row in t.find(shard=max(s.shards))}
    _tell_columns(t)
    t.note("""Each device has as many samples as the row says. 'mxdp's operators' compute each shard's statistics
        alone.""")
    few = small[OWN]
    many = large[OWN]
    if few.devices == 1:
        return t.answer("One device has nothing to exchange: run it with --devices 2.")
    sentence = "Synchronised, the parameters differ from the serial run's by rounding: at most 0.01 of their way."
    differ = [row.differs for row in t.find(way=SYNCED)]
    t.claim(sentence, *differ, at_most=0.01, exact=True, source=sources.IOFFE)
    reach = "reach" if small[SYNCED].differs.median <= 0.01 else "miss"
    t.answer(f"""Normalised by shards of {few.shard} samples, training misses the serial run's parameters by
        {few.differs:.2f} of its way; synchronised statistics {reach} them, and make a step
        {small[SYNCED].of_own:.2f} times as long.""")
    t.explain(f"""With shards of {many.shard} it is {many.differs:.2f} of the way, and synchronised
        {large[SYNCED].differs:.2g}, at {large[SYNCED].of_own:.2f} times the time. Of that, {large[APART].of_own:.2f}
        times is what mxdp's operators take without an exchange, in place of MXNet's one.""")
    if few is not many:
        t.explain(f"""The smaller shards miss {few.differs / many.differs:.1f} times as much; an error of 1 / sqrt(n)
            says {(many.shard / few.shard) ** 0.5:.1f}.""")
    for row in dict.fromkeys((few, many)):
        t.explain(f"""With shards of {row.shard} the accuracy differs from the serial run's by {row.gain:+.3f}, and by
            {row.other_replica:.3f} between the running statistics of two replicas.""")
    t.bars("differs", "", title="Off the serial run", colour="way")
    t.bars("seconds", "ms", 1e3, "A step", "way")
