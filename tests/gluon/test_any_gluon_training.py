"""Any training by ``mxdp.Trainer`` does what ``mx.optimizer`` does with sums. (By gluon's own: ``test_trainer.py``.)

The oracle is apart from mxdp and from gluon's trainers: NumPy arrays for the gradients of each device, and MXNet's
updater, which updates one array for all devices. Gradients are whole numbers, so sums are exact in any order, and all
is compared bit for bit after each step: every parameter and every gradient on every device.
"""

from __future__ import annotations

import copy
from contextlib import nullcontext
from itertools import chain
from typing import Any, Dict, FrozenSet, List, NamedTuple, Tuple

import numpy as onp
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from small_training import NAMES, devices, like

from mxdp.backend import autograd, gluon, mx
from mxdp.gluon.bucketed import arrays_of
from mxdp.gluon.trainer import Trainer
from mxdp.gluon.updater import ELEMENTWISE, mapped

SHAPES = [(3, 5), (5,), (2, 3, 2), (1,), (130, 130), (7,), (61,), (2, 2), (4,), (9,), (3, 1), (6,), (2,)]
RATE = 0.125
OPTIMIZERS = [(name, {"momentum": 0.5}) for name in ("SGD", "NAG", "Signum", "LARS", "LBSGD")]
OPTIMIZERS += [(name, {}) for name in (*ELEMENTWISE, "LARS", "Nadam", "LAMB", "LBSGD")]
CASTABLE = ("SGD", "NAG", "Signum", "Adam", "Adamax", "FTML", "Nadam", "DCASGD")
"""MXNet's others have states in float32 alone."""
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
"""To explain a failure takes minutes."""
STEP, HALVES, SUM = "step", "allreduce_grads and update", "allreduce_grads alone"
CHANGES = ["", "", "cast", "initialise", "move", "add", "freeze"]


class Step(NamedTuple):
    samples: Tuple[int, ...]  # of its micro-batches; all but the last inside no_sync
    unused: FrozenSet[int]
    how: str
    change: str
    which: int  # of the parameters is changed
    late: bool  # the change comes between backward and the step
    ignore: bool


class Training(NamedTuple):
    places: Tuple[int, int]  # numbers of devices, before and after a move
    optimizer: Tuple[str, Dict[str, Any]]
    shards: bool
    kvstore: str
    bucket_mb: float
    parameters: int
    steps: List[Step]


