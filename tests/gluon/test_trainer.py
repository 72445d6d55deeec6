from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as onp
import pytest
from small_training import (
    NAMES,
    SGD,
    assert_equal,
    backward,
    by_devices,
    by_mxnet,
    deferred_net,
    devices,
    like,
    parameters,
    slope,
    total,
    train,
    train_net,
    weights,
    zero,
)

import mxdp
from mxdp.backend import autograd, gluon, mx, np
from mxdp.collectives import AllReduce
from mxdp.collectives.tuning import choose
from mxdp.errors import MxdpError
from mxdp.gluon import Store, Trainer
from mxdp.plans.cost.machine import CPU
from mxdp.processes import World


@pytest.mark.parametrize("n", [1, 2, 4])
def test_parameters_equal_those_of_the_device_store(n, semantics):
    expected = train(by_mxnet, n)
    for name in NAMES:
        for make in (gluon.Trainer, Trainer, partial(Trainer, bucket_mb=1e-4)):
            assert_equal(train(partial(make, kvstore=name), n), expected)


class MeanStore(Store):
    def _all_reduce(self, arrays):
        return [AllReduce(arrays, "ring", op="mean")]


class LeavesABucketOut(Trainer):
    def _lay_out(self):
        super()._lay_out()
        del self._replicas.buckets.buckets[1:]


class ForgetsTheFirstGradients(Trainer):
    def _lay_out(self):
        zero(self._params)
        super()._lay_out()


class SumsTwice(Trainer):
    def _sum(self, stale, batch_size=None):
        super()._sum(stale, batch_size)
        self._replicas.buckets.sum()


class RebindsInsteadOfWriting(Store):
    def pushpull(self, key, value, out=None, priority=0):
        super().pushpull(key, [array.copy() for array in value], out, priority)


@pytest.mark.parametrize(
    "broken",
    [
        lambda *args: gluon.Trainer(*args, kvstore=MeanStore("ring")),
        lambda *args: gluon.Trainer(*args, kvstore=RebindsInsteadOfWriting("ring")),
        lambda *args: LeavesABucketOut(*args, bucket_mb=1e-4),
        lambda *args: SumsTwice(*args),
    ],
)
def test_broken_variants_are_caught(broken):
    with pytest.raises(AssertionError, match="not equal"):
        assert_equal(train(broken, 2), train(by_mxnet, 2))


def test_forgotten_first_gradients_would_be_caught():
    with pytest.raises(AssertionError, match="not equal"):
        assert_equal(weights(train_net(ForgetsTheFirstGradients)[0]), weights(train_net(by_mxnet)[0]))


@pytest.mark.parametrize("hybrid", [None, {}, {"static_alloc": True}], ids=str)
@pytest.mark.parametrize("kind", ["store", "Trainer"])
def test_deferred_initialisation_and_batch_norm(hybrid, kind, semantics):
    """On two devices nothing may differ, as a sum of two has no order. The first step keeps the first gradients."""
    prepare = None if hybrid is None else lambda net: net.hybridize(**hybrid)
    makers = {"store": lambda *args: gluon.Trainer(*args, kvstore="mxdpring"), "Trainer": Trainer}
    expected, _ = train_net(by_mxnet, prepare=prepare)
    ours, _ = train_net(makers[kind], prepare=prepare)
    assert_equal(weights(ours), weights(expected))


@pytest.mark.parametrize("shared", [False, True])
def test_two_trainers_at_once(shared):
    def run(make):
        params = parameters(2)
        parts = (params[:3], params[1:]) if shared else (params[:2], params[2:])
        trainers = [make(part, *SGD) for part in parts]
        for step in range(4):
            backward(params, step)
            trainers[step % 2].step(2)
            backward(params, step + 1)
            trainers[1 - step % 2].step(2, ignore_stale_grad=True)
        return weights(params)

    expected = run(by_devices)
    for kvstore in ("mxdpring", Store("ring")):
        for kind in (Trainer, gluon.Trainer):
            assert_equal(run(partial(kind, kvstore=kvstore)), expected)


