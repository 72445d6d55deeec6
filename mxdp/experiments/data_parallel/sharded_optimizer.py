"""What does an optimiser's state in shards save, and what does it cost?

The state of momentum is as large as the parameters, Adam's twice as large. Plain, one device holds it for a whole
parameter, updates the parameter after the all-reduce, and copies it to the others. In shards each device holds, and
updates, an equal part of all: the all-reduce becomes a reduce-scatter before the update and an all-gather after it.
"""

from collections import Counter
from functools import partial
from itertools import product

import mxdp
from mxdp.backend import gluon, mx, np, npx, upload
from mxdp.collectives.shards import ShardedBuckets
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.devices import devices_of, timed
from mxdp.experiments.lab import Case, Work
from mxdp.experiments.networks import Gluon, begin_anywhere, gluon_mlp, resnet18, serial_gradients
from mxdp.experiments.oracle import TOLERANCE, random_batch
from mxdp.plans.collective.algorithms import plan

SOURCE = f"stage 1 of {sources.ZERO}"
COMPARED = (
    "parameters after five steps with those of the shards of samples one by one, on one device"
)
TOGETHER = True
QUICK = dict(devices=[2], width=64, units=1024, batch_size=8, steps=1)
PRESETS = {"quick": QUICK, "full": dict(QUICK, devices=[2, 4])}
LITTLE = dict(batch_size=2, steps=1, width=4, units=64)
NETS = {"mlp": "MLP", "resnet": "ResNet-18"}
OPTIMIZERS = {"sgd": "momentum", "adam": "Adam"}
OPTIONS = {"sgd": {"learning_rate": 0.01, "momentum": 0.9}, "adam": {"learning_rate": 0.001}}
STEPS = {"mlp": 10, "resnet": 1}


def cases(s):
    for n, net, optimizer, sharded in product(s.devices, NETS, OPTIMIZERS, (False, True)):
        label = f"{NETS[net]}, {OPTIMIZERS[optimizer]}, {'shards' if sharded else 'plain'}"
        if n != 2:
            label += f", {n} devices"
        yield Case(label, n, net=net, optimizer=optimizer, sharded=sharded)


def expect(s, cores):
    shares = ", ".join(f"1 / {n} of the state on {plural(n, 'device')}" for n in s.devices)
    return f"{shares}; a third fewer bytes; no more time, since each device updates its part alone."


def oracle(case, s):
    """On two devices the MLP must be equal bit for bit. Gradients are made coarse, so that a sum is the same in any
    order. Otherwise a bias ahead of a batch normalisation has a gradient of rounding errors alone, and Adam takes a
    whole step in the direction of whatever small number is there."""
    devices = devices_of(case, s)
    together = _training(case, devices, case.sharded, s)
    alone = _training(case, devices[:1], False, s)
    for number in range(5):
        X, y = random_batch(2 * len(devices), s.seed + number)
        together.backward(X, y)
        for replica in together.replicas:
            for param in replica:
                param.grad[()] = _coarse(param.grad)
        together.trainer.step(len(X))
        totals = serial_gradients(alone, X, y, len(devices), _coarse)
        for param, total in zip(alone.replicas[0], totals):
            param.grad[()] = upload(total.astype("float32"), devices[0])
        alone.trainer.step(len(X))
    npx.waitall()  # a copy that is still read from must not be read here, too: see mxdp.scratch.in_sync
    exact = len(devices) <= 2 and case.net == "mlp"
    for replica in together.replicas:
        for param, serial in zip(replica, alone.replicas[0]):
            yield param.asnumpy(), serial.asnumpy(), 0.0 if exact else TOLERANCE


