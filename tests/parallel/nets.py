"""The serial run on ``cpu(0)`` that every way to split a network must equal, what counts as equal, and networks.

``serial_run`` and ``run`` give the same arrays by name, of the plain run and of a strategy; ``wrong`` compares them.
"""

from functools import lru_cache
from itertools import chain

import numpy as onp
from hypothesis import Phase
from hypothesis import strategies as st

from mxdp.backend import autograd, mx, np, upload
from mxdp.layers import LENET, BatchNorm, Conv, Dense, Pool, Relu, Residual, forward, init
from mxdp.parallel.pipeline import Pipeline
from mxdp.plans.partition import bounds
from mxdp.scratch import cross_entropy, sgd

LR, STEPS = 0.1, 3
TOLERANCE = {"float32": 2e-5, "float64": 1e-9}
"""Of the largest number of the same kind in the same layer: a bias before a batch normalisation has a gradient of
roundings alone, which are those of terms as large as the weight's.

A float32 addition rounds by at most 2**-24. The longest sums are those of a convolution's weight: for LeNet 6 x 26 x 26
terms, whose roundings add up to 64 x 6e-8 = 4e-6 of their sizes. Terms cancel, so the sum is a few times smaller."""


def example(net, input_shape, samples, dtype="float32"):
    """(params, X, y) for a test: random pictures and labels, on the host."""
    random = onp.random.RandomState(1)
    X = random.uniform(-1, 1, (samples, *input_shape)).astype(dtype)
    return init(net, input_shape, 0, dtype), X, random.randint(0, 10, samples)


def serial_run(net, params, X, y, pieces=None, steps=STEPS):
    """Plain MXNet on ``cpu(0)``: the pieces of the batch one after the other, their gradients summed by NumPy."""
    replica = [[param.copyto(mx.cpu(0)) for param in layer] for layer in params]
    flat = list(chain(*replica))
    for param in flat:
        param.attach_grad()
    parts = [(upload(X[a:b], mx.cpu(0)), np.array(y[a:b])) for a, b in pieces or [(0, len(X))]]
    made = {"scores": onp.concatenate([forward(net, x, replica).asnumpy() for x, _ in parts])}
    for step in range(steps):
        losses, gradients = [], []
        for part, labels in parts:
            with autograd.record():
                losses.append(cross_entropy(forward(net, part, replica), labels))
            losses[-1].backward()
            gradients.append([param.grad.asnumpy() for param in flat])
        for param, same in zip(flat, zip(*gradients)):
            param.grad[:] = np.array(sum(same))
        if step == 0:
            made["losses"] = onp.concatenate([loss.asnumpy() for loss in losses])
            made.update(named("gradients", [[param.grad for param in layer] for layer in replica]))
        sgd(flat, LR, len(X))
    return {**made, **named("params", replica)}


def unsteady(net, params, X, y, pieces, tolerance=None):
    """Whether the serial run itself is another where X is rounded otherwise: a relu at zero, two maxima of one
    pooling, or a gradient that is all rounding. It is so in one of 3,000 drawn cases."""
    rounded = X * (1 + 1e-14 * onp.random.RandomState(2).uniform(-1, 1, X.shape))
    return bool(wrong(serial_run(net, params, rounded, y, pieces), serial_run(net, params, X, y, pieces), tolerance))


def run(strategy, X, y, steps=STEPS):
    """The same of a :class:`mxdp.parallel.strategy.Strategy`. What it took and returned is overwritten at once."""

    def passed(method, *arrays):
        given = [array.copy() for array in arrays]
        result = method(*given)
        for array in given:
            array[:] = -1
        return result

    made = {"scores": taken(passed(strategy.scores, X)), "losses": taken(passed(strategy.step, X, y))}
    made.update(named("gradients", strategy.gradients(), taken))
    strategy.params()[-1][-1][:] = onp.nan
    strategy.update(LR, len(X))
    for _ in range(steps - 1):
        passed(strategy.step, X, y)
        strategy.update(LR, len(X))
    return {**made, **named("params", strategy.params(), taken)}


