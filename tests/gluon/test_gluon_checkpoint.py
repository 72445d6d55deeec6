"""A gluon training that is stopped and started again equals one that was never stopped, bit for bit."""

from __future__ import annotations

import numpy as onp
import pytest

import mxdp
from mxdp import process
from mxdp.backend import autograd, gluon, mx, np
from mxdp.datasets.minibatches import minibatches
from mxdp.errors import MxdpError
from mxdp.gluon import Checkpoint

SMALL = mxdp.load("synthetic").take(60, 1)
OPTIMISERS = {
    "sgd": {"learning_rate": 0.1, "momentum": 0.9, "wd": 0.01},
    "adam": {"learning_rate": 0.01},
    "nadam": {"learning_rate": 0.01},
}
EPOCHS = 4
LOAD = Checkpoint.load


def network(units=10):
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(4, 5, strides=3), gluon.nn.BatchNorm(), gluon.nn.Dense(units))
    return net


def run(folder=None, stop=EPOCHS, n=2, optimiser="sgd", kind=mxdp.Trainer, seed=0, units=10, known=False, **store):
    """The parameters of each device after ``stop`` epochs, and the lines of the checkpoints."""
    lines, devices = [], [mx.cpu(i) for i in range(n)]
    mx.random.seed(seed)
    net = network(units)
    net.initialize(ctx=devices, init=mx.init.Xavier())
    for device in devices if known else ():
        net(np.zeros((1, 1, 28, 28), ctx=device))
    options = dict(OPTIMISERS[optimiser], lr_scheduler=mx.lr_scheduler.FactorScheduler(step=3, factor=0.7))
    trainer = kind(net.collect_params(), optimiser, options, **store)
    loss = gluon.loss.SoftmaxCrossEntropyLoss()
    make = np.array if mx.util.is_np_array() else mx.nd.array
    kept = folder and Checkpoint(folder, training={"seed": 0}, report=lines.append)
    at = (kept and kept.load(net, trainer)) or {"epoch": 0}
    for epoch in range(at["epoch"], stop):
        for X, y in minibatches(SMALL.train, 16, seed=0, epoch=epoch):
            shards = [
                (make(X[i::n], ctx=device), make(y[i::n].astype("float32"), ctx=device))
                for i, device in enumerate(devices)
            ]
            with autograd.record():
                losses = [loss(net(a), b) for a, b in shards]
            autograd.backward(losses)
            trainer.step(len(X))
        if kept:
            kept.save(net, trainer, epoch=epoch + 1)
    if kept:
        kept.wait()
    params = net._collect_params_with_prefix().items()
    return {f"{name} {i}": x.asnumpy() for name, param in params for i, x in enumerate(param.list_data())}, lines


@pytest.mark.parametrize(
    ("kind", "known"), [(mxdp.Trainer, False), (mxdp.Trainer, True), (gluon.Trainer, False)], ids=str
)
def test_the_choice_of_an_all_reduce_is_the_checkpoints_with_other_cores_too(kind, known, tmp_path, monkeypatch):
    """On four devices, "auto" is "naive" with one core and "shared-memory" with more. ``known``: it has buckets."""
    options = dict(n=4, units=200, kind=kind, known=known, kvstore="mxdpauto")
    monkeypatch.setattr(process, "cores", lambda: 1)
    undisturbed, _ = run(stop=2, **options)
    run(tmp_path, 1, **options)
    monkeypatch.setattr(process, "cores", lambda: 4)
    assert differ(run(stop=2, **options)[0], undisturbed), "else this test shows nothing"
    continued, _ = run(tmp_path, 2, **options)
    assert differ(continued, undisturbed) == []


def differ(found, expected):
    return [name for name in expected if found[name].tobytes() != expected[name].tobytes()]


@pytest.mark.parametrize(("optimiser", "n"), [("sgd", 1), ("sgd", 2), ("adam", 1), ("adam", 2), ("nadam", 1)])
def test_a_stopped_training_continues_bit_for_bit(optimiser, n, semantics, tmp_path):
    undisturbed, _ = run(n=n, optimiser=optimiser)
    for stop in (1, 3):
        run(tmp_path / f"{stop}", stop, n, optimiser)
        resumed, lines = run(tmp_path / f"{stop}", n=n, optimiser=optimiser, seed=9)
        assert differ(resumed, undisturbed) == []
        assert lines == [f"continuing from {tmp_path / str(stop)}/checkpoint-00000{stop}.npz"]


@pytest.mark.parametrize("store", [{"kvstore": "device"}, {"kvstore": "device", "update_on_kvstore": True}])
def test_mxnets_trainer_and_stores_continue_too(store, tmp_path):
    undisturbed, _ = run(kind=gluon.Trainer, **store)
    run(tmp_path, 2, kind=gluon.Trainer, **store)
    assert differ(run(tmp_path, kind=gluon.Trainer, seed=9, **store)[0], undisturbed) == []


def no_states(kept, net, trainer):
    trainer.load_states = lambda path: None
    return LOAD(kept, net, trainer)


def one_devices_statistics(kept, net, trainer):
    facts = LOAD(kept, net, trainer)
    for param in net.collect_params().values():
        param.set_data(param.list_data()[0])
    return facts


@pytest.mark.parametrize("broken", [no_states, one_devices_statistics])
def test_a_part_that_is_not_restored_would_be_noticed(broken, tmp_path, monkeypatch):
    undisturbed, _ = run()
    run(tmp_path, 2)
    monkeypatch.setattr(Checkpoint, "load", broken)
    assert differ(run(tmp_path)[0], undisturbed) != []


def test_a_nadam_on_two_devices_is_none_that_could_continue():
    """MXNet's Nadam keeps a number for all devices that each device changes, so their parameters differ."""
    found, _ = run(optimiser="nadam")
    assert differ({"0.weight 0": found["0.weight 1"]}, {"0.weight 0": found["0.weight 0"]})


def test_each_device_has_running_means_of_its_own():
    found, _ = run()
    assert differ({"1.running_mean 0": found["1.running_mean 1"]}, {"1.running_mean 0": found["1.running_mean 0"]})


def test_other_replicas_continue_and_are_told_what_differs(tmp_path):
    run(tmp_path, 2, n=2)
    found, lines = run(tmp_path, n=3)
    assert lines[1].startswith("the checkpoint is of 1 process of 2 devices and this run of 1 process of 3 devices: ")
    assert all(onp.isfinite(x).all() for x in found.values())


@pytest.mark.parametrize(
    ("other", "named"),
    [
        ({"optimiser": "adam"}, "optimizer is SGD there and Adam here"),
        ({"units": 9}, r"2\.weight is float32 \(10, 256\) there and float32 \(9, 256\) here, 2\.bias is "),
    ],
)
def test_another_training_is_refused(other, named, tmp_path):
    run(tmp_path, 1)
    with pytest.raises(MxdpError, match=f"holds another training: {named}"):
        run(tmp_path, **other)


def test_what_the_user_says_of_the_training_must_be_the_same(tmp_path):
    run(tmp_path, 1)
    net = network()
    net.initialize()
    trainer = gluon.Trainer(net.collect_params(), "sgd")
    with pytest.raises(MxdpError, match="seed is 0 there and 1 here"):
        Checkpoint(tmp_path, training={"seed": 1}).load(net, trainer)