def test_summing_and_updating_apart():
    params = parameters(4)
    trainer = Trainer(params, "sgd", {"learning_rate": 1.0})
    backward(params)
    trainer.allreduce_grads()
    for number, param in enumerate(params):
        for grad in param.list_grad():
            onp.testing.assert_array_equal(grad.asnumpy(), total(params, number))
            grad[()] = np.clip(grad, -2, 2)
    trainer.update(2)
    for number, param in enumerate(params):
        for data in param.list_data():
            onp.testing.assert_array_equal(data.asnumpy(), 1 - onp.clip(total(params, number), -2, 2) / 2)


def backward_on(params, batch):
    """Each device its shard, as ``split_batch(X, y, devices[: len(X)])`` gives them."""
    for rank, samples in enumerate(onp.array_split(batch, min(len(batch), len(params[0].list_ctx())))):
        with autograd.record():
            losses = [
                (param.list_data()[rank] * like(param.list_data()[rank], slope(param, number, sample, 0))).sum()
                for sample in samples
                for number, param in enumerate(params)
            ]
        autograd.backward(losses)


def plain(trainer, params, batch):
    backward_on(params, batch)
    trainer.step(4)


def ignoring(trainer, params, batch):
    backward_on(params, batch)
    trainer.step(4, ignore_stale_grad=True)


def in_two_calls(trainer, params, batch):
    backward_on(params, batch)
    trainer.allreduce_grads()
    trainer.update(4)


def in_micro_batches(trainer, params, batch):
    """The last one, which may have one sample, is outside."""
    if len(batch) > 1:
        with trainer.no_sync():
            backward_on(params, batch[:-1])
    plain(trainer, params, batch[-1:])


def idle_inside_and_outside(trainer, params, batch):
    with trainer.no_sync():
        for sample in batch[:-1]:
            backward_on(params, [sample])
    plain(trainer, params, batch[-1:])


def added(trainer, params, batch):
    plain(trainer, params, batch)
    zero(params)


@pytest.mark.parametrize("step", [plain, ignoring, in_two_calls, in_micro_batches, idle_inside_and_outside, added])
@pytest.mark.parametrize("last", [1, 2])
def test_a_batch_with_fewer_samples_than_devices_equals_the_serial_run(step, last, semantics):
    """At the end of the epoch and in its middle. The devices without a sample hold the sum of the step before."""
    batches = [range(5), [7] * last, range(4), range(last)]

    def run(n, **store):
        params = parameters(n, grad_req="add" if step is added else "write")
        trainer = Trainer(params, *SGD, **store)
        for batch in batches:
            step(trainer, params, list(batch))
        return weights(params)

    expected = [arrays[0] for arrays in run(1)]
    for n, store in [(2, {}), (3, {"bucket_mb": 1e-4})]:
        for replicas, serial in zip(run(n, **store), expected):
            for replica in replicas:
                onp.testing.assert_array_equal(replica, serial)


class OfTwoRanks(World):
    """A world whose other rank has gradients of 1."""

    size = 2

    def __init__(self):
        self.rank, self.steps = 0, 0

    def gather(self, value):
        return [value, value]

    def sum(self, arrays, note):
        for array in arrays:
            array += 1
        mine = note.told()
        digest, rest = mine[:4], mine[len(note.mine) :]
        note.theirs = [mine, digest + b"\1" * (len(note.mine) - 4) + rest]  # it has used all parameters
        note.carrier = arrays[0]

    def broadcast(self, arrays):
        pass

    def step_done(self):
        self.steps += 1


def test_a_rank_without_a_sample_steps_with_the_others():
    params = parameters(2)
    trainer = Trainer(params, "sgd", {"learning_rate": 0.5}, world=OfTwoRanks())
    for step in range(1, 4):
        trainer.step(4)
        assert_equal(weights(params), [[onp.full(param.shape, 1 - step / 8)] * 2 for param in params])


