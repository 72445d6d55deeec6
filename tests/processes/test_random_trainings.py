"""Random trainings by ``mxdp.Trainer`` end with the bits of gluon's default trainer on as many devices: plain and in
shards, on devices and ranks, saved by one and continued by another.

Gradients are whole numbers, so sums are exact in any order. A gradient that one device lacks counts as zero: the
reference multiplies the parameter by zero there. A parameter that no device has used is not updated: the reference
freezes it for a step. (gluon's default would take the gradients of an earlier step again.) A sum whose update is left
out, because it is not finite for instance, is nothing at all: the reference makes no step.

Names have counts of layers, as in a notebook whose cell was run several times, so gluon sorts them otherwise each time.
"""

from __future__ import annotations

import copy
import os
import tempfile
import warnings

import fake_mpi
import numpy as onp
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, gluon, mx
from mxdp.gluon import Trainer, states
from mxdp.gluon.bucketed import Replicas, ShardedReplicas
from mxdp.gluon.updater import ELEMENTWISE

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


OPTIMIZERS = {
    "sgd": [{}, {"momentum": 0.5}],
    "nag": [{"momentum": 0.5}],
    "signum": [{"momentum": 0.5}],
    "rmsprop": [{}, {"centered": True}],
    **{name: [{}] for name in ("adam", "adamax", "adagrad", "adadelta", "ftrl", "ftml", "dcasgd", "nadam", "lamb")},
    **{name: [{}] for name in ("lars", "lbsgd", "shrinking")},
}
STEP, HALVES, SKIP = "step", "allreduce_grads and update", "allreduce_grads alone"
STATELESS = [("sgd", {}), ("shrinking", {})]


@st.composite
def trainings(draw, names):
    """An optimiser with its options, and what is done: parts of a training, each by one trainer."""
    name = draw(st.sampled_from(names))
    options = draw(st.sampled_from(OPTIMIZERS[name]))
    cut = name in [known.lower() for known in ELEMENTWISE] and (name, options) not in STATELESS
    options = {**options, "learning_rate": 0.125, "wd": draw(st.sampled_from([0, 0.0625]))}
    if draw(st.booleans()):
        options["clip_gradient"] = 0.5
    if draw(st.booleans()):
        options["lr_scheduler"] = mx.lr_scheduler.PolyScheduler(max_update=12, base_lr=0.125, pwr=1)
    half = name in ("sgd", "nag", "adam") and draw(st.booleans())
    options.update({"multi_precision": True} if half else {})
    count = draw(st.integers(1, len(SHAPES)))
    number = st.integers(0, count - 1)
    parts = []
    for _ in range(draw(st.integers(1, 3))):
        ranks, n = draw(st.sampled_from([(1, 1), (1, 2), (1, 3), *([] if half else [(2, 1), (2, 2)])]))
        kind = draw(st.sampled_from(["plain", "shards", "gluon"] if cut else ["plain", "gluon"]))
        ranks, n = (1, ranks * n) if kind == "gluon" else (ranks, n)
        steps = []
        for _ in range(draw(st.integers(1, 4))):
            frozen, unused = draw(st.sets(number, max_size=1)), draw(st.sets(number, max_size=1))
            missing = draw(st.sets(st.tuples(number, st.integers(0, ranks * n - 1)), max_size=2))
            missing |= {(its, replica) for its in unused for replica in range(ranks * n)}
            how = draw(st.sampled_from([STEP, STEP, HALVES, SKIP] if kind != "shards" else [STEP]))
            steps.append((frozen, missing, how))
        parts.append((kind, ranks, n, steps, draw(st.sampled_from([0, 7, 8, 97]))))
    return name, options, "float16" if half else "float32", SHAPES[:count], parts


def slope(number, shape, replica, step):
    return (onp.arange(int(onp.prod(shape))).reshape(shape) % 3 + replica - 2 * number + step % 2) % 5 - 2.0


