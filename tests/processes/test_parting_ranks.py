"""Ranks that differ in what decides an update are refused before they part. What changed on one becomes rank 0's."""

from __future__ import annotations

import fake_mpi
import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, gluon, mx
from mxdp.errors import MxdpError
from mxdp.gluon import Trainer
from mxdp.process import MxdpWarning

SHAPES = [(3,), (2, 2), (5,)]
RATES = {"learning_rate": 0.5, "momentum": 0.5}


class Schedule(mx.lr_scheduler.LRScheduler):
    def __call__(self, number):
        return self.base_lr / number


# What one rank changes before a step, and which values the sentence names.
DIFFERENCES = {
    "rate": lambda trainer, params: trainer.set_learning_rate(0.25),
    "weight decay": lambda trainer, params: setattr(trainer.optimizer, "wd", 0.5),
    "momentum": lambda trainer, params: setattr(trainer.optimizer, "momentum", 0.25),
    "clipping": lambda trainer, params: setattr(trainer.optimizer, "clip_gradient", 1.0),
    "schedule": lambda trainer, params: setattr(trainer.optimizer, "lr_scheduler", Schedule()),
    "factor": lambda trainer, params: setattr(params[1], "lr_mult", 2.0),
    "decay factor": lambda trainer, params: setattr(params[2], "wd_mult", 0.0),
    "frozen": lambda trainer, params: setattr(params[1], "grad_req", "null"),
    "adding": lambda trainer, params: setattr(params[0], "grad_req", "add"),
    "half": lambda trainer, params: params[2].cast("float64"),
    "made anew": lambda trainer, params: params[0].initialize(ctx=params[0].list_ctx(), force_reinit=True),
    "loss scale": lambda trainer, params: setattr(trainer, "_scale", 0.5),
    "counts": lambda trainer, params: trainer.optimizer._index_update_count.update({0: 7}),
    "batch size": lambda trainer, params: None,
}


def made(n):
    params = [gluon.Parameter(f"p{number}", shape=shape) for number, shape in enumerate(SHAPES)]
    for number, param in enumerate(params):
        param.initialize(ctx=[mx.cpu(device) for device in range(n)], init=mx.init.Constant(1 + number))
    return params


def backward(params):
    for device in range(len(params[0].list_ctx())):
        with autograd.record():
            losses = [(param.list_data()[device] * 2).sum() for param in params if param.grad_req != "null"]
        autograd.backward(losses)


def values(params):
    return [[data.asnumpy() for data in param.list_data()] for param in params]


def train(world, n, shards, halves, what, other, step):
    params = made(n)
    trainer = Trainer(params, "sgd", RATES, world=world, shard_optimizer=shards, bucket_mb=1e-5)
    for number in range(3):
        differs = world.rank == other and number == step
        if differs:
            DIFFERENCES[what](trainer, params)
        backward(params)
        batch_size = 5 if differs and what == "batch size" else 4
        if halves:
            trainer.allreduce_grads()
            trainer.update(batch_size)
        else:
            trainer.step(batch_size)
    return values(params)


@settings(max_examples=30)
@given(
    st.sampled_from(sorted(DIFFERENCES)),
    st.integers(2, 3),
    st.integers(1, 2),
    st.booleans(),
    st.integers(0, 2),
    st.data(),
)
def test_a_difference_is_refused_on_every_rank_before_the_update(what, ranks, n, shards, step, data):
    other = data.draw(st.integers(0, ranks - 1))
    halves = not shards and data.draw(st.booleans())
    results, _ = fake_mpi.outcomes(ranks, lambda world: train(world, n, shards, halves, what, other, step))
    sentences = {str(result) for result in results if type(result) is MxdpError}
    assert len(sentences) == 1, results
    assert all(type(result) in (MxdpError, fake_mpi.Alone) for result in results)
    (sentence,) = sentences
    assert sentence.startswith("the ranks can't train together: rank ")
    assert ", rank 0 has " in sentence


ADAM = {"optimizer": "adam", "optimizer_params": {"learning_rate": 0.5}}


@pytest.mark.parametrize("option", [dict(shard_optimizer=True), dict(bucket_mb=1e-4), ADAM])
@pytest.mark.parametrize("other", [0, 1])
def test_trainers_that_are_made_otherwise_are_refused(option, other):
    made_with = [{"optimizer": "sgd", "optimizer_params": RATES}] * 2
    made_with[other] = {**made_with[other], **option}
    results, _ = fake_mpi.outcomes(2, lambda world: Trainer(made(1), world=world, **made_with[world.rank]))
    assert {type(result) for result in results} == {MxdpError}


def stepped(n, change=None, **options):
    """The parameters after three steps; ``change(params)`` before the second."""
    params = made(n)
    trainer = Trainer(params, "sgd", RATES, **options)
    for step in range(3):
        backward(params)
        if step == 1 and change:
            change(params)
        trainer.step(4)
    return values(params)


@pytest.mark.parametrize("shards", [False, True])
def test_other_numbers_of_devices_are_right_or_refused(shards):
    results, _ = fake_mpi.outcomes(2, lambda world: stepped(1 + world.rank, world=world, shard_optimizer=shards))
    if shards:
        assert {type(result) for result in results} == {MxdpError}
        return
    for arrays, *others in zip(stepped(3), *results):
        onp.testing.assert_equal([array for of_rank in others for array in of_rank], arrays)


def set_data(params):
    params[1].set_data(mx.np.full(SHAPES[1], 7.0))


def in_place(params):
    for data in params[2].list_data():
        data[:1] = 9


@pytest.mark.parametrize("change", [set_data, in_place])
@pytest.mark.parametrize(("ranks", "n", "shards"), [(2, 1, False), (2, 2, True), (3, 2, False)])
@pytest.mark.parametrize("other", [0, 1])
def test_parameters_that_are_changed_on_a_rank_are_rank_0s_again(change, ranks, n, shards, other):
    def work(world):
        return stepped(n, change if world.rank == other else None, world=world, shard_optimizer=shards)

    with pytest.warns(MxdpWarning, match="all have rank 0's now"):
        results = fake_mpi.run(ranks, work)
    for arrays, *others in zip(stepped(ranks * n, None if other else change), *results):
        onp.testing.assert_equal([array for of_rank in others for array in of_rank], arrays)