@st.composite
def trainings(draw, optimizers=OPTIMIZERS):
    name, options = draw(st.sampled_from(optimizers))
    options = {**options, "learning_rate": RATE, "wd": draw(st.sampled_from([0, 0.05]))}
    for more in ({"clip_gradient": 0.5}, {"rescale_grad": 0.5}):
        options.update(draw(st.sampled_from([{}, more])))
    if draw(st.booleans()):
        options["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(step=2, factor=0.5, base_lr=RATE)
    parameters = draw(st.integers(1, len(SHAPES)))
    number = st.integers(0, parameters - 1)
    steps = st.builds(
        Step,
        st.one_of(st.tuples(st.integers(1, 6)), st.tuples(*[st.integers(1, 4)] * 3)),
        st.frozensets(number, max_size=2),
        st.sampled_from([STEP, STEP, HALVES, SUM]),
        st.sampled_from(CHANGES),
        number,
        st.booleans(),
        st.booleans(),
    )
    return Training(
        draw(st.tuples(*[st.integers(1, 4)] * 2)),
        (name, options),
        draw(st.booleans()),
        draw(st.sampled_from(NAMES)),
        draw(st.sampled_from([25, 1e-4])),
        parameters,
        draw(st.lists(steps, min_size=2, max_size=6)),
    )


def possible(training):
    """The training without what is refused."""
    name, options = training.optimizer
    steps = training.steps
    stateless = not options.get("momentum") and name in ("SGD", "NAG", "Signum")
    shards = training.shards and name in ELEMENTWISE and not stateless
    if name not in CASTABLE:
        steps = [step._replace(change="") if step.change == "cast" else step for step in steps]
    if shards:
        steps = [step._replace(how=STEP) for step in steps]
    places = training.places
    if any(step.change == "move" for step in steps):  # gluon's mean of three devices rounds
        places = tuple(4 if n == 3 else n for n in places)
    return training._replace(shards=shards, steps=steps, places=places)


def slope(shape, number, sample):
    """The gradient of one sample: whole numbers that depend on all arguments."""
    return (onp.arange(int(onp.prod(shape))).reshape(shape) % 5 + 2 * (sample % 7) - number).astype("float64")


class Oracle:
    """One array for each parameter, and a gradient for each device."""

    def __init__(self, training, n):
        self.n = n
        self.shapes = SHAPES[: training.parameters]
        self.weights = [mx.nd.array(start(shape), dtype="float32") for shape in self.shapes]
        self.requests = ["write"] * len(self.shapes)
        name, options = training.optimizer
        self.optimizer = mx.optimizer.create(name, **copy.deepcopy(options))
        self.scale = self.optimizer.rescale_grad
        self.optimizer.set_lr_mult({0: 0.5})
        self.optimizer.set_wd_mult({len(self.shapes) - 1: 2.0})
        self.updater = mx.optimizer.get_updater(self.optimizer)
        self.gradients = {}
        self.fresh = {}
        self.make_gradients(range(len(self.shapes)))

    def make_gradients(self, numbers):
        for number in numbers:
            self.gradients[number] = [onp.zeros(self.shapes[number])] * self.n
            self.fresh[number] = [False] * self.n

    def begin_adding(self):
        for number, arrays in self.gradients.items():
            if self.requests[number] == "write":
                self.gradients[number] = [onp.zeros_like(array) for array in arrays]

    def backward(self, shards, unused, adding):
        for device, samples in enumerate(shards):
            for number, shape in enumerate(self.shapes):
                if number not in unused and self.requests[number] != "null":
                    new = sum(slope(shape, number, sample) for sample in samples)
                    if adding or self.requests[number] == "add":
                        new = self.gradients[number][device] + new
                    self.gradients[number][device] = new
                    self.fresh[number][device] = True

    def sum(self):
        """The sums; and which parameters a device has used."""
        totals = {}
        for number, arrays in self.gradients.items():
            counted = [
                array for array, fresh in zip(arrays, self.fresh[number]) if fresh or self.requests[number] == "add"
            ]
            totals[number] = sum(counted, onp.zeros(self.shapes[number]))
        used = [number for number in totals if any(self.fresh[number]) and self.requests[number] != "null"]
        self.fresh = {number: [False] * self.n for number in self.fresh}
        return totals, sorted(used)

    def hand_back(self, totals):
        for number, total in totals.items():
            if self.requests[number] != "null":
                self.gradients[number] = [total] * self.n

    def update(self, totals, used, batch_size):
        self.optimizer.rescale_grad = self.scale / batch_size
        arrays = [mx.nd.array(totals[number], dtype=self.weights[number].dtype) for number in used]
        weights = [self.weights[number] for number in used]
        if self.n == 1:  # gluon then gives MXNet several at a time
            if used:
                self.updater(used, arrays, weights)
            for number, array in zip(used, arrays):  # AdaDelta writes into it
                self.gradients[number] = [array.asnumpy()]
            return
        for row in zip(used, arrays, weights):
            self.updater(*row)

    def change(self, step, places):
        """As :func:`change` does."""
        which = step.which
        if step.change == "cast":
            kind = other_kind(self.weights[which])
            self.weights[which] = self.weights[which].astype(kind)
            states = self.updater.states
            if which in states:
                states[which] = mapped(states[which], lambda x: x.astype(kind))
            self.fresh[which] = [False] * self.n
        elif step.change == "initialise":
            self.weights[which][()] = 0
            self.make_gradients([which])
        elif step.change == "move":
            self.n = sum(places) - self.n
            self.make_gradients(range(len(self.shapes)))
        elif step.change:
            self.requests[which] = REQUESTS[step.change]
            self.make_gradients([which])


REQUESTS = {"add": "add", "freeze": "null"}


def other_kind(array):
    return "float64" if onp.dtype(array.dtype) == onp.float32 else "float32"  # a cast parameter has its name


def start(shape):
    return onp.arange(int(onp.prod(shape))).reshape(shape) % 7 / 4 - 0.5


def change(params, step, places):
    param = params[step.which]
    if step.change == "cast":
        param.cast(other_kind(param))
    elif step.change == "initialise":
        param.initialize(ctx=param.list_ctx(), init="zeros", force_reinit=True)
    elif step.change == "move":
        n = sum(places) - len(param.list_ctx())
        for each in params:
            each.reset_ctx(devices(n))
    elif step.change:
        param.grad_req = "null"
        param.grad_req = REQUESTS[step.change]


def backward(params, shards, unused):
    for device, samples in enumerate(shards):
        with autograd.record():
            losses = []
            for number, param in enumerate(params):
                if number not in unused and param.grad_req != "null":
                    data = param.list_data()[device]
                    slopes = sum(slope(param.shape, number, sample) for sample in samples)
                    losses.append((data * like(data, slopes)).sum())
        if losses:
            autograd.backward(losses)


def make_parameters(training):
    params = []
    for number, shape in enumerate(SHAPES[: training.parameters]):
        # gluon sorts by name, so this is the trainer's order, too.
        param = gluon.Parameter(f"p{number:02d}", shape=shape)
        param.initialize(ctx=devices(training.places[0]), init="ones")
        param.set_data(like(param.list_data()[0], start(shape)))
        params.append(param)
    params[0].lr_mult = 0.5
    params[-1].wd_mult = 2.0
    return params


def make_trainer(training, params):
    name, options = training.optimizer
    options = copy.deepcopy(options)
    given_ = list(params)
    more = dict(kvstore=training.kvstore, bucket_mb=training.bucket_mb, shard_optimizer=training.shards)
    trainer = Trainer(given_, name, options, **more)
    given_.clear()  # what was given may be changed
    options.clear()
    return trainer


def compare(params, oracle):
    for number, param in enumerate(params):
        assert len(param.list_data()) == oracle.n
        for data in param.list_data():
            onp.testing.assert_array_equal(data.asnumpy(), oracle.weights[number].asnumpy())
        if param.grad_req != "null":
            for grad, expected in zip(param.list_grad(), oracle.gradients[number]):
                onp.testing.assert_array_equal(grad.asnumpy(), expected)


def used_unlike_often(name, shards):
    """Adam's rate follows each parameter's own count, on any device. With a decay SGD rounds large ones otherwise."""
    used = [((5,), {0, 3}, ""), ((2,), {3, 7}, ""), ((4,), set(), "move"), ((6,), {10}, "")]
    steps = [Step(samples, frozenset(unused), STEP, change, 0, False, True) for samples, unused, change in used]
    optimizer = name, {"learning_rate": RATE, "wd": 0.05}
    return Training((4, 3), optimizer, shards, "mxdpring", 1e-4, 11, steps)


@settings(max_examples=50, phases=PHASES)
@example(used_unlike_often("Adam", False))
@example(used_unlike_often("Adam", True))
@example(used_unlike_often("SGD", False))
@given(trainings())
def test_any_training_is_what_mxnets_optimisers_make_of_sums(training):
    training = possible(training)
    params = make_parameters(training)
    trainer = make_trainer(training, params)
    oracle = Oracle(training, training.places[0])
    sample = 0
    for step in training.steps:
        if step.change and not step.late:
            change(params, step, training.places)
            oracle.change(step, training.places)
        for number, count in enumerate(step.samples):
            of_batch = onp.arange(sample, sample + count)
            sample += count
            shards = onp.array_split(of_batch, min(oracle.n, count))
            last = number == len(step.samples) - 1
            if number == 0 and not last:
                oracle.begin_adding()
            with nullcontext() if last else trainer.no_sync():
                backward(params, shards, step.unused)
            oracle.backward(shards, step.unused, adding=len(step.samples) > 1)
        lost = step.late and step.change != ""
        if lost and len(step.samples) == 1:  # else it is refused
            change(params, step, training.places)
            oracle.change(step, training.places)
        size = sum(step.samples)
        ignore = step.ignore or bool(step.unused) or lost
        totals, used = oracle.sum()
        arrays = arrays_of(params)
        if step.how == STEP:
            trainer.step(size, ignore_stale_grad=ignore)
        else:
            trainer.allreduce_grads()
            oracle.hand_back(totals)
        if step.how == HALVES:
            for param in params:
                if param.grad_req != "null":
                    for grad in param.list_grad():
                        grad *= 2
            totals = {number: 2 * total for number, total in totals.items()}
            oracle.hand_back(totals)
            trainer.update(size, ignore_stale_grad=ignore)
        if step.how != SUM:
            oracle.update(totals, used, size)
        compare(params, oracle)
        pairs = zip(chain(*arrays), chain(*arrays_of(params)))
        assert all(x is now for x, now in pairs), "gradients stay where gluon made them"
