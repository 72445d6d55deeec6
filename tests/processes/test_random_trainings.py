"""Random trainings by ``mxdp.Trainer`` on devices of several ranks end with the bits of gluon's default trainer on as
many devices: plain and in shards, saved by one and continued by another. (Of one rank: tests/gluon.)

Gradients are whole numbers, so sums are exact in any order. A gradient that one device lacks counts as zero: the
reference multiplies the parameter by zero there. A parameter that no device has used is not updated: the reference
freezes it for a step. (gluon's default would take the gradients of an earlier step again.)
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


@mx.optimizer.register
class Shrinking(mx.optimizer.Optimizer):
    """Keeps a number for all parameters and devices."""

    def __init__(self, **options):
        super().__init__(**options)
        self.factor = 1.0

    def create_state(self, index, weight):
        return None

    def update(self, index, weight, grad, state):
        self._update_count(index)
        self.factor *= 0.875
        weight[:] -= self._get_lr(index) * self.factor * self.rescale_grad * grad


CUT = {"sgd": {"momentum": 0.5}, "rmsprop": {"centered": True}, "adam": {}, "ftml": {}, "dcasgd": {}}
"""Optimisers whose states may be cut into shards, and others."""
WHOLE = {"sgd": {}, "nadam": {}, "lars": {"momentum": 0.5}, "shrinking": {}}


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
        parts.append((cut and draw(st.booleans()), ranks, n, steps, draw(st.sampled_from([0, 7, 8, 97]))))
    return name, options, SHAPES[:count], cut, parts


def slope(number, shape, replica, step):
    return (onp.arange(int(onp.prod(shape))).reshape(shape) % 3 + replica - 2 * number + step % 2) % 5 - 2.0


def train(make, n, first, total, values, steps, first_count, done, file):
    """One part of a training on one rank: the parameters of each device. ``make``: the optimiser, its options, whether
    by gluon's trainer, or else the options of mxdp's. ``first``: of its replicas, among ``total`` over all ranks. Other
    ranks than 0 begin with other values."""
    params = [gluon.Parameter(f"dense{first_count + i}_weight", shape=value.shape) for i, value in enumerate(values)]
    by_name = {param.name: param for param in params}
    params[0].lr_mult, params[-1].wd_mult = 0.5, 2.0
    for param, value in zip(params, values):
        param.initialize(init="ones", ctx=[mx.cpu(device) for device in range(n)])
        param.set_data(mx.np.array(value + first))
    name, options, gluons = make[:3]
    its = gluon.Trainer(by_name, name, dict(options)) if gluons else Trainer(by_name, name, dict(options), **make[3])
    if done:
        its.load_states(file)
    for step, missing in enumerate(steps, done):
        for number, param in enumerate(params):
            unused = all((number, replica) in missing for replica in range(total))
            param.grad_req = "null" if gluons and unused else "write"
        for device in range(n):
            with autograd.record():
                losses = []
                for number, param in enumerate(params):
                    data, left_out = param.list_data()[device], (number, first + device) in missing
                    if param.grad_req == "write" and (gluons or not left_out):
                        slopes = slope(number, param.shape, first + device, step) * (not left_out)
                        losses.append((data * mx.np.array(slopes, ctx=data.ctx)).sum())
            if losses:
                autograd.backward(losses)
        if not gluons or any(param.grad_req == "write" for param in params):
            its.step(4, ignore_stale_grad=True)
    for param in params:
        param.grad_req = "write"
    if first == 0 or (not gluons and make[3]["shard_optimizer"]):
        its.save_states(file)
    return [[data.asnumpy() for data in param.list_data()] for param in params]


def run(case, by_gluon):
    """All parts; returns the parameters on each replica after each part. Names have counts of layers, as in a notebook
    whose cell was run several times, so gluon sorts them otherwise each time; its own trainer takes states by place."""
    name, options, shapes, cut, parts = case
    values, done, results = [onp.ones(shape) for shape in shapes], 0, []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = os.path.join(folder, "states")
        for shards, ranks, n, steps, first_count in parts:
            first_count = first_count if cut and not by_gluon else 0
            rest = (ranks * n, values, steps, first_count, done, file)

            def work(world, n=n, shards=shards, rest=rest):
                made = name, options, False, dict(world=world, shard_optimizer=shards, bucket_mb=1e-4)
                return train(made, n, n * (world.rank if world else 0), *rest)

            if by_gluon:
                replicas = [train((name, options, True), ranks * n, 0, *rest)]
            else:
                replicas = fake_mpi.run(ranks, work) if ranks > 1 else [work(None)]
            values = [arrays[0] for arrays in replicas[0]]
            results.append([array for arrays in zip(*replicas) for devices in arrays for array in devices])
            done += len(steps)
    return results


@settings(max_examples=25)
@given(trainings())
def test_random_trainings_have_the_bits_of_gluons_default_trainer(case):
    expected, actual = run(case, True), run(case, False)
    for part, other in zip(actual, expected):
        assert len(part) == len(other)
        for array, its in zip(part, other):
            onp.testing.assert_array_equal(array, its)
