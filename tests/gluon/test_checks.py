"""What ``mxdp.Trainer`` refuses, in one sentence, before anything is trained."""

from __future__ import annotations

import pytest
from small_training import SGD, SHAPES, assert_equal, backward, devices, network, parameters, weights

from mxdp.backend import autograd, gluon, mx
from mxdp.gluon import Store, Trainer
from mxdp.gluon.checks import LOCAL_STORES
from mxdp.processes import World


class TwoRanks(World):
    def __init__(self):
        super().__init__()
        self.size = 2


BOTH = pytest.mark.parametrize("shard", [False, True], ids=["plain", "shards"])


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("options", [{}, {"shard_optimizer": True}])
def test_a_parameter_that_is_given_twice_is_refused(n, options):
    params = parameters(n, SHAPES[:2])
    with pytest.raises(ValueError, match="the parameter p0 stands in the trainer's list twice"):
        Trainer([*params, params[0]], *SGD, **options)


def test_no_sync_needs_a_store_of_mxdp_and_initialised_parameters():
    for kvstore in ("device", None):
        trainer = Trainer(parameters(2), *SGD, kvstore=kvstore)
        with pytest.raises(ValueError, match="no_sync needs one of mxdp's stores"), trainer.no_sync():
            pass
    net = network()
    net.initialize(ctx=devices(2))
    trainer = Trainer(net.collect_params(), *SGD)
    with pytest.raises(gluon.parameter.DeferredInitializationError), trainer.no_sync():
        pass


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
        (
            {"kvstore": "device", "world": TwoRanks()},
            ValueError,
            "world is for mxdp's stores by name, .*kvstore='device'$",
        ),
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
    net = network()
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


@pytest.mark.parametrize("kvstore", [*LOCAL_STORES[:-1], "teststore", "DEVICE", None])
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


@BOTH
def test_a_step_on_parameters_that_lie_on_other_devices_is_refused(shard):
    params = parameters(2)
    trainer = Trainer(params, *SGD, shard_optimizer=shard)
    params[1].reset_ctx([mx.cpu(0), mx.cpu(2)])
    backward(params)
    with pytest.raises(ValueError, match=r"all parameters must lie on the same devices, not on .*cpu\(2\)"):
        trainer.step(4)


class ByNorm(mx.optimizer.SGD):
    """A subclass of one that can be cut, which needs whole parameters."""


@pytest.mark.parametrize(
    ("optimizer", "options", "message"),
    [
        (("sgd", {}), {}, "SGD as it is here has none"),
        (("lamb", {}), {}, "LAMB may need them whole"),
        (("nadam", {}), {}, "Nadam may need them whole"),
        ((ByNorm(momentum=0.5), None), {}, "ByNorm may need them whole"),
        (SGD, dict(kvstore="device"), "needs one of mxdp's stores"),
        (SGD, dict(kvstore=None), "needs one of mxdp's stores"),
    ],
)
def test_what_cannot_be_cut_is_refused(optimizer, options, message):
    with pytest.raises(ValueError, match=message):
        Trainer(parameters(2), *optimizer, shard_optimizer=True, **options)


def test_the_halves_of_a_step_are_refused():
    params = parameters(2)
    trainer = Trainer(params, *SGD, shard_optimizer=True)
    backward(params)
    for half in (trainer.allreduce_grads, lambda: trainer.update(4)):
        with pytest.raises(RuntimeError, match="call step, or leave shard_optimizer out"):
            half()
    trainer._amp_loss_scaler = object()
    with pytest.raises(RuntimeError, match="amp"):
        trainer.step(4)
