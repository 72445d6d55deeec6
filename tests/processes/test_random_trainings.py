"""Random trainings by ``mxdp.Trainer`` on devices of several ranks end with the bits of MXNet's optimiser, given all
replicas' summed gradients: plain and in shards, saved by one and continued by another. (Of one rank: tests/gluon.)

Gradients are whole numbers, so sums are exact in any order. A gradient that one device lacks counts as zero. A
parameter that no device has used is not updated.

Ranks that differ in what decides an update are refused before they part, and what changed on one becomes rank 0's.
"""

import os
import tempfile
import threading
import warnings

import fake_mpi
import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, gluon, mx
from mxdp.errors import MxdpError
from mxdp.gluon import Trainer
from mxdp.gluon.updater import leaves
from mxdp.process import MxdpWarning

# mxdp.gluon.record import sum_and_compare
ALL_SHAPES = [(3, 5), (5,), (2, 3, 2), (1,), (130, 130), (7,)]
CUT = {"sgd": {"momentum": 0.5}, "rmsprop": {"centered": True}, "adam": {}, "ftml": {}, "dcasgd": {}}
"""Optimisers whose states may be cut into shards, and others; nadam keeps a number for all parameters."""
WHOLE = {"sgd": {}, "nadam": {}, "lars": {"momentum": 0.5}}


@st.composite
def trainings(draw):
    """An optimiser with its options, and what is done: parts of a training, each by one trainer."""
    cut = draw(st.booleans())
    name, options = draw(st.sampled_from(sorted((CUT if cut else WHOLE).items(), key=str)))
    options = {**options, "learning_rate": 0.125, "wd": draw(st.sampled_from([0, 0.0625]))}
    count = draw(st.integers(1, len(ALL_SHAPES)))
    number = st.integers(0, count - 1)
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        ranks, n = draw(st.sampled_from([(1, 2), (2, 1), (2, 2), (3, 1)]))
        steps = []
        for _ in range(draw(st.integers(1, 4))):
            missing = draw(st.sets(st.tuples(number, st.integers(0, ranks * n - 1)), max_size=2))
            unused = draw(st.sets(number, max_size=1))
            steps.append(missing | {(its, replica) for its in unused for replica in range(ranks * n)})
        parts.append((ranks, n, cut and draw(st.booleans()), steps, cut and draw(st.sampled_from([0, 7, 8, 97]))))
    return name, options, ALL_SHAPES[:count], parts


def slope(number, shape, replica, step):
    return (onp.arange(int(onp.prod(shape))).reshape(shape) % 3 + replica - 2 * number + step % 2) % 5 - 2.0


def serial(name, options, shapes, parts):
    """The parameters after each part."""
    optimizer = mx.optimizer.create(name, rescale_grad=1 / 4, **options)
    optimizer.set_lr_mult({0: 0.5})
    optimizer.set_wd_mult({len(shapes) - 1: 2.0})
    update = mx.optimizer.get_updater(optimizer)
    weights, step, results = [mx.np.ones(shape) for shape in shapes], 0, []
    for ranks, n, _, steps, _ in parts:
        for missing in steps:
            for number, weight in enumerate(weights):
                used = [replica for replica in range(ranks * n) if (number, replica) not in missing]
                slopes = [slope(number, weight.shape, replica, step) for replica in used]
                if slopes:
                    update(number, mx.np.array(sum(slopes), dtype="float32"), weight)
            step += 1
        results.append([weight.asnumpy() for weight in weights])
    return results


def trained_part(rank, n, steps, first_count, values, done, file, name, options, **more):
    """One part of a training on one rank: the parameters of each device. Other ranks than 0 begin with other values.
    Names have counts of layers, as in a notebook whose cell was run several times, so gluon sorts them otherwise."""
    params = [gluon.Parameter(f"dense{first_count + i}_weight", shape=value.shape) for i, value in enumerate(values)]
    params[0].lr_mult, params[-1].wd_mult = 0.5, 2.0
    for param, value in zip(params, values):
        param.initialize(init="ones", ctx=[mx.cpu(device) for device in range(n)])
        param.set_data(mx.np.array(value + rank))
    trainer = Trainer({param.name: param for param in params}, name, dict(options), bucket_mb=1e-4, **more)
    if done:
        trainer.load_states(file)
    for step, missing in enumerate(steps, done):
        for device in range(n):
            replica = rank * n + device
            losses = []
            with autograd.record():
                for number in set(range(len(params))) - {its for its, lacking in missing if lacking == replica}:
                    data = params[number].list_data()[device]
                    slopes = slope(number, data.shape, replica, step)
                    losses.append((data * mx.np.array(slopes, ctx=data.ctx)).sum())
            if losses:
                autograd.backward(losses)
        trainer.step(4, ignore_stale_grad=True)
    if rank == 0 or more["shard_optimizer"]:
        trainer.save_states(file)
    return [[data.asnumpy() for data in param.list_data()] for param in params]


