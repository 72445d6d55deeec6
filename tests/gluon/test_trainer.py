"""``mxdp.Trainer`` with other ranks, without samples, with a store of one's own, with networks of gluon's, and its one
updater for all devices. (That it trains right: ``test_any_gluon_training.py``.)"""

from dataclasses import replace
from functools import partial

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_training import SGD, assert_equal, backward, by_devices, by_mxnet, devices, network, parameters, weights

from mxdp.backend import autograd, gluon, mx, np, npx
from mxdp.collectives.tuning import choose
from mxdp.engine import prepare
from mxdp.gluon import Store, Trainer
from mxdp.gluon.updater import check_shardable
from mxdp.plans.cost.machine import CPU
from mxdp.processes import World
from mxdp.training import update


class OfTwoRanks(World):
    """A world whose other rank has gradients of 1, and has used all parameters."""

    size, rank = 2, 0

    def __init__(self):
        self.broadcast = lambda arrays: None
        self.gather = lambda value: [value, value]
        self.step_done = lambda: None

    def sum(self, arrays, note):
        for array in arrays:
            array += 1
        mine = note.told()
        note.theirs = [mine, mine[:4] + b"\1" * (len(note.mine) - 4) + mine[len(note.mine) :]]
        note.carrier = arrays[0]


def test_a_rank_without_a_sample_steps_with_the_others():
    params = parameters(2)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5}, world=OfTwoRanks())
    for step in range(1, 4):
        trainer.step(4)
        assert_equal(weights(params), [[onp.full(param.shape, 1 - step / 8)] * 2 for param in params])


@pytest.mark.parametrize(
    ("kind", "n", "used", "of_devices"),
    [(gluon.Trainer, 2, 4, [0]), (Trainer, 1, 4, []), (Trainer, 2, 4, []), (Trainer, 2, 2, [0, 1])],
)
def test_a_step_without_any_backward_is_refused_as_by_mxnet(kind, n, used, of_devices):
    """gluon's own trainer refuses a device without a sample, so README names ours."""
    params = parameters(n)
    trainer = kind(params, *SGD, kvstore="mxdpring")
    backward(params)
    trainer.step(4)
    if of_devices:
        backward(params[:used], ranks=of_devices)
    with pytest.raises(UserWarning, match="been updated by backward"):
        trainer.step(4)


def test_buckets_follow_the_order_of_the_network(semantics):
    params = dict(zip("zyxw", parameters(2)))
    trainer = Trainer(params, *SGD, kvstore="mxdpdirect")
    (bucket,) = trainer._replicas.buckets.buckets
    assert (bucket.params, bucket.algorithm) == ((3, 2, 1, 0), "direct")
    assert [trainer._params[number] for number in trainer._replicas.trained] == list(params.values())


def test_no_sync_refuses_what_would_part_the_replicas():
    params = parameters(2)
    trainer = Trainer(params, *SGD)
    before = weights(params)
    with trainer.no_sync():
        backward(params)
        with pytest.raises(RuntimeError, match="after no_sync"):
            trainer.step(1)
    assert_equal(weights(params), before)
    params[0].cast("float64")
    with pytest.raises(RuntimeError, match="gradients added up inside no_sync are lost"):
        trainer.step(1)
    backward(params)
    trainer.step(1)
    assert_equal([arrays[:1] for arrays in weights(params)], [arrays[1:] for arrays in weights(params)])


def test_a_store_is_taken_with_its_options():
    trainer = Trainer(parameters(2), *SGD, kvstore=Store("tree"))
    assert trainer._replicas.buckets.buckets[0].algorithm == "tree"
    chosen = []
    for machine in (replace(CPU, push=1.0), CPU):
        trainer = Trainer(parameters(4, [(1 << 18,)]), *SGD, kvstore=Store("auto", machine=machine))
        chosen.append(trainer._replicas.buckets.buckets[0].algorithm)
    assert chosen == [choose(devices(4), [1 << 18], 4, machine) for machine in (replace(CPU, push=1.0), CPU)]
    assert chosen[0] != chosen[1]


def test_on_a_single_device_a_schedule_counts_unequal_updates_as_gluons_own():
    """Several parameters' updates are counted before it is asked for their rates."""
    ours, theirs = parameters(1), parameters(1)
    for params, make in ((ours, Trainer), (theirs, by_devices)):
        schedule = mx.lr_scheduler.FactorScheduler(2, 0.5)
        trainer = make(params, "sgd", {"learning_rate": 0.5, "lr_scheduler": schedule})
        for used in (params[1:], params, params):
            backward(used)
            trainer.step(4, ignore_stale_grad=True)
    assert_equal(weights(ours), weights(theirs))