@pytest.mark.parametrize(
    ("kind", "n", "used", "batch"),
    [(gluon.Trainer, 2, 4, [0]), (Trainer, 1, 4, []), (Trainer, 2, 4, []), (Trainer, 2, 2, [0, 1])],
)
def test_a_step_without_any_backward_is_refused_as_by_mxnet(kind, n, used, batch):
    """gluon's own trainer refuses a device without a sample, so README names ours."""
    params = parameters(n)
    trainer = kind(params, *SGD, kvstore="mxdpring")
    plain(trainer, params, [0, 1])
    if batch:
        backward_on(params[:used], batch)
    with pytest.raises(UserWarning, match="been updated by backward"):
        trainer.step(4)


def test_one_device_needs_no_store():
    params = parameters(1)
    before = [param.list_grad()[0] for param in params]
    trainer = Trainer(params, *SGD)
    backward(params)
    trainer.step(1)
    assert trainer._kvstore is None
    assert trainer._replicas.buckets is None
    assert all(param.list_grad()[0] is grad for param, grad in zip(params, before))


def test_sparse_gradients_on_one_device_are_mxnets_business(classic):
    x = gluon.Parameter("x", shape=(10,), grad_stype="row_sparse")
    x.initialize(ctx=mx.cpu(), init="zeros")
    trainer = Trainer([x], "sgd", {"learning_rate": 1.0, "momentum": 0.5})
    with autograd.record():
        loss = x.data() + 1
    loss.backward()
    trainer.step(1)
    assert (x.data().asnumpy() == -1).all()
    with pytest.raises(ValueError, match="the parameter x is sparse"), trainer.no_sync():
        pass


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kvstore": "mxdprnig"}, ValueError, "^no store is called 'mxdprnig'; did you mean 'mxdpring'\\? There are: "),
        ({"kvstore": "devcie"}, ValueError, "did you mean 'device'\\? There are: .*dist_sync, .*mxdpring, .*teststore"),
        ({"kvstore": "ring"}, ValueError, "did you mean 'mxdpring'"),
        ({"kvstore": "12345"}, ValueError, "^no store is called '12345'; there are: "),
        ({"kvstore": 5}, TypeError, "a store's name, a store or None, not 5"),
        ({"world": "2"}, TypeError, r"world must be what mxdp.world\(\) returns, not '2'"),
    ],
)
def test_what_is_no_store_or_world_is_refused(options, error, message):
    with pytest.raises(error, match=message):
        Trainer(parameters(2), *SGD, **options)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("kvstore", ["mxdpring", pytest.param(Store("ring"), id="a Store")])
def test_options_for_mxnets_stores_are_refused_in_one_sentence(n, kvstore):
    wrong = [
        (
            {"compression_params": {"type": "2bit", "threshold": 0.5}},
            "compresses none.*'2bit'.*leave compression_params",
        ),
        ({"update_on_kvstore": True}, "runs no optimiser.*leave update_on_kvstore out"),
        ({"bucket_mb": 0}, "bucket_mb must be more than 0, not 0"),
        ({"bucket_mb": "25"}, "bucket_mb must be more than 0, not '25'"),
    ]
    for options, message in wrong:
        with pytest.raises(ValueError, match=message) as caught:
            Trainer(parameters(n), *SGD, kvstore=kvstore, **options)
        assert ". " not in str(caught.value)
    Trainer(parameters(n), *SGD, kvstore=kvstore, update_on_kvstore=False)


@pytest.mark.parametrize("sparse", [{"grad_stype": "row_sparse"}, {"stype": "row_sparse", "grad_stype": "row_sparse"}])
def test_sparse_gradients_are_refused_in_one_sentence(sparse, classic):
    x = parameters(2, [(4, 1)], **sparse)
    with pytest.raises(ValueError, match=r"the parameter p0 is sparse .* use kvstore='device'") as caught:
        Trainer(x, *SGD)
    assert ". " not in str(caught.value)
    Trainer(x, *SGD, kvstore="device")


