"""``mxdp.Trainer(shard_optimizer=True)``: equal to MXNet's trainer, with 1 / k of the state on each of k devices. (That
states continue on other devices and ranks, with shards and without: ``processes/test_random_trainings.py``.)"""

from __future__ import annotations

import pytest
from small_training import SGD, assert_equal, backward, by_mxnet, parameters, train, train_net, weights

from mxdp.backend import mx
from mxdp.gluon import Trainer
from mxdp.gluon.updater import ELEMENTWISE

OPTIMIZERS = {
    "SGD": dict(momentum=0.9, wd=0.1),
    "NAG": dict(momentum=0.9),
    "Signum": dict(momentum=0.9),
    **{name: {} for name in ("Adam", "Adamax", "AdaGrad", "AdaDelta", "RMSProp", "Ftrl", "FTML", "DCASGD")},
}
SHAPES = [(3, 5), (5,), (2, 3, 2), (1,), (0, 2)]


def sharded(params, *optimizer, **options):
    return Trainer(params, *optimizer, shard_optimizer=True, **options)


def steps(trainer, params, n=5, first=0):
    for step in range(first, first + n):
        backward(params, step)
        trainer.step(4)


@pytest.mark.parametrize(
    ("name", "n", "bucket_mb"),
    [("SGD", 1, 25), ("Adam", 7, 25), *((name, *case) for name in OPTIMIZERS for case in ((2, 25), (3, 1e-4)))],
)
def test_parameters_have_the_bits_of_mxnets_trainer(name, n, bucket_mb):
    assert list(OPTIMIZERS) == list(ELEMENTWISE)
    optimizer = name.lower(), {"learning_rate": 0.125, **OPTIMIZERS[name]}
    expected = train(by_mxnet, n, 5, optimizer)
    assert_equal(train(lambda *args: sharded(*args, bucket_mb=bucket_mb), n, 5, optimizer), expected)


class ForgetsToSpread(Trainer):
    def _apply(self, unused):
        self._replicas.spread = lambda numbers: None
        super()._apply(unused)


class UpdatesByItsOwnGradients(Trainer):
    def _sum(self, stale, batch_size=None):
        self._laid_out().fill(stale.devices)


@pytest.mark.parametrize("broken", [ForgetsToSpread, UpdatesByItsOwnGradients])
def test_the_comparison_finds_a_broken_trainer(broken):
    ours = train(lambda *args: broken(*args, shard_optimizer=True), 2)
    with pytest.raises(AssertionError):
        assert_equal(ours, train(by_mxnet, 2))


@pytest.mark.parametrize("hybrid", [dict(), dict(static_alloc=True), dict(static_alloc=True, static_shape=True)])
def test_a_network_trains_as_with_mxnets_trainer(hybrid, semantics):
    def prepare(net):
        net(mx.np.ones((1, 6)) if mx.util.is_np_array() else mx.nd.ones((1, 6)))
        net.hybridize(**hybrid)

    adam = "adam", {"learning_rate": 0.01}
    ours, _ = train_net(sharded, 2, 5, prepare, adam)
    expected, _ = train_net(by_mxnet, 2, 5, prepare, adam)
    # MXNet's static graphs still update the running statistics while they are broadcast.
    assert_equal(*[weights([param for param in params if "running" not in param.name]) for params in (ours, expected)])


def test_large_parameters_are_summed_in_place(monkeypatch):
    monkeypatch.setattr("mxdp.plans.collective.operations.IN_PLACE_BYTES", 1)
    assert_equal(train(sharded, 2), train(by_mxnet, 2))


def test_new_buckets_keep_the_states():
    results = []
    for make in (by_mxnet, sharded):
        params = parameters(2)
        trainer = make(params, *SGD)
        steps(trainer, params, 2)
        params[0].grad_req = "add"  # its gradients move, and so do the parts
        for grad in params[0].list_grad():
            grad[()] = 0
        steps(trainer, params, 1, first=2)
        results.append(weights(params))
    assert trainer._updaters[0].saved == {}, "no whole state stays on the host"
    assert_equal(*results)


def test_micro_batches():
    results = []
    for make in (Trainer, sharded):
        params = parameters(2)
        trainer = make(params, *SGD)
        for step in range(3):
            with trainer.no_sync():
                backward(params, 2 * step)
            backward(params, 2 * step + 1)
            trainer.step(4)
        results.append(weights(params))
    assert_equal(*results)


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
        sharded(parameters(2), *optimizer, **options)


def test_the_halves_of_a_step_are_refused():
    params = parameters(2)
    trainer = sharded(params, *SGD)
    backward(params)
    for half in (trainer.allreduce_grads, lambda: trainer.update(4)):
        with pytest.raises(RuntimeError, match="call step, or leave shard_optimizer out"):
            half()
    trainer._amp_loss_scaler = object()
    with pytest.raises(RuntimeError, match="amp"):
        trainer.step(4)
