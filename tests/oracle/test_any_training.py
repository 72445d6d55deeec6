"""Random trainings by every functional path equal the serial run, though steps skip layers, or have few samples.

The width of a batch says which layers a step skips, so that a recorded network skips them, too. The serial run has new
arrays for each step's gradients: none can be left from the step before.
"""

from __future__ import annotations

from typing import List, NamedTuple, Tuple

import numpy as onp
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, mx, np
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.scratch import cross_entropy, get_params, in_sync, sgd, split_batch, train_batch
from mxdp.training import TrainStep
from mxdp.training.update import Update

WIDTH, CLASSES, LR = 4, 3, 0.25


class Step(NamedTuple):
    """``skipped``: a bit for each of two layers; an odd number skips the second half of the biases, too."""

    sizes: Tuple[int, ...]  # of its micro-batches
    skipped: int


class Training(NamedTuple):
    path: str
    devices: int
    sync: str
    momentum: float
    biases: int
    dtypes: Tuple[str, str]
    tied: bool
    steps: List[Step]


def trainings():
    size = st.integers(1, 6)
    sizes = st.one_of(st.tuples(size), st.tuples(size), st.tuples(size, size, size))
    return st.builds(
        Training,
        path=st.just(""),
        devices=st.integers(1, 4),
        sync=st.sampled_from(["auto", "ring", "naive", "shards"]),
        momentum=st.sampled_from([0.0, 0.9]),
        biases=st.sampled_from([0, 1, 5, 61, 130]),
        dtypes=st.tuples(*[st.sampled_from(["float32", "float64"])] * 2),
        tied=st.booleans(),
        steps=st.lists(st.builds(Step, sizes, st.integers(0, 3)), min_size=3, max_size=6),
    )


def start(training):
    random = onp.random.RandomState(0)
    shapes = [(WIDTH, WIDTH), (WIDTH, WIDTH), (WIDTH, CLASSES), (2, 2), *[(WIDTH,)] * training.biases]
    kinds = [training.dtypes[number % 2] for number in range(len(shapes))]
    return [np.array(random.normal(size=shape), dtype=kind) for shape, kind in zip(shapes, kinds)]


def network(tied):
    def net(X, params):
        skipped = X.shape[1] - WIDTH
        layers, last, biases = params[:2], params[2], params[4:]  # params[3] is never used
        h, zero = X[:, :WIDTH], 0 * X.sum()  # in double precision, and so is what it is added to
        for number, weight in enumerate([*layers, layers[0]] if tied else layers):
            if not skipped >> number % 2 & 1:
                h = np.tanh(np.dot(h, weight + zero))
        for bias in biases[: len(biases) // 2] if skipped % 2 else biases:
            h = h + (0.1 * bias + zero)
        return np.dot(h, last + zero)

    return net


def batches(training):
    """For each step, its micro-batches."""
    random = onp.random.RandomState(1)
    for step in training.steps:
        yield [
            (random.normal(size=(size, WIDTH + step.skipped)), random.randint(0, CLASSES, size).astype("int32"))
            for size in (step.sizes if training.path != "train_batch" else step.sizes[:1])
        ]


def serial(training):
    net, params = network(training.tied), [param.asnumpy() for param in start(training)]
    momenta = [onp.zeros_like(param) for param in params]
    for micro_batches in batches(training):
        arrays = get_params([np.array(param, dtype=param.dtype) for param in params], mx.cpu(0))
        with autograd.record():
            losses = [cross_entropy(net(np.array(X, dtype="float64"), arrays), np.array(y)) for X, y in micro_batches]
            total = sum(each.sum() for each in losses)
        total.backward()
        samples = sum(len(X) for X, _ in micro_batches)
        for param, momentum, array in zip(params, momenta, arrays):
            momentum[...] = training.momentum * momentum - LR / samples * array.grad.asnumpy()
            param += momentum
    return params


def backward(net, X, y, replicas, devices):
    """A loop of one's own: no backward pass where there is no sample."""
    with autograd.record():
        shards = zip(*split_batch(X, y, devices[: len(X)]), replicas)
        losses = [cross_entropy(net(X, params), y) for X, y, params in shards]
    autograd.backward(losses)


def parallel(training):
    net, devices = network(training.tied), [mx.cpu(number) for number in range(training.devices)]
    replicas = [get_params(start(training), device) for device in devices]
    if training.path == "train_batch":
        for ((X, y),) in batches(training):
            train_batch(X, y, replicas, devices, LR, net=net)
        return replicas
    sync = ShardedSync(replicas) if training.sync == "shards" else GradientSync(replicas, training.sync, 1e-3)
    step = TrainStep(replicas, devices, LR, sync, net, momentum=training.momentum)
    update = Update(replicas, LR, sync, training.momentum)
    for micro_batches in batches(training):
        *others, (X, y) = micro_batches
        samples = sum(len(X) for X, _ in micro_batches)
        for other in others:
            with sync.no_sync():
                backward(net, *other, replicas, devices)
        if training.path == "TrainStep":
            step(X, y, samples)
        else:
            backward(net, X, y, replicas, devices)
            sync()
            if training.momentum or training.sync == "shards":
                update(samples)
            else:
                for params in replicas:
                    sgd(params, LR, samples)
    return replicas


@pytest.mark.parametrize("path", ["TrainStep", "train_batch", "loop"])
@settings(max_examples=16, derandomize=True, deadline=None, database=None, phases=[Phase.generate])
@given(trainings())
def test_any_training_equals_the_serial_run(path, training):
    training = training._replace(path=path)
    if path == "train_batch":  # it has no momentum, and treats each bias alone
        training = training._replace(momentum=0.0, biases=min(training.biases, 5))
    replicas = parallel(training)
    assert in_sync(replicas)
    rounding = 1e-4 if "float32" in training.dtypes else 1e-9
    for param, expected in zip(replicas[0], serial(training)):
        onp.testing.assert_allclose(param.asnumpy(), expected, rtol=rounding, atol=rounding)
