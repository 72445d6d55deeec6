"""Where the gradients of ``mxdp.Trainer`` lie, and what may replace them."""

from __future__ import annotations

import numpy as onp
import pytest
from small_training import (
    SGD,
    SHAPES,
    assert_equal,
    backward,
    by_devices,
    by_mxnet,
    deferred_net,
    devices,
    parameters,
    total,
    train_net,
    weights,
    zero,
)

from mxdp.backend import autograd, gluon, mx, np
from mxdp.gluon import Trainer
from mxdp.gluon.bucketed import BucketedGradients


def test_the_gradients_are_views_into_one_bucket_in_the_order_of_the_network(semantics):
    params = {f"{letter}": param for letter, param in zip("zyxw", parameters(2))}
    trainer = Trainer(params, *SGD, kvstore="mxdpdirect")
    sync = trainer._buckets
    assert [bucket.params for bucket in sync.buckets] == [(3, 2, 1, 0)]
    assert sync.buckets[0].algorithm == "direct"
    for number, param in enumerate(params.values()):
        for rank, grad in enumerate(param.list_grad()):
            assert type(grad) is type(param.list_data()[rank])
            assert grad.ctx == mx.cpu(rank)
            sync.gradients[rank][number][()] = number + rank
            assert (grad.asnumpy() == number + rank).all()
            assert param.grad(mx.cpu(rank)) is grad


@pytest.mark.parametrize("how", ["parameter", "dictionary"])
def test_zero_grad_reaches_the_buckets(how, semantics):
    if (how, semantics) == ("parameter", "numpy"):
        pytest.skip("MXNet 1.9.1: Parameter.zero_grad takes no NumPy arrays")
    net = deferred_net(norm=False)
    net.initialize(ctx=devices(2))
    make = np.ones if semantics == "numpy" else mx.nd.ones
    trainer = Trainer(net.collect_params(), *SGD)
    for _ in range(2):
        with autograd.record():
            losses = [net(make((2, 3), ctx=device)).sum() for device in devices(2)]
        autograd.backward(losses)
        trainer.step(1)
    buckets = trainer._buckets
    for holder in [net.collect_params()] if how == "dictionary" else net.collect_params().values():
        holder.zero_grad()
    assert not any(gradient.any() for gradients in buckets.gradients for gradient in gradients.values())
    assert trainer._buckets is buckets
    assert buckets.hold()


CHANGES = {
    "cast all": lambda params: [param.cast("float64") for param in params],
    "cast one": lambda params: params[1].cast("float16"),
    "initialise": lambda params: params[0].initialize(ctx=devices(2), init="zeros", force_reinit=True),
    "move": lambda params: [param.reset_ctx(devices(2, first=4)) for param in params],
}


@pytest.mark.filterwarnings("ignore:Accumulating with float16")
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("when", ["before the first step", "between steps", "between backward and step"])
def test_what_changes_the_gradients_makes_new_buckets(change, when, semantics):
    if (change, when) == ("move", "before the first step"):
        pytest.skip("gluon's Trainer refuses parameters that moved before its first step")

    def run(make):
        params = parameters(2)
        trainer = make(params, "sgd", {"learning_rate": 0.5})
        for step in range(4):
            if (step, when) in [(0, "before the first step"), (2, "between steps")]:
                CHANGES[change](params)
            backward(params, step)
            if (step, when) == (2, "between backward and step"):
                CHANGES[change](params)
            trainer.step(1, ignore_stale_grad=True)
        return weights(params)

    assert_equal(run(Trainer), run(by_devices))


def test_a_parameter_given_twice_is_summed_once():
    params = parameters(2, SHAPES[:1])
    trainer = Trainer(params * 2, "sgd", {"learning_rate": 0.0})
    backward(params)
    trainer.allreduce_grads()
    onp.testing.assert_array_equal(params[0].list_grad()[1].asnumpy(), total(params, 0))


