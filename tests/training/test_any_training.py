"""Any training by any functional path equals NumPy's SGD on one device: with any sum, on up to four devices, though
steps skip layers, or have fewer samples than devices. (``test_train.py`` continues on other devices.)

The oracle has new arrays for each step's gradients, by MXNet's autograd: none can be left from the step before. The
width of a batch says which layers a step skips, so that a recorded network skips them, too.
"""

from __future__ import annotations

import math
from functools import partial
from typing import List, NamedTuple, Tuple

import numpy as onp
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, devices, np, npx
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.scratch import cross_entropy, get_params, in_sync, naive_allreduce, sgd, split_batch, train_batch
from mxdp.training import update
from mxdp.training.step import TrainStep
from mxdp.training.update import KEPT, ROOM, Update, prepare_update

WIDTH, CLASSES, LR = 4, 3, 0.25
LARGE = (WIDTH, 4100)
"""A parameter that is updated by a call alone."""
PHASES = [Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink]
"""To explain a failure takes minutes."""
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
    run_ahead: float
    speeds: Tuple[float, ...]
    steps: List[Step]
    momentum: float
    biases: int
    dtypes: Tuple[str, str]
    tied: bool
    large: bool


@st.composite
def trainings(draw):
    """What only some paths can: only a step's own update has a momentum, and the paths alone treat each bias alone."""
    paths = draw(st.sampled_from([PATHS, PATHS, ("TrainStep", "loop"), *[(path,) for path in PATHS]]))
    alone = set(paths) & set(ALONE)
    size = st.sampled_from([1, 1, 2, 3, 6])  # also fewer than devices
    last = st.sampled_from([0, 1, 1, 2, 3, 6])
    sizes = st.one_of(st.tuples(last), st.tuples(last), st.tuples(size, size, last))
    steps = st.builds(Step, sizes, st.integers(0, 3), st.sampled_from(paths), st.sampled_from(["", *ALONE]))
    return Training(
        draw(st.integers(1, 4)),
        draw(st.sampled_from(["auto", "ring", "naive", "shards"])),
        draw(st.sampled_from([0, 2, math.inf])),
        draw(st.tuples(*[st.sampled_from([1, 1, 2.5])] * 4)),
        draw(st.lists(steps, min_size=2, max_size=5)),
        draw(st.sampled_from([0.0, 0.0 if alone else 0.9])),
        draw(st.sampled_from([0, 1, 5] if alone else [0, 1, 5, 11, 62])),
        draw(st.tuples(*[st.sampled_from(["float32", "float64"])] * 2)),
        draw(st.booleans()),
        draw(st.booleans()),
    )


def start(training):
    random = onp.random.RandomState(0)
    second = LARGE if training.large else (WIDTH, WIDTH)
    shapes = [(WIDTH, WIDTH), second, (WIDTH, CLASSES), (2, 2), (0, 2), (3, 0, 1)]
    shapes += [(WIDTH,) if number else () for number in range(training.biases)]
    kinds = [training.dtypes[number % 2] for number in range(len(shapes))]
    return [onp.array(random.normal(size=shape), dtype=kind) for shape, kind in zip(shapes, kinds)]


