"""What does a second device bring to ResNet-18, or to your network, through gluon?

The book trains ResNet-18 on small pictures with ``gluon.Trainer``, whose store sums the gradients: 13.2 s an epoch on
one GPU and 7.3 s on two, with the same batch a device. The cost model says as much: 45 MB to sum, once a step, and some
3 billion operations a sample. The setting ``net`` takes another network (:mod:`.your_net`).
"""

from functools import partial
from itertools import product

import mxdp
from mxdp.backend import gluon, mx, npx
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.data_parallel import your_net
from mxdp.experiments.data_parallel.lenet_steps import expect_speedups
from mxdp.experiments.devices import devices_of, timed
from mxdp.experiments.lab import Case, Work, faster
from mxdp.experiments.networks import Gluon, begin_anywhere, compared_step, resnet18
from mxdp.experiments.oracle import random_batch

SOURCE = f"{sources.CONCISE}, and its exercise 1"
COMPARED = "updated parameters of every replica with those of the shards, one by one"
TOGETHER = True  # in a process each, eight networks would need 12 GB
COMMON = dict(devices=[1, 2], net="", width=64)
PRESETS = {
    "quick": dict(COMMON, batch_size=8, steps=2),
    "full": dict(COMMON, batch_size=16, steps=5),
}
LITTLE = dict(batch_size=2, steps=1, width=4)
CHECKS = {"net": your_net.FORM}
TRAINERS = {"device": "MXNet's store", "mxdpauto": "mxdp's store", "mxdp.Trainer": "mxdp.Trainer"}
"""``gluon.Trainer`` with a store, or mxdp's."""
LR = 0.1
BOOK = "On two devices an epoch takes at most 0.6 of one device's time (the book: 7.3 s for 13.2 s, or 0.55)."


def cases(s):
    if s.net:
        your_net.check(s.net)
    for hybrid, n, trainer in product((False, True), s.devices, TRAINERS):
        label = plural(n, "device")
        if n > 1:
            label += f", {TRAINERS[trainer]}"
        elif trainer != "device":
            continue
        if hybrid:
            label += ", hybrid"
        yield Case(label, n, trainer=trainer, hybrid=hybrid)


def expect(s, cores):
    return f"Speed-up over one device without the sums: {expect_speedups(s, cores)}."


def oracle(case, s):
    """A step on shards of two samples, each of which batch normalisation normalises by itself. Dropout is off."""
    if s.net and case.hybrid:
        your_net.see_hybrid(s.net)
    devices = devices_of(case, s)
    together = _training(devices, case.trainer, case.hybrid, s, dropout=False)
    alone = _training(devices[:1], "device", False, s, dropout=False)
    yield from compared_step(together, alone, _batch(2 * len(devices), s), LR)


def set_up(case, s):
    """A round is ``steps`` steps; its time is that of a step."""
    devices = devices_of(case, s)
    training = _training(devices, case.trainer, case.hybrid, s)
    X, y = _batch(s.batch_size * len(devices), s)

    def steps():
        for _ in range(s.steps):
            begin_anywhere(devices[0])  # about a thousandth of a step
            training.step(X, y)

    for _ in range(2):  # long ones
        training.step(X, y)
    npx.waitall()
    return Work(lambda: timed(steps) / s.steps)


def _training(devices, trainer, hybrid, s, dropout=True):
    """The network in training; without ``dropout`` it can be compared."""
    if s.net:
        net = your_net.make(s.net)
        init = mx.init.Xavier()
    else:
        net = resnet18(s.width)
        init = mx.init.Normal(0.05)
    if not dropout:
        net.apply(your_net.stop_dropout)
    if hybrid:  # one graph, in memory of its own
        net.hybridize(static_alloc=True, static_shape=True)
    kind = mxdp.Trainer
    options = dict(optimizer="sgd", optimizer_params={"learning_rate": LR})
    if trainer != "mxdp.Trainer":
        kind = gluon.Trainer
        options["kvstore"] = trainer
    make = partial(kind, **options)
    shape, _ = your_net.samples(s.net)
    return Gluon(net, devices, s.seed, make, init, gluon.loss.SoftmaxCrossEntropyLoss(), shape)


def _batch(samples, s):
    return random_batch(samples, s.seed, *your_net.samples(s.net))


def tell(t, s):
    net = s.get("net")  # older results have no such setting
    for row in t:
        row.samples_per_sec = row.devices * s.batch_size / row.seconds
        if row.devices == 1:
            continue
        store = t.one(devices=row.devices, hybrid=row.hybrid, trainer="device")
        row.of_mxnet = row.seconds / store.seconds
        one = t.maybe(devices=1, hybrid=row.hybrid)
        if one:
            row.of_one = row.seconds / one.seconds / row.devices
            if row is store and row.devices == 2 and not net:
                source = f"{sources.CONCISE}, on GPUs, read as 0.6"
                t.claim(BOOK, row.of_one, at_most=0.6, source=source)
    t.column(
        "seconds",
        "ms",
        ".0f",
        1e3,
        about="a step of 'batch_size' samples on each device, as in the book",
    )
    t.column("samples_per_sec", "samples/s", ",.1f")
    t.column(
        "of_one",
        form=".2f",
        spread=True,
        about="the time a sample over one device's: what an epoch takes",
    )
    t.column(
        "of_mxnet", "of MXNet", ".2f", spread=True, about="the time over that of MXNet's store"
    )
    t.note("""'MXNet's store' and 'mxdp's store': `gluon.Trainer` with kvstore='device' and 'mxdpauto'; 'hybrid': the
        network is hybridised.""")
    ours = [row for row in t.find(trainer="mxdp.Trainer") if row.get("of_one") is not None]
    if ours:
        row = ours[-1]
        hybrid = ", hybridised," if row.hybrid else ""
        t.answer(f"""On {plural(row.devices, "device")} an epoch of {net or "ResNet-18"}{hybrid} by mxdp.Trainer
            {faster(1 / row.of_one)} as on one, and {faster(1 / row.of_mxnet)} as by MXNet's store.""")
    else:
        t.answer("One device has nothing to compare with: run it with --devices 1,2.")
    t.explain("The batch grows with the devices, so all-reduces are fewer for the same samples.")
    book = t.maybe(devices=2, trainer="device", hybrid=False)
    if book and book.get("of_one") is not None and not net:
        t.explain(f"""The book's own way, not hybridised, {faster(1 / book.of_one)} here as one device, and was 1.81
            times as fast on two GPUs.""")
    t.bars(unit="ms", scale=1e3, colour="hybrid")
