"""Random trainings by every functional path, or by all in turns, equal the serial run, though steps skip layers, or
have few samples.

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
from mxdp.collectives.fresh import Fresh
from mxdp.collectives.shards import ShardedSync
from mxdp.scratch import cross_entropy, get_params, in_sync, naive_allreduce, sgd, split_batch, train_batch
from mxdp.training import TrainStep

WIDTH, CLASSES, LR = 4, 3, 0.25


PATHS = ("TrainStep", "train_batch", "loop", "own sum")
ALONE = ("train_batch", "own sum")
"""Paths of which ``no_sync`` knows nothing."""


class Step(NamedTuple):
    """``skipped``: a bit for each of two layers; an odd number skips the second half of the biases, too. ``refused``: a
    path that is tried before the last micro-batch, when gradients of the others wait for the sum."""

    sizes: Tuple[int, ...]  # of its micro-batches
    skipped: int
    path: str
    refused: str = ""


class Training(NamedTuple):
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
        devices=st.integers(1, 4),
        sync=st.sampled_from(["auto", "ring", "naive", "shards"]),
        momentum=st.sampled_from([0.0, 0.9]),
        biases=st.sampled_from([0, 1, 5, 61, 130]),
        dtypes=st.tuples(*[st.sampled_from(["float32", "float64"])] * 2),
        tied=st.booleans(),
        steps=st.lists(
            st.builds(Step, sizes, st.integers(0, 3), st.sampled_from(PATHS), st.sampled_from(["", *ALONE])),
            min_size=3,
            max_size=6,
        ),
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
            for size in (step.sizes[:1] if step.path in ALONE else step.sizes)
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
    sync = ShardedSync(replicas) if training.sync == "shards" else GradientSync(replicas, training.sync, 1e-3)
    step = TrainStep(replicas, devices, LR, sync, net, momentum=training.momentum)
    own = TrainStep(replicas, devices, LR, lambda: sum_by_hand(replicas), net)

    def train_alone(path, X, y):
        if path == "train_batch":
            train_batch(X, y, replicas, devices, LR, net=net)
        else:
            own(X, y)

    for (_, _, path, refused), micro_batches in zip(training.steps, batches(training)):
        *others, (X, y) = micro_batches
        samples = sum(len(X) for X, _ in micro_batches)
        for other in others:
            with sync.no_sync():
                backward(net, *other, replicas, devices)
        if others and refused:
            with pytest.raises(RuntimeError, match=r"^no_sync has added up gradients of these replicas for another"):
                train_alone(refused, X, y)
        if path in ALONE:
            train_alone(path, X, y)
        elif path == "TrainStep":
            step(X, y, samples)
        else:
            backward(net, X, y, replicas, devices)
            sync()
            if training.momentum or training.sync == "shards":
                step.update(samples)
            else:
                for params in replicas:
                    sgd(params, LR, samples)
    return replicas


def sum_by_hand(replicas):
    for same_param in zip(*replicas):
        naive_allreduce([param.grad for param in same_param])


def wrong(training):
    """The parameters that are not in sync or not the serial run's."""
    replicas = parallel(training)
    rounding = 1e-4 if "float32" in training.dtypes else 1e-9
    pairs = zip(replicas[0], serial(training))
    far = [
        number
        for number, (param, expected) in enumerate(pairs)
        if not onp.allclose(param.asnumpy(), expected, rtol=rounding, atol=rounding)
    ]
    return far if in_sync(replicas) else list(range(len(replicas[0])))


def by_path(training, path):
    """The training by one path, or by all in turns. Only a step's own update has a momentum."""
    if path != "in turns":
        training = training._replace(steps=[step._replace(path=path) for step in training.steps])
    if path in ("in turns", *ALONE):
        training = training._replace(momentum=0.0)
    if any(step.path in ALONE for step in training.steps):  # they treat each bias alone
        training = training._replace(biases=min(training.biases, 5))
    return training


DRAWN = settings(max_examples=16, derandomize=True, deadline=None, database=None, phases=[Phase.generate])


@pytest.mark.parametrize("path", [*PATHS, "in turns"])
@DRAWN
@given(trainings())
def test_any_training_equals_the_serial_run(path, training):
    assert wrong(by_path(training, path)) == []


def forgetful_sgd(params, lr, batch_size):
    """As MXNet's marks stay where the update is one's own."""
    for param in params:
        param -= lr / batch_size * param.grad


@pytest.mark.parametrize(
    ("broken", "first", "momentum"),
    [("sgd", "train_batch", 0.0), ("zero_stale", "loop", 0.0), ("use", "loop", 0.9)],  # with momentum, sgd isn't called
)
def test_each_keeper_of_the_marks_is_needed(broken, first, momentum, monkeypatch):
    """Without one of them the second device, which has no sample in the second step, adds the first step's sum."""
    steps = [Step((4,), 0, first), Step((1,), 0, "loop")]
    training = Training(2, "naive", momentum, biases=1, dtypes=("float32", "float64"), tied=False, steps=steps)
    assert wrong(training) == []
    if broken == "sgd":
        monkeypatch.setattr("mxdp.scratch.sgd", forgetful_sgd)
    else:
        monkeypatch.setattr(Fresh, broken, lambda self, *numbers: None)
    assert wrong(training)