@pytest.mark.parametrize("kvstore", ["mxdpauto", "device"])
@pytest.mark.parametrize("batch_size", [0, -1, float("nan")])
def test_a_batch_without_samples_is_refused(kvstore, batch_size):
    params = parameters(2)
    trainer = Trainer(params, *SGD, kvstore=kvstore)
    before = weights(params)
    backward(params)
    for method in (trainer.step, trainer.update):
        with pytest.raises(ValueError, match=f"on all devices together, more than 0, not {batch_size}$"):
            method(batch_size)
        with pytest.raises(RuntimeError, match="call it after the block"), autograd.record():
            method(1)
    assert_equal(weights(params), before)


@pytest.mark.parametrize(("n", "where"), [(1, r"1 device \(cpu\(0\)\)"), (2, r"2 devices \(cpu\(0\), cpu\(1\)\)")])
@pytest.mark.parametrize("kvstore", ["mxdpauto", "device"])
def test_parameters_without_values_are_named_with_their_devices(n, where, kvstore):
    net = deferred_net()
    net.initialize(ctx=devices(n) if n > 1 else None)
    trainer = Trainer(net.collect_params(), *SGD, kvstore=kvstore)
    message = (
        rf"^the parameter \w+ has no values yet, .* on {where}: run a forward pass .* net.initialize\(ctx=devices\)"
    )
    for method in (lambda: trainer.step(1), lambda: trainer.update(1), trainer.allreduce_grads):
        with pytest.raises(gluon.parameter.DeferredInitializationError, match=message):
            method()


def test_a_device_is_given_once():
    x = gluon.Parameter("x", shape=(3,))
    x.initialize(ctx=[mx.cpu(0), mx.cpu(0)])
    with pytest.raises(ValueError, match=r"devices must be different ones, .* not cpu\(0\), cpu\(0\)"):
        Trainer([x], *SGD)


def test_parameters_are_judged_by_gluon():
    with pytest.raises(ValueError, match="First argument must be a list or dict of Parameters"):
        Trainer(5, "sgd")
    with pytest.raises(ValueError, match="First argument must be a list or dict of Parameters"):
        Trainer([5], "sgd")


@pytest.mark.parametrize("kvstore", ["device", "local", "teststore", "DEVICE", None])
def test_mxnets_own_stores_mean_mxnets_behaviour(kvstore):
    params = parameters(2)
    grads = [param.list_grad() for param in params]
    trainer = Trainer(params, *SGD, kvstore=kvstore)
    plain = parameters(2)
    other = gluon.Trainer(plain, *SGD, kvstore=kvstore)
    for step in range(2):
        backward(params, step)
        trainer.step(2)
        backward(plain, step)
        other.step(2)
    assert_equal(weights(params), weights(plain))
    assert all(param.list_grad() is grad for param, grad in zip(params, grads))
    assert type(trainer._kvstore) is type(other._kvstore)
    assert trainer._update_on_kvstore == other._update_on_kvstore


def test_a_store_is_taken_with_its_options():
    params = parameters(2)
    trainer = mxdp.Trainer(params, *SGD, kvstore=Store("tree"))
    backward(params)
    trainer.step(1)
    assert trainer._replicas.buckets.buckets[0].algorithm == "tree"
    assert trainer._kvstore.type == "mxdptree"
    assert trainer._update_on_kvstore is False
    assert isinstance(trainer, gluon.Trainer)
    chosen = []
    for machine in (replace(CPU, push=1.0), CPU):
        trainer = mxdp.Trainer(parameters(4, [(1 << 18,)]), *SGD, kvstore=Store("auto", machine=machine))
        chosen.append(trainer._replicas.buckets.buckets[0].algorithm)
    assert chosen == [choose(devices(4), [1 << 18], 4, machine) for machine in (replace(CPU, push=1.0), CPU)]
    assert chosen[0] != chosen[1]


BOTH = pytest.mark.parametrize("shard", [False, True], ids=["plain", "shards"])


