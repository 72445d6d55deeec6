"""A LeNet and a ResNet-18 trained through gluon by mxdp's stores end where MXNet's ``device`` store brings them.

On two devices the results must be the same bits: a sum of two numbers has no order. On four devices the stores add in
different orders, and each addition rounds. How far apart may the weights be then? As far as rounding itself has brought
MXNet's own result from the true one, which a training in double precision shows: two float32 trainings whose errors are
each e are at most 2 e apart. Errors of one size need not be equal, so twice that is allowed, for each parameter.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as onp
import pytest

from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.collectives import AllReduce
from mxdp.gluon import Store, Trainer

ALLOWED = 4.0
OPTIMIZERS = {"sgd": {"learning_rate": 0.02, "momentum": 0.9, "wd": 1e-3}, "adam": {"learning_rate": 1e-3}}


def lenet():
    net = gluon.nn.HybridSequential()
    net.add(
        gluon.nn.Conv2D(6, kernel_size=5, activation="relu"),
        gluon.nn.BatchNorm(),
        gluon.nn.MaxPool2D(2),
        gluon.nn.Conv2D(10, kernel_size=3, activation="relu"),
        gluon.nn.MaxPool2D(2),
        gluon.nn.Dense(32, activation="relu"),
        gluon.nn.Dense(10),
    )
    return net


def resnet18():
    return gluon.model_zoo.vision.get_resnet(1, 18, thumbnail=True, classes=10)  # the variant for small images


def train(make_net, make_trainer, options, n, optimizer="sgd", steps=5, side=(1, 20, 20), dtype="float32", batch=2):
    """All parameters afterwards, each on each device: ``[[array on cpu(0), ...], ...]``."""
    onp.random.seed(0)
    mx.random.seed(0)
    devices = [mx.cpu(rank) for rank in range(n)]
    net = make_net()
    net.initialize(mx.init.Xavier(), ctx=devices)
    if dtype != "float32":
        net(np.zeros((1, *side), ctx=devices[0]))
        net.cast(dtype)
    trainer = make_trainer(net.collect_params(), optimizer, OPTIMIZERS[optimizer], **options)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    rng = onp.random.RandomState(1)
    for _ in range(steps):
        X, y = rng.rand(batch * n, *side).astype("float32"), rng.randint(0, 10, batch * n)
        shards = [gluon.utils.split_and_load(np.array(part, dtype=dtype), devices) for part in (X, y)]
        with autograd.record():
            losses = [loss(net(X_shard), y_shard) for X_shard, y_shard in zip(*shards)]
        autograd.backward(losses)
        trainer.step(batch * n)
    npx.waitall()
    params = net.collect_params().values()
    return [[data.asnumpy() for data in param.list_data()] for param in params]


def distances(these, those):
    """For each parameter the largest difference, over all devices."""
    assert len(these) == len(those)
    return [max(abs(one - other).max() for one, other in zip(*pair)) for pair in zip(these, those)]


@lru_cache(maxsize=None)
def by_mxnet(n, optimizer, **options):
    return train(lenet, gluon.Trainer, {"kvstore": "device"}, n, optimizer, **options)


def too_far(trainer, options, optimizer):
    """How many parameters of four devices are farther from MXNet's than rounding explains (see above)?"""
    mxnet = by_mxnet(4, optimizer)
    by_rounding = distances(mxnet, by_mxnet(4, optimizer, dtype="float64"))
    last_bit = [abs(arrays[0]).max() * onp.finfo("float32").eps for arrays in mxnet]
    limits = [ALLOWED * error + bit for error, bit in zip(by_rounding, last_bit)]
    actual = train(lenet, trainer, options, 4, optimizer)
    return sum(distance > limit for distance, limit in zip(distances(actual, mxnet), limits))


OURS = [
    pytest.param(gluon.Trainer, {"kvstore": "mxdpring"}, id="gluon.Trainer, mxdpring"),
    pytest.param(Trainer, {}, id="mxdp.Trainer"),
    pytest.param(Trainer, {"kvstore": "mxdpring", "bucket_mb": 0.01}, id="mxdp.Trainer, mxdpring, small buckets"),
]


@pytest.mark.parametrize(("trainer", "options"), OURS)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_lenet(trainer, options, optimizer):
    actual = train(lenet, trainer, options, 2, optimizer)
    assert max(distances(actual, by_mxnet(2, optimizer))) == 0
    assert too_far(trainer, options, optimizer) == 0


class MeanStore(Store):
    def _all_reduce(self, arrays):
        return [AllReduce(arrays, "ring", op="mean")]


class LeavesABucketOut(Trainer):
    def _lay_out(self):
        super()._lay_out()
        del self._replicas.buckets.buckets[1:2]


@pytest.mark.parametrize(
    ("trainer", "options"),
    [
        pytest.param(gluon.Trainer, {"kvstore": MeanStore("ring")}, id="mean"),
        pytest.param(LeavesABucketOut, {"bucket_mb": 0.01}, id="a bucket left out"),
    ],
)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_broken_variant_is_too_far(trainer, options, optimizer):
    assert too_far(trainer, options, optimizer) > 0


def test_resnet18():
    small = {"n": 2, "steps": 2, "side": (3, 8, 8)}
    expected = train(resnet18, gluon.Trainer, {"kvstore": "device"}, **small)
    assert len(expected) == 60 + 38  # weights, and the running statistics of 19 normalisations
    for trainer, options in ((gluon.Trainer, {"kvstore": "mxdpring"}), (Trainer, {})):
        assert max(distances(train(resnet18, trainer, options, **small), expected)) == 0
