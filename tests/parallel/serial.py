"""The serial run on ``cpu(0)`` that every way to split a network must equal, and what counts as equal.

``serial_run`` and ``run`` give the same record, of the plain run and of a strategy; ``assert_equal`` compares two.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Tuple

import numpy as onp

from mxdp.backend import HostArray, autograd, mx, np, upload
from mxdp.layers import forward, init
from mxdp.plans.partition import bounds
from mxdp.scratch import cross_entropy, sgd

LR, STEPS = 0.1, 3

TOLERANCE = {"float32": 2e-5, "float64": 1e-9}
"""Of the largest number of the same kind in the same layer.

A split run adds the same terms in another order. Each float32 addition rounds by at most 2**-24 = 6e-8 of its partial
sum. The longest sums here are those of a convolution's weight: a term for each sample and place, 6 x 26 x 26 = 4056 for
LeNet; roundings of either sign add up as their square root, 64, to 4e-6 of the sum of the terms' sizes. Terms cancel,
so the sum itself is smaller than that by a few times: 2e-5. (Float64: 4e-14, far within 1e-9.)

Of the same *layer*, since a bias before a batch normalisation has no effect: its gradient is zero but for roundings,
which are those of terms as large as the weight's.
"""


@dataclass
class Run:
    """What a few steps on one batch gave. ``scores`` are from before the first step, ``losses`` and ``gradients`` from
    the first, ``params`` from after the last. Gradients and parameters: a list a layer."""

    scores: HostArray
    losses: HostArray
    gradients: List[List[HostArray]]
    params: List[List[HostArray]]


def example(net: Any, input_shape: Any, samples: int, dtype: str = "float32") -> Any:
    """(params, X, y) for a test: random pictures and labels, on the host."""
    random = onp.random.RandomState(1)
    X = random.uniform(-1, 1, (samples, *input_shape)).astype(dtype)
    return init(net, input_shape, 0, dtype), X, random.randint(0, 10, samples)


def serial_run(
    net: Any, params: Any, X: HostArray, y: HostArray, lr: float = LR, steps: int = STEPS, micro_batches: int = 1
) -> Run:
    """Plain MXNet on ``cpu(0)``: the micro-batches one after the other, their gradients summed by NumPy."""
    replica = [[param.copyto(mx.cpu(0)) for param in layer] for layer in params]
    flat = [param for layer in replica for param in layer]
    for param in flat:
        param.attach_grad()
    pieces = bounds(len(X), micro_batches)
    scores = [forward(net, upload(X[start:stop], mx.cpu(0)), replica).asnumpy() for start, stop in pieces]
    losses, gradients = [], []
    for step in range(steps):
        sums = [onp.zeros(param.shape, dtype=param.dtype) for param in flat]
        for start, stop in pieces:
            with autograd.record():
                loss = cross_entropy(forward(net, upload(X[start:stop], mx.cpu(0)), replica), np.array(y[start:stop]))
            loss.backward()
            sums = [total + param.grad.asnumpy() for total, param in zip(sums, flat)]
            losses += [loss.asnumpy()] if step == 0 else []
        for param, total in zip(flat, sums):
            param.grad[:] = np.array(total)
        if step == 0:
            gradients = [[param.grad.asnumpy() for param in layer] for layer in replica]
        sgd(flat, lr, len(X))
    after = [[param.asnumpy() for param in layer] for layer in replica]
    return Run(onp.concatenate(scores), onp.concatenate(losses), gradients, after)


def run(strategy: Any, X: HostArray, y: HostArray, lr: float = LR, steps: int = STEPS) -> Run:
    """The same of a :class:`mxdp.parallel.strategy.Strategy`."""
    scores = strategy.scores(X).asnumpy()
    losses = strategy.step(X, y).asnumpy()
    gradients = to_host(strategy.gradients())
    strategy.update(lr, len(X))
    for _ in range(steps - 1):
        strategy.step(X, y)
        strategy.update(lr, len(X))
    return Run(scores, losses, gradients, to_host(strategy.params()))


def to_host(layers: Any) -> List[List[HostArray]]:
    return [[array.asnumpy() for array in layer] for layer in layers]


def differences(actual: Run, expected: Run) -> Dict[str, float]:
    """For every array its largest difference, as a share of the largest number of that kind in its layer; infinite
    where it has another shape or dtype, or a number that is not finite."""
    return {name: _difference(*pair, scale) for name, pair, scale in _pairs(actual, expected)}


def wrong(actual: Run, expected: Run, tolerance: Any = None) -> List[str]:
    """The names of the arrays that differ by more than ``tolerance`` (default: that of their dtype)."""
    limit = TOLERANCE[str(expected.scores.dtype)] if tolerance is None else tolerance
    return [name for name, difference in differences(actual, expected).items() if not difference <= limit]


def assert_equal(actual: Run, expected: Run, tolerance: Any = None) -> None:
    """Losses, scores, each gradient and each parameter."""
    by_name = differences(actual, expected)
    assert {name: by_name[name] for name in wrong(actual, expected, tolerance)} == {}


def _pairs(actual: Run, expected: Run) -> Iterator[Tuple[str, Tuple[Any, Any], float]]:
    for kind in ("scores", "losses"):
        pair = getattr(actual, kind), getattr(expected, kind)
        yield kind, pair, float(onp.abs(pair[1]).max())
    for kind in ("gradients", "params"):
        a, b = getattr(actual, kind), getattr(expected, kind)
        assert [len(layer) for layer in a] == [len(layer) for layer in b], f"{kind} are laid out otherwise"
        for number, (left, right) in enumerate(zip(a, b)):
            scale = max((float(onp.abs(array).max()) for array in right), default=0.0)
            for place, pair in enumerate(zip(left, right)):
                yield f"{kind} {number}.{place}", pair, scale


def _difference(actual: Any, expected: Any, scale: float) -> float:
    if actual.shape != expected.shape or actual.dtype != expected.dtype or not onp.isfinite(actual).all():
        return float("inf")
    return float(onp.abs(actual.astype("float64") - expected.astype("float64")).max()) / scale