def train(kind, world, n, total, case, values, steps, first_count, done, file):
    """One part of a training on one rank: the parameters of each device. ``total``: replicas over all ranks."""
    name, options, dtype, shapes, _ = case
    params = [
        gluon.Parameter(f"dense{first_count + number}_weight", shape=shape, dtype=dtype)
        for number, shape in enumerate(shapes)
    ]
    by_name = {param.name: param for param in params}
    params[0].lr_mult, params[-1].wd_mult = 0.5, 2.0
    for param, value in zip(params, values):
        param.initialize(init="ones", ctx=[mx.cpu(device) for device in range(n)])
        param.set_data(mx.np.array(value, dtype=dtype))
    options = copy.deepcopy(options)
    if kind == "gluon":
        its = gluon.Trainer(by_name, name, options)
    else:
        its = Trainer(by_name, name, options, world=world, shard_optimizer=kind == "shards", bucket_mb=1e-4)
    if done:
        its.load_states(file)
    first = n * (world.rank if world else 0)
    for step, (frozen, missing, how) in enumerate(steps, done):
        if kind == "gluon" and how == SKIP:
            continue
        unused = {i for i in range(len(params)) if all((i, replica) in missing for replica in range(total))}
        for number, param in enumerate(params):
            off = number in frozen or (kind == "gluon" and number in unused)
            if param.grad_req != ("null" if off else "write"):
                param.grad_req = "null" if off else "write"
        for device in range(n):
            with autograd.record():
                losses = []
                for number, param in enumerate(params):
                    data, left_out = param.list_data()[device], (number, first + device) in missing
                    if param.grad_req == "write" and (kind == "gluon" or not left_out):
                        slopes = slope(number, param.shape, first + device, step) * (not left_out)
                        losses.append((data * mx.np.array(slopes, dtype=dtype, ctx=data.ctx)).sum())
            if losses:
                autograd.backward(losses)
        if kind == "gluon" or how == STEP:
            if kind != "gluon" or any(param.grad_req == "write" for param in params):
                its.step(4, ignore_stale_grad=True)
            continue
        its.allreduce_grads()
        if how == HALVES:
            its.update(4, ignore_stale_grad=True)
    for param in params:
        if param.grad_req == "null":
            param.grad_req = "write"
    if kind == "shards" or not world or world.rank == 0:
        its.save_states(file)
    return [[data.asnumpy() for data in param.list_data()] for param in params]


def run(case, by_gluon):
    """All parts; returns the parameters on each replica after each part."""
    values, done, results = [onp.ones(shape) for shape in case[3]], 0, []
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = os.path.join(folder, "states")
        # In another order, schedules and numbers for all parameters would have other values; and gluon's own trainer
        # takes states by their place in the sorted list.
        sortable = all(kind != "gluon" for kind, *_ in case[4]) and "lr_scheduler" not in case[1]
        sortable = sortable and case[0] in [known.lower() for known in ELEMENTWISE]
        for kind, ranks, n, steps, first_count in case[4]:
            kind, ranks, n = ("gluon", 1, ranks * n) if by_gluon else (kind, ranks, n)
            first_count = first_count if sortable and not by_gluon else 0
            given_ = (n, ranks * n, case, values, steps, first_count, done, file)
            if ranks == 1:
                replicas = [train(kind, None, *given_)]
            else:
                replicas = fake_mpi.run(ranks, lambda world, kind=kind, rest=given_: train(kind, world, *rest))
            values = [arrays[0] for arrays in replicas[0]]
            results.append([array for arrays in zip(*replicas) for devices in arrays for array in devices])
            done += len(steps)
    return results


EXAMPLES = int(os.environ.get("MXDP_TRAININGS", 60))
"""Of one to three trainings each. The broken trainers below are mostly found within a few; they may take many more."""


def check(case):
    expected, actual = run(case, True), run(case, False)
    for part, other in zip(actual, expected):
        assert len(part) == len(other)
        for array, its in zip(part, other):
            onp.testing.assert_array_equal(array, its)


def randomly(function, names, examples=EXAMPLES, **options):
    return settings(max_examples=examples, **options)(given(trainings(names))(function))


test_random_trainings_have_the_bits_of_gluons_default_trainer = randomly(check, sorted(OPTIMIZERS))


@pytest.mark.parametrize(
    ("where", "name", "broken"),
    [(ShardedReplicas, "states", lambda self, updater: {}), (Replicas, "spread", lambda self, numbers: None)],
)
def test_a_broken_trainer_is_found(where, name, broken, monkeypatch):
    monkeypatch.setattr(where, name, broken)
    with pytest.raises((AssertionError, ValueError)):
        randomly(check, ["adam"], 20 * EXAMPLES, phases=[Phase.generate], report_multiple_bugs=False)()


def test_states_that_go_to_another_parameter_are_found(monkeypatch):
    """Where gluon sorts the names otherwise: dense10 before dense7."""
    steps = [(set(), set(), STEP)] * 2
    case = ("adam", {"learning_rate": 0.125}, "float32", SHAPES, [("plain", 1, 1, steps, count) for count in (0, 7)])
    check(case)
    monkeypatch.setattr(states, "_renumbered", lambda its, optimizer, known, names: its)
    with pytest.raises((AssertionError, ValueError)):
        check(case)