@settings(max_examples=25)
@given(trainings())
def test_random_trainings_have_the_bits_of_mxnets_optimiser_of_the_sums(case):
    name, options, shapes, parts = case
    values, done = [onp.ones(shape) for shape in shapes], 0
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = os.path.join(folder, "states")
        for (ranks, n, shards, steps, first_count), expected in zip(parts, serial(*case)):
            given_ = (n, steps, first_count, values, done, file, name, options)

            def work(world, given_=given_, shards=shards):
                return trained_part(world.rank if world else 0, *given_, world=world, shard_optimizer=shards)

            replicas = fake_mpi.run(ranks, work) if ranks > 1 else [work(None)]
            for number, array in enumerate(expected):
                for its in (its for params in replicas for its in params[number]):
                    onp.testing.assert_array_equal(its, array)
            values, done = expected, done + len(steps)


SHAPES = [(3,), (2, 2), (5,)]
RATES = {"learning_rate": 0.5, "momentum": 0.5}


# What one rank changes before a step; or the options of its trainer.
DIFFERENCES = {
    "buckets": {"bucket_mb": 1e-4},
    "in shards": {"shard_optimizer": True},
    "optimiser": {"optimizer": "nag"},
    "rate": lambda trainer, params: trainer.set_learning_rate(0.25),
    "weight decay": lambda trainer, params: setattr(trainer.optimizer, "wd", 0.5),
    "momentum": lambda trainer, params: setattr(trainer.optimizer, "momentum", 0.25),
    "clipping": lambda trainer, params: setattr(trainer.optimizer, "clip_gradient", 1.0),
    "schedule": lambda trainer, params: setattr(trainer.optimizer, "lr_scheduler", mx.lr_scheduler.FactorScheduler(1)),
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


def made(n, shapes=SHAPES):
    params = [gluon.Parameter(f"p{number}", shape=shape) for number, shape in enumerate(shapes)]
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
    change = DIFFERENCES[what]
    options = dict(optimizer="sgd", shard_optimizer=shards, bucket_mb=1e-5)
    if isinstance(change, dict) and world.rank == other:
        options.update(change)
    trainer = Trainer(params, optimizer_params=RATES, world=world, **options)
    for number in range(3):
        differs = world.rank == other and number == step
        if differs:
            change(trainer, params)
        backward(params)
        batch_size = 5 if differs and what == "batch size" else 4
        if halves:
            trainer.allreduce_grads()
            trainer.update(batch_size)
        else:
            trainer.step(batch_size)
    return values(params)


@pytest.mark.parametrize("what", DIFFERENCES)
@settings(max_examples=6)
@given(
    st.integers(2, 3), st.integers(1, 2), st.sampled_from(["step", "halves", "shards"]), st.integers(0, 2), st.data()
)
def test_a_difference_is_refused_on_every_rank_before_the_update(what, ranks, n, way, step, data):
    other = data.draw(st.integers(0, ranks - 1))
    shards, halves = way == "shards" and what != "in shards", way == "halves"
    results, _ = fake_mpi.outcomes(ranks, lambda world: train(world, n, shards, halves, what, other, step))
    sentences = {str(result) for result in results if type(result) is MxdpError}
    assert len(sentences) == 1, results
    assert all(type(result) in (MxdpError, fake_mpi.Alone) for result in results)
    (sentence,) = sentences
    assert sentence.startswith("the ranks can't train together: rank ")
    assert ", rank 0 has " in sentence


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


def in_place(params):
    for data in params[2].list_data():
        data[:1] = 9


@pytest.mark.parametrize(("ranks", "n", "shards"), [(2, 1, False), (2, 2, True), (3, 2, False)])
@pytest.mark.parametrize("other", [0, 1])
def test_parameters_that_are_changed_on_a_rank_are_rank_0s_again(ranks, n, shards, other):
    def work(world):
        return stepped(n, in_place if world.rank == other else None, world=world, shard_optimizer=shards)

    with pytest.warns(MxdpWarning, match="all have rank 0's now"):
        results = fake_mpi.run(ranks, work)
    for arrays, *others in zip(stepped(ranks * n, None if other else in_place), *results):
        onp.testing.assert_equal([array for of_rank in others for array in of_rank], arrays)


def trainer_of(n, world, shard):
    params = made(n, [(60, 10), (23,), (1,)])
    return params, Trainer(params, "adam", {"learning_rate": 0.5}, world=world, shard_optimizer=shard)


def trained(params, trainer, world, steps):
    """Whole numbers as gradients, so that all orders of addition give the same bits."""
    for step in steps:
        for device in range(len(params[0].list_ctx())):
            with autograd.record():
                losses = [param.list_data()[device] * (1 + step + 2 * device + 5 * world.rank) for param in params]
            autograd.backward(losses)
        trainer.step(4)


@pytest.mark.parametrize(("ranks", "n"), [(2, 1), (2, 2), (3, 2)])
def test_ranks_share_the_state_and_rank_0_alone_writes_and_reads_all_of_it(ranks, n, tmp_path):
    """Adam keeps two numbers for each of the 624. (That they are right: test_random_trainings_have_the_bits.)"""

    def work(world):
        params, trainer = trainer_of(n, world, True)
        trained(params, trainer, world, range(2))
        arrays = [x for state in trainer._updaters[0].states.values() for x in leaves(state)]
        trainer.save_states(str(tmp_path / str(world.rank)))
        trainer.load_states(str(tmp_path / str(world.rank)))
        with pytest.raises((OSError, MxdpError), match="nowhere"):
            trainer.load_states(str(tmp_path / "nowhere"))
        return [sum(x.size for x in arrays if x.ctx == mx.cpu(device)) for device in range(n)]

    held = [numbers for of_rank in fake_mpi.run(ranks, work) for numbers in of_rank]
    assert sum(held) == 2 * 624
    assert max(held) <= 1.05 * 2 * 624 / (ranks * n)
    assert [path.name for path in tmp_path.iterdir()] == ["0"]


@pytest.mark.parametrize(("ranks", "n"), [(2, 1), (2, 2), (3, 1)])
@pytest.mark.parametrize(
    ("shard", "step"), [(False, "step"), (False, "allreduce_grads"), (False, "update"), (True, "step")]
)
def test_a_backward_that_no_rank_has_run_is_refused_on_all(ranks, n, shard, step):
    """And changes nothing: the steps after it are those of ranks that never forgot."""

    def work(world, forgets):
        params, trainer = trainer_of(n, world, shard)
        for number in range(4):
            if forgets and number % 2:
                if step == "allreduce_grads":
                    trainer.allreduce_grads()
                with pytest.raises(UserWarning, match=r"no gradient .*: call backward"):
                    trainer.step(4) if step == "step" else trainer.update(4)
            trained(params, trainer, world, [number])
        return [data.asnumpy() for param in params for data in param.list_data()]

    expected, actual = (fake_mpi.run(ranks, lambda world, it=it: work(world, it)) for it in (False, True))
    onp.testing.assert_equal(actual, expected)


class Drawing(mx.optimizer.Optimizer):
    """As SGLD: adds random numbers, which differ by rank."""

    def update(self, index, weight, grad, state):
        weight[:] += float(threading.get_ident() % 1000)


@pytest.mark.parametrize("n", [1, 2])
def test_an_optimiser_that_draws_keeps_ranks_equal(n):
    def work(world):
        params = made(n, [(5,)])
        trained(params, Trainer(params, Drawing(), world=world), world, range(2))
        return [data.asnumpy() for data in params[0].list_data()]

    replicas = [replica for of_rank in fake_mpi.run(3, work) for replica in of_rank]
    onp.testing.assert_equal(replicas, replicas[:1] * 3 * n)