def taken(array):
    """The numbers of what a strategy returned, which belongs to the caller by now."""
    numbers = array.asnumpy()
    array[()] = onp.nan
    return numbers


def named(kind, layers, numbers=lambda array: array.asnumpy()):
    names = {}
    for number, layer in enumerate(layers):
        for place, array in enumerate(layer):
            names[f"{kind} {number}.{place}"] = numbers(array)
    return names


def wrong(actual, expected, tolerance=None):
    """The names of the arrays that differ by more than ``tolerance`` (default: that of their dtype), as a share of the
    largest number of that kind in its layer; or have another shape or dtype, or a number that is not finite."""
    assert list(actual) == list(expected), "laid out otherwise"
    limit = tolerance or TOLERANCE[str(expected["scores"].dtype)]
    found = []
    for name, right in expected.items():
        alike = [array for other, array in expected.items() if other.split(".")[0] == name.split(".")[0]]
        scale = max(abs(array).max() for array in alike)
        array = actual[name]
        fits = (array.shape, array.dtype) == (right.shape, right.dtype)
        if not fits or not abs(array.astype("float64") - right).max() <= limit * scale:
            found.append(name)
    return found


STACK = (
    Conv(8, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Conv(16, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Dense(10),
)  # fmt: skip
"""The slides' stack of convolution, batch normalisation, relu and pooling, for images of any size."""

NETS = {"lenet": (LENET, (1, 28, 28)), "stack": (STACK, (3, 17, 19))}
CUTS = {"lenet": [(), (3,), (3, 6), (1, 3, 6)], "stack": [(), (4,), (2, 6), (1, 4, 8)]}
"""Into 1, 2, 3 and 4 stages."""
SAMPLES = 7
"""Uneven over 2, 3 and 4 devices or micro-batches."""


UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Of examples that take a tenth of a second: to shrink one would take minutes."""


@st.composite
def drawn_nets(draw, residual=False):
    """(net, input shape): unlike sides, at most one stride, 4 outputs or more. Layer 0 may have no parameters."""
    shape = draw(st.integers(1, 3)), draw(st.integers(12, 17)), draw(st.integers(12, 17))
    kinds = ["conv", "pool", "relu", "norm", *["residual"] * residual]
    net = []
    strides = 2  # the largest that is left
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        kernel = draw(st.integers(1, 3))
        stride = draw(st.integers(1, strides))
        strides = min(strides, 3 - stride)
        padding = draw(st.integers(0, kernel // 2))
        if kind == "conv":
            net += [Conv(draw(st.integers(4, 6)), kernel, stride, padding)]
        elif kind == "pool":
            net += [Pool(kernel, stride, padding, draw(st.sampled_from(["max", "avg"])))]
        elif kind == "residual":
            channels = draw(st.integers(2, 3))
            body = (Conv(channels, 3, stride, 1), BatchNorm(), Relu(), Conv(channels, 1), BatchNorm())
            net += [Residual(body, (Conv(channels, 1, stride),)), Residual((Conv(channels, 3, padding=1), BatchNorm()))]
        else:
            # Where nothing but another normalisation follows, a scale has no effect, and its gradient is all rounding.
            net += [BatchNorm()] * (kind == "norm") + [Relu()]
    for units in draw(st.lists(st.integers(4, 9), max_size=3)):
        net += [Dense(units), *[Relu()] * draw(st.integers(0, 1))]
    return (*net, Dense(10)), shape


def devices(n):
    return [mx.cpu(number) for number in range(n)]


@lru_cache(maxsize=None)
def prepared(name):
    """(params, X, y)."""
    return example(*NETS[name], SAMPLES)


@lru_cache(maxsize=None)
def serial(name, micro_batches=1):
    """(net, input_shape, params, X, y, serial run)."""
    params, X, y = prepared(name)
    net, shape = NETS[name]
    return net, shape, params, X, y, serial_run(net, params, X, y, bounds(SAMPLES, micro_batches))


def pipe(name, n=2, micro_batches=1, schedule="gpipe"):
    net, shape = NETS[name]
    return Pipeline(net, prepared(name)[0], shape, devices(n), micro_batches, schedule, CUTS[name][n - 1])
