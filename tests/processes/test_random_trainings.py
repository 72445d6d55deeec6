"""Random trainings by ``mxdp.Trainer`` on devices of several ranks end with the bits of MXNet's optimiser, given all
replicas' summed gradients: plain and in shards, saved by one and continued by another. (Of one rank: tests/gluon.)

Gradients are whole numbers, so sums are exact in any order. A gradient that one device lacks counts as zero. A
parameter that no device has used is not updated.
"""

from __future__ import annotations

import os
import tempfile
import warnings

import fake_mpi
import numpy as onp
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, gluon, mx
from mxdp.gluon import Trainer

SHAPES = [(3, 5), (5,), (2, 3, 2), (1,), (130, 130), (7,)]
CUT = {"sgd": {"momentum": 0.5}, "rmsprop": {"centered": True}, "adam": {}, "ftml": {}, "dcasgd": {}}
"""Optimisers whose states may be cut into shards, and others; nadam keeps a number for all parameters."""
WHOLE = {"sgd": {}, "nadam": {}, "lars": {"momentum": 0.5}}


@st.composite
def trainings(draw):
    """An optimiser with its options, and what is done: parts of a training, each by one trainer."""
    cut = draw(st.booleans())
    name, options = draw(st.sampled_from(sorted((CUT if cut else WHOLE).items(), key=str)))
    options = {**options, "learning_rate": 0.125, "wd": draw(st.sampled_from([0, 0.0625]))}
    count = draw(st.integers(1, len(SHAPES)))
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
    return name, options, SHAPES[:count], parts


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


def train(rank, n, steps, first_count, values, done, file, name, options, **more):
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
                return train(world.rank if world else 0, *given_, world=world, shard_optimizer=shards)

            replicas = fake_mpi.run(ranks, work) if ranks > 1 else [work(None)]
            for number, array in enumerate(expected):
                for its in (its for params in replicas for its in params[number]):
                    onp.testing.assert_array_equal(its, array)
            values, done = expected, done + len(steps)