@pytest.mark.parametrize("n", [1, 2, 4])
@pytest.mark.parametrize("mixed", [False, True])
def test_no_sync_adds_up_and_sums_once(n, mixed, semantics):
    params = parameters(n)
    if mixed:
        params[1].grad_req = "add"
    trainer = Trainer(params, "sgd", {"learning_rate": 1.0})
    expected = [onp.ones(param.shape) for param in params]
    for step in range(3):
        with trainer.no_sync():
            backward(params, step)
        with trainer.no_sync():
            backward(params, step + 1)
        backward(params, step + 2)
        trainer.step(4)
        for number, param in enumerate(params):
            expected[number] -= sum(total(params, number, step + micro) for micro in range(3)) / 4
            for data in param.list_data():
                onp.testing.assert_array_equal(data.asnumpy(), expected[number])
            if param.grad_req == "add":
                zero([param])
        backward(params, step)  # one without
        trainer.step(4)
        for number, param in enumerate(params):
            expected[number] -= total(params, number, step) / 4
            onp.testing.assert_array_equal(param.list_data()[-1].asnumpy(), expected[number])
        zero(params)
    assert len(trainer._buckets.buckets) == 1 + mixed, "gradients that add up have one of their own"


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


def test_no_sync_needs_a_store_of_mxdp_and_initialised_parameters():
    for kvstore in ("device", None):
        trainer = Trainer(parameters(2), *SGD, kvstore=kvstore)
        with pytest.raises(ValueError, match="no_sync needs one of mxdp's stores"), trainer.no_sync():
            pass
    net = deferred_net()
    net.initialize(ctx=devices(2))
    trainer = Trainer(net.collect_params(), *SGD)
    with pytest.raises(gluon.parameter.DeferredInitializationError), trainer.no_sync():
        pass


def static(net):
    net.hybridize(static_alloc=True, static_shape=True)


def forward_once(net):
    static(net)
    for device in devices(2):
        net(np.ones((4, 6), ctx=device))


def dense_weights(params):
    """Without the running statistics, which MXNet's static graphs still update while they are broadcast."""
    return weights([param for param in params if "running" not in param.name])


@pytest.mark.parametrize("shard", [False, True])
@pytest.mark.parametrize("prepare", [forward_once, static])
def test_a_static_shape_network_trains_as_with_mxnets_trainer(prepare, shard):
    """Where it has run backward before the gradients moved, it still writes to where they were."""
    optimizer = "sgd", {"learning_rate": 0.1, "momentum": 0.5}
    expected, _ = train_net(by_mxnet, prepare=prepare, steps=5, optimizer=optimizer)
    ours, trainer = train_net(
        lambda *args: Trainer(*args, shard_optimizer=shard), prepare=prepare, steps=5, optimizer=optimizer
    )
    assert_equal(dense_weights(ours), dense_weights(expected))
    assert trainer._buckets.hold()


def test_no_sync_brings_a_static_graph_into_the_buckets():
    def added_up(trainer, step):
        for param in trainer._params:
            if param.grad_req != "null":
                param.grad_req = "write" if step < 2 else "add"
        zero(trainer._params)
        return range(1 if step < 2 else 2)

    def held_back(trainer, step):
        if step >= 2:
            with trainer.no_sync():
                yield
        yield

    expected, _ = train_net(by_devices, steps=4, micro_batches=added_up)
    ours, trainer = train_net(Trainer, steps=4, prepare=static, micro_batches=held_back)
    assert_equal(dense_weights(ours), dense_weights(expected))
    assert trainer._buckets.hold()


def test_without_the_check_of_static_graphs_the_result_would_be_wrong(monkeypatch):
    expected, _ = train_net(by_mxnet, prepare=static)
    monkeypatch.setattr(BucketedGradients, "fetch", lambda self: None)
    ours, _ = train_net(Trainer, prepare=static)
    with pytest.raises(AssertionError, match="not equal"):
        assert_equal(dense_weights(ours), dense_weights(expected))
