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

from mxdp.backend import gluon, np
from mxdp.gluon import Trainer


def test_gradients_stay_where_gluon_made_them_and_buckets_follow_the_order_of_the_network(semantics):
    params = {f"{letter}": param for letter, param in zip("zyxw", parameters(2))}
    made = [grad for param in params.values() for grad in param.list_grad()]
    trainer = Trainer(params, *SGD, kvstore="mxdpdirect")
    backward(list(params.values()))
    trainer.step(4)
    trainer.allreduce_grads()
    assert all(grad is its for grad, its in zip(made, [x for param in params.values() for x in param.list_grad()]))
    (bucket,) = trainer._replicas.buckets.buckets
    assert bucket.params == (3, 2, 1, 0)
    assert bucket.algorithm == "direct"
    assert [trainer._params[number] for number in trainer._replicas.trained] == list(params.values())


@pytest.mark.parametrize("n", [1, 2, 3])
def test_a_step_leaves_gradients_and_a_sum_apart_hands_sums_back(n, semantics):
    params = parameters(n)
    trainer = Trainer(params, *SGD)
    backward(params)
    before = [[grad.asnumpy() for grad in param.list_grad()] for param in params]
    trainer.step(4)
    assert_equal([[grad.asnumpy() for grad in param.list_grad()] for param in params], before)
    backward(params)
    trainer.allreduce_grads()
    for number, param in enumerate(params):
        for grad in param.list_grad():
            onp.testing.assert_array_equal(grad.asnumpy(), total(params, number))


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


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("options", [{}, {"shard_optimizer": True}])
def test_a_parameter_that_is_given_twice_is_refused(n, options):
    params = parameters(n, SHAPES[:2])
    with pytest.raises(ValueError, match="the parameter p0 stands in the trainer's list twice"):
        Trainer([*params, params[0]], *SGD, **options)


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
    """Its graph writes to the gradients of its first backward pass (source: ``StaticBackward`` in ``cached_op.cc``)."""
    optimizer = "sgd", {"learning_rate": 0.1, "momentum": 0.5}
    expected, _ = train_net(by_mxnet, prepare=prepare, steps=5, optimizer=optimizer)
    ours, _ = train_net(
        lambda *args: Trainer(*args, shard_optimizer=shard), prepare=prepare, steps=5, optimizer=optimizer
    )
    assert_equal(dense_weights(ours), dense_weights(expected))


def test_no_sync_makes_a_static_graph_add_up():
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
    ours, _ = train_net(Trainer, steps=4, prepare=static, micro_batches=held_back)
    assert_equal(dense_weights(ours), dense_weights(expected))
