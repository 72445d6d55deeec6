from __future__ import annotations

import copy

import numpy as onp
import pytest

from mxdp.backend import autograd, gluon, mx, np
from mxdp.engine import prepare
from mxdp.gluon.trainer import Trainer
from mxdp.training import update

DEVICES = [mx.cpu(0), mx.cpu(1)]
OPTIONS = [
    {},
    {"momentum": 0.9},
    {"wd": 0.01},
    {"wd": 0.01, "momentum": 0.9},
    {"clip_gradient": 0.01},
    {"momentum": 0.9, "clip_gradient": 0.01},
    {"lr_scheduler": mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=0.1)},
]


def trained(make, options):
    """Four steps of a layer with a large weight and a small bias; the weight's rate is twice the bias'."""
    net = gluon.nn.Dense(128, in_units=256)
    mx.random.seed(0)
    net.initialize(mx.init.Normal(0.1), ctx=DEVICES)
    net.weight.lr_mult, net.bias.wd_mult = 2.0, 4.0
    # A scheduler of rates counts steps, so each trainer gets its own.
    trainer = make(net.collect_params(), "sgd", copy.deepcopy({"learning_rate": 0.1, **options}))
    for step in range(4):
        X = onp.random.RandomState(step).randn(8, 256).astype("float32")
        shards = [np.array(part, ctx=device) for part, device in zip(onp.split(X, 2), DEVICES)]
        with autograd.record():
            losses = [(net(shard) ** 2).sum() for shard in shards]
        autograd.backward(losses)
        trainer.step(8)
    return [param.data(device).asnumpy() for param in net.collect_params().values() for device in DEVICES]


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: ", ".join(options))
def test_the_bits_are_those_of_gluon(options, monkeypatch):
    alone = []

    def noted(name, arrays, *outs, **named):
        alone.extend([arrays[0].size] if not name.startswith("multi") else [])
        return prepare(name, arrays, *outs, **named)

    monkeypatch.setattr(update, "prepare", noted)
    ours = trained(Trainer, options)
    assert set(alone) == (set() if options == {"wd": 0.01} else {128 * 256})
    assert len(alone) <= 2, "on one device, and anew for another rate only"
    theirs = trained(lambda *given: gluon.Trainer(*given, kvstore="device"), options)
    for ours_of_param, its in zip(ours, theirs):
        onp.testing.assert_array_equal(ours_of_param, its)