def set_up(case, s):
    """A round is 'steps' steps, ten times as many of the MLP; its time is that of a step."""
    devices = devices_of(case, s)
    training = _training(case, devices, case.sharded, s)
    X, y = random_batch(s.batch_size * len(devices), s.seed)
    training.net.hybridize(static_alloc=True)
    steps = s.steps * STEPS[case.net]

    def train(steps):
        for _ in range(steps):
            training.step(X, y)

    train(2 * STEPS[case.net])  # ResNet-18's are long

    def one_round():
        begin_anywhere(devices[0])
        seconds = timed(lambda: train(steps)) / steps
        state_bytes = _state_bytes(training.trainer, case.sharded)
        return seconds, dict(state_bytes=state_bytes, moved_bytes=_moved_bytes(training))

    return Work(one_round)


def _training(case, devices, sharded, s):
    net = gluon_mlp(s.units) if case.net == "mlp" else resnet18(s.width)
    make = partial(
        mxdp.Trainer,
        optimizer=case.optimizer,
        optimizer_params=OPTIONS[case.optimizer],
        shard_optimizer=sharded,
    )
    return Gluon(net, devices, s.seed, make, mx.init.Normal(0.05), gluon.loss.SoftmaxCELoss())


def _coarse(x):
    """Round to multiples of 2^-18. Their sums are exact as long as they stay below 64."""
    return np.rint(x * 2.0**18) / 2.0**18


def _state_bytes(trainer, sharded):
    """Bytes of the optimiser's state: in shards those of the fullest device, else all."""
    from mxdp.gluon.updater import leaves

    held: Counter = Counter()
    for state in trainer._updaters[0].states.values():
        for array in leaves(state):
            held[array.ctx] += 4 * array.size
    return max(held.values()) if sharded else sum(held.values())


def _moved_bytes(training):
    """What a step sends between devices, if each sum is made of messages."""
    k = len(training.devices)
    buckets = training.trainer._replicas.buckets
    if not buckets:
        return 0
    sums = sum(sum(plan("direct", k).sent(bucket.nbytes)) for bucket in buckets.buckets)
    if isinstance(buckets, ShardedBuckets):  # a reduce-scatter is half of an all-reduce
        sums //= 2
    # A weight is updated on one device and copied to the others.
    return sums + (k - 1) * sum(4 * param.size for param in training.replicas[0])


def tell(t, s):
    for row in t.find(sharded=True):
        plain = t.one(sharded=False, net=row.net, optimizer=row.optimizer, devices=row.devices)
        row.of_time = row.seconds / plain.seconds
        row.of_plain = row.state_bytes / plain.state_bytes
        moved = row.moved_bytes / plain.moved_bytes
        share = "Each of k devices holds at most 1.05 / k of the state."
        t.claim(share, row.of_plain * row.devices, at_most=1.05, exact=True, source=sources.ZERO)
        no_more = "No more bytes are moved than without shards."
        t.claim(no_more, moved, at_most=1.0, exact=True, source=sources.ZERO)
    t.column("seconds", "ms", ".1f", 1e3, about="a step of 'batch_size' samples a device")
    t.column(
        "of_time", "time", ".2f", spread=True, about="that over the time of a step without shards"
    )
    t.column(
        "state_bytes",
        "state, MB",
        ".1f",
        1e-6,
        about="the optimiser's, in all or on the fullest device",
    )
    t.column("of_plain", "of plain", ".2f", about="that in shards over all")
    t.column(
        "moved_bytes",
        "moved, MB",
        ".1f",
        1e-6,
        about="sent between devices in a step, if all were messages",
    )
    last = t.maybe(net="resnet", optimizer="adam", sharded=True, devices=2)
    if last:
        t.answer(f"""In shards each of 2 devices holds {last.of_plain:.2f} of Adam's state for ResNet-18, and a step
            takes {last.of_time:.2f} times as long as the plain one.""")
    else:
        t.answer("Nothing to compare: run it with --devices 2.")
    t.explain(
        "Gradients and parameters stay whole on each device (ZeRO's stages 2 and 3 cut them too)."
    )
    t.bars(
        "state_bytes", "MB", 1e-6, title="The optimiser's state: all, or a shard", colour="sharded"
    )
    t.bars("seconds", "ms", 1e3, title="A step", colour="sharded")