def network(tied):
    def net(X, params):
        skipped = X.shape[1] - WIDTH
        layers, last, biases = params[:2], params[2], params[6:]  # the three between them are never used
        h, zero = X[:, :WIDTH], 0 * X.sum()  # in double precision, and so is what it is added to
        for number, weight in enumerate([*layers, layers[0]] if tied else layers):
            if not skipped >> number % 2 & 1:
                h = np.tanh(np.dot(h, weight[:, :WIDTH] + zero))
        for bias in biases[: len(biases) // 2] if skipped % 2 else biases:
            h = h + (0.1 * bias + zero)
        return np.dot(h, last + zero)

    return net


def sizes_of(step):
    """Of its micro-batches. A step of a part without samples is TrainStep's alone."""
    sizes = step.sizes[-1:] if step.path in ALONE else step.sizes
    return sizes if step.path == "TrainStep" else [*sizes[:-1], max(1, sizes[-1])]


def batches(training):
    """For each step, its micro-batches."""
    random = onp.random.RandomState(1)
    for step in training.steps:
        yield [
            (random.normal(size=(size, WIDTH + step.skipped)), random.randint(0, CLASSES, size).astype("int32"))
            for size in sizes_of(step)
        ]


def samples_of(micro_batches):
    return max(1, sum(len(X) for X, _ in micro_batches))


def serial(training):
    """The parameters, and the losses of the last micro-batch."""
    net = network(training.tied)
    params = start(training)
    momenta = [onp.zeros_like(param) for param in params]
    for micro_batches in batches(training):
        arrays = [np.array(param, dtype=param.dtype) for param in params]
        for array in arrays:
            array.attach_grad()
        with autograd.record():
            total = np.zeros((), dtype="float64")
            for X, y in micro_batches:
                scores = net(np.array(X, dtype="float64"), arrays)
                losses = -npx.pick(npx.log_softmax(scores), np.array(y))
                total = total + (losses.sum() if len(X) else 0)
        if sum(len(X) for X, _ in micro_batches):
            total.backward()
        for param, momentum, array in zip(params, momenta, arrays):
            momentum[...] = training.momentum * momentum - LR / samples_of(micro_batches) * array.grad.asnumpy()
            param += momentum
    return params, losses.asnumpy()


def backward(net, X, y, replicas, places):
    """A loop of one's own: no backward pass where there is no sample."""
    with autograd.record():
        shards = zip(*split_batch(X, y, places[: len(X)]), replicas)
        losses = [cross_entropy(net(X, params), y) for X, y, params in shards]
    autograd.backward(losses)
    return losses


def sum_by_hand(replicas):
    for same_param in zip(*replicas):
        naive_allreduce([param.grad for param in same_param])


def parallel(training):
    """As :func:`serial`, by mxdp."""
    net = network(training.tied)
    places = devices(training.devices, "cpu")
    replicas = [get_params([np.array(x, dtype=x.dtype) for x in start(training)], device) for device in places]
    for params in replicas:
        for param in params:
            param.grad[()] = 7  # which no backward pass has written
    sync = ShardedSync(replicas) if training.sync == "shards" else GradientSync(replicas, training.sync, 1e-3)
    options = dict(weights=training.speeds[: training.devices], run_ahead=training.run_ahead)
    step = TrainStep(replicas, places, LR, sync, net, momentum=training.momentum, **options)
    own = TrainStep(replicas, places, LR, partial(sum_by_hand, replicas), net, **options)
    losses = by_paths(training, net, replicas, places, sync, step, own)
    assert in_sync(replicas)
    return [param.asnumpy() for param in replicas[0]], losses


def by_paths(training, net, replicas, places, sync, step, own):
    """The losses of the last step."""

    def train_alone(path, X, y):
        if path == "train_batch":
            return train_batch(X, y, replicas, places, LR, net=net)
        return own(X, y)

    for (_, _, path, refused), micro_batches in zip(training.steps, batches(training)):
        *others, (X, y) = micro_batches
        samples = samples_of(micro_batches)
        for other in others:
            with sync.no_sync():
                backward(net, *other, replicas, places)
        if others and refused and len(X):
            with pytest.raises(RuntimeError, match=r"^no_sync has added up gradients of these replicas for another"):
                train_alone(refused, X, y)
        if path in ALONE:
            losses = train_alone(path, X, y)
        elif path == "TrainStep":
            losses = step(X, y, samples)
        else:
            losses = backward(net, X, y, replicas, places)
            sync()
            if training.momentum or training.sync == "shards":
                step.update(samples)
            else:
                for params in replicas:
                    sgd(params, LR, samples)
        X[...] = 7  # it is the caller's again, though the devices may not have begun
        y[...] = 0
    return onp.concatenate([shard.asnumpy() for shard in losses] or [[]])


def marks_of(momentum, first):
    """The second device has no sample in the second step: it must not add the first step's sum once more."""
    steps = [Step((4,), 0, first), Step((1,), 0, "loop")]
    return Training(2, "naive", 2, (1, 1, 1, 1), steps, momentum, 1, ("float32", "float64"), tied=False, large=False)


@settings(max_examples=40, phases=PHASES)
@example(marks_of(0.0, "train_batch"))
@example(marks_of(0.9, "loop"))
@given(trainings())
def test_any_training_equals_the_serial_run(training):
    tolerance = 1e-4 if "float32" in training.dtypes else 1e-9
    (replica, losses), (params, expected) = parallel(training), serial(training)
    onp.testing.assert_allclose(losses, expected, rtol=tolerance, atol=tolerance)
    for x, y in zip(replica, params):
        onp.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


LIMIT = 1 << 14
"""Elements of the smallest array that is updated by a call alone."""


@settings(max_examples=20)
@given(
    sizes=st.lists(st.sampled_from([1, 5, LIMIT - 1, LIMIT, LIMIT + 1]), min_size=1, max_size=4),
    more=st.sampled_from([0, ROOM - 2, ROOM, 2 * ROOM]),
    momentum=st.sampled_from([0.0, 0.5]),
)
def test_large_arrays_are_updated_by_a_call_alone_and_small_ones_together(sizes, more, momentum):
    """At most ``ROOM`` by one call."""
    sizes = [*sizes, *[2] * more]
    params = [np.ones(size) for size in sizes]
    gradients = [np.ones_like(param) for param in params]
    momenta = [2 * gradient for gradient in gradients] if momentum else ()
    made = []
    with pytest.MonkeyPatch.context() as patched:
        real = update.prepare
        patched.setattr(
            update, "prepare", lambda name, *a, **more: (made.append((name, more)), real(name, *a, **more))[1]
        )
        call = prepare_update(params, 0.5, gradients, momenta, momentum)
    call()
    assert all((param.asnumpy() == 0.5 + momentum * 2).all() for param in params)
    large = sum(size >= LIMIT for size in sizes)
    together = [min(ROOM, len(sizes) - large - start) for start in range(0, len(sizes) - large, ROOM)]
    name = "sgd_mom_update" if momentum else "sgd_update"
    assert [called for called, _ in made] == [name] * large + [f"multi_{name}"] * len(together)
    assert [more["num_weights"] for _, more in made[large:]] == together


def test_the_calls_for_the_last_batch_sizes_are_kept(monkeypatch):
    made = []
    monkeypatch.setattr(update, "prepare_update", lambda params, lr, *more: made.append(lr) or (lambda: None))
    replicas = [get_params([np.ones(3)], device) for device in devices(2, "cpu")]
    step = Update(GradientSync(replicas), 1.0)
    for samples in [*range(1, KEPT + 1), 1, KEPT + 1, 1, 3, 2, 3]:
        step(samples)
    assert made == [1 / samples for samples in [*range(1, KEPT + 1), KEPT + 1, 2] for _ in replicas]