OPTIMIZERS = [("sgd", {"learning_rate": 0.1, "momentum": 0.5, "wd": 0.01}), ("adam", {"learning_rate": 0.01})]
MAKERS = {
    "gluon.Trainer": partial(gluon.Trainer, kvstore="mxdpring"),
    "Trainer": Trainer,
    "small buckets": partial(Trainer, kvstore="mxdpring", bucket_mb=1e-4),
    "shards": partial(Trainer, shard_optimizer=True),
}
HYBRID = [None, {}, dict(static_alloc=True), dict(static_alloc=True, static_shape=True)]


@settings(max_examples=20)
@given(st.sampled_from([*MAKERS]), st.sampled_from(HYBRID), st.booleans(), st.booleans(), st.sampled_from(OPTIMIZERS))
def test_a_network_trains_as_with_mxnets_store(maker, hybrid, first, classic, optimizer):
    """Hybridised in any way, on two devices: a sum of two has no order. A static graph writes to the gradients of its
    first backward pass (``StaticBackward`` in ``cached_op.cc``)."""

    make_array = mx.nd.array if classic else np.array

    def train(make):
        onp.random.seed(0)
        mx.random.seed(0)
        net = network()
        net.initialize(mx.init.Xavier(), ctx=devices(2))
        if hybrid is not None:
            net.hybridize(**hybrid)
        for device in devices(2) if first else ():  # its values are known before the trainer is made
            net(make_array(onp.ones((1, 1, 6, 6), "float32"), ctx=device))
        trainer, random = make(net.collect_params(), *optimizer), onp.random.RandomState(1)
        for _ in range(3):
            x = [make_array(random.randn(3, 1, 6, 6).astype("float32"), ctx=device) for device in devices(2)]
            with autograd.record():
                losses = [(net(shard) ** 2).mean() for shard in x]
            autograd.backward(losses)
            trainer.step(6)
        # MXNet's static graphs still update the running statistics while they are broadcast.
        return weights([p for p in net.collect_params().values() if not (hybrid and "running" in p.name)])

    (npx.reset_np if classic else npx.set_np)()
    try:
        assert_equal(train(MAKERS[maker]), train(by_mxnet))
    finally:
        npx.set_np()


@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_sgd_prepares_its_calls_anew_where_a_number_is_another_one(momentum, monkeypatch):
    """And so it has MXNet's bits, with small parameters together and large ones alone."""
    made = []
    monkeypatch.setattr(update, "prepare", lambda name, *a, **more: (made.append(name), prepare(name, *a, **more))[1])
    ours, theirs = [parameters(2, [(130, 130), (5,)]) for _ in range(2)]
    trainers = []
    for params, make in ((ours, Trainer), (theirs, by_devices)):
        params[1].lr_mult, params[1].wd_mult = 2.0, 0.5
        trainers.append(make(params, "sgd", {"learning_rate": 0.5, "momentum": momentum, "clip_gradient": 2.0}))
    for change in ({}, {}, {"momentum": momentum / 2}, {"clip_gradient": 1.0}, {"wd": 0.5}, {}):
        before = len(made)
        for trainer in trainers:
            vars(trainer.optimizer).update(change)
            backward(trainer._params)
            trainer.step(4)
        assert_equal(weights(ours), weights(theirs))
        name = f"sgd_{'mom_' * (momentum > 0)}update"
        # Alone it rounds otherwise with a decay.
        large = f"multi_{name}" if trainer.optimizer.wd and not momentum else name
        assert made[before:] == [large, f"multi_{name}"] * (before == 0 or any(change.values()))
    if not momentum:
        trainers[0].optimizer.momentum = 0.5
        backward(ours)
        with pytest.raises(ValueError, match="had none before: make a new trainer"):
            trainers[0].step(4)


class ByNorm(mx.optimizer.SGD):
    """A subclass of one that can be cut, which needs whole parameters."""


def test_an_optimiser_is_cut_if_it_is_known_to_update_each_element_by_itself():
    others = [getattr(mx.optimizer, name)() for name in ("Nadam", "LARS", "LAMB", "LBSGD")]
    for whole in (ByNorm(momentum=0.5), *others):
        with pytest.raises(ValueError, match=f"{type(whole).__name__} may need them whole"):
            check_shardable(whole, object())