@BOTH
@pytest.mark.parametrize("after", [[0, 1, 2], [1], [2, 0]])
def test_a_net_that_is_moved_trains_on(after, shard):
    """Its state moves, too, and no device is left out."""

    def run(places):
        params = parameters(2, [(3, 5), (7,)])
        trainer = Trainer(params, "adam", {"learning_rate": 0.125}, shard_optimizer=shard)
        for step, ids in enumerate([[0, 1], *places, *places]):
            if ids != [device.device_id for device in params[0].list_ctx()]:
                for param in params:
                    param.reset_ctx([mx.cpu(number) for number in ids])
            for param in params:
                for data in param.list_data():
                    with autograd.record():
                        loss = (data * (1 + step)).sum() * 6 / len(ids)  # the same sum on any number of devices
                    loss.backward()
            trainer.step(4)
        return weights(params)

    expected = [arrays[0] for arrays in run([[0, 1]])]
    for replicas, serial in zip(run([after]), expected):
        assert len(replicas) == len(after)
        for replica in replicas:
            onp.testing.assert_array_equal(replica, serial)


@BOTH
def test_a_step_on_parameters_that_lie_on_other_devices_is_refused(shard):
    params = parameters(2)
    trainer = Trainer(params, *SGD, shard_optimizer=shard)
    params[1].reset_ctx([mx.cpu(0), mx.cpu(2)])
    backward(params)
    with pytest.raises(ValueError, match=r"all parameters must lie on the same devices, not on .*cpu\(2\)"):
        trainer.step(4)


@BOTH
def test_states_that_are_refused_change_nothing(shard, tmp_path):
    file = str(tmp_path / "states")

    def begun(shapes, *optimizer, **options):
        params = parameters(2, shapes)
        trainer = Trainer(params, *optimizer, **options)
        backward(params)
        trainer.step(4)
        return params, trainer

    begun([(3,)], "sgd", {"learning_rate": 1.0})[1].save_states(file)
    begun([(4,), (2,)], "adam")[1].save_states(f"{file}-other")
    (tmp_path / "states-damaged").write_bytes(b"damaged")
    params, trainer = begun([(3,)], "adam", shard_optimizer=shard)
    expected, other = begun([(3,)], "adam")
    begun([(4,)], "adam")[1].save_states(f"{file}-shape")
    problems = {
        "-damaged": "these are no states of a trainer",
        "-other": "of another network, whose parameter p1 isn't here",
        "-shape": r"of another network: one of shape \(4,\) is for p0 of shape \(3,\)",
    }
    if shard:
        problems[""] = "SGD as it is here has none"
    for end, problem in problems.items():
        with pytest.raises(ValueError, match=problem):
            trainer.load_states(file + end)
    with pytest.raises(OSError, match="missing"):
        trainer.load_states(f"{file}-missing")
    backward(params, 1)
    trainer.step(4)
    backward(expected, 1)
    other.step(4)
    assert_equal(weights(params), weights(expected))
    trainer._optimizer.lr_scheduler = lambda count: 1.0
    with pytest.raises(MxdpError, match=r"the optimiser can't be saved \(.*lambda.*\): it and its learning rate"):
        trainer.save_states(f"{file}-unsaved")
    assert not (tmp_path / "states-unsaved").exists()


@pytest.mark.parametrize("size", [5, 20000])
def test_momentum_may_be_changed(size):
    def run(make, momenta):
        params = parameters(2, [(size,)])
        trainer = make(params, "sgd", {"learning_rate": 0.5, "momentum": momenta[0]})
        for step, momentum in enumerate(momenta):
            trainer._optimizer.momentum = momentum
            backward(params, step)
            trainer.step(4)
        return weights(params)

    assert_equal(run(Trainer, [0.5, 0, 0, 0.5]), run(by_devices, [0.5, 0, 0, 0.5]))
    with pytest.raises(ValueError, match="had none before: make a new trainer"):
        run(Trainer, [0, 0.5])
