"""Exercises on a training step: replicas, accumulated gradients.

The network is a line, ``X w + b``, whose loss is half the squared error: its gradients are written down in one line.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.backend import NDArray
from mxdp.exercises.trial import Function, Hosts, Trial, Values
from mxdp.plans.partition import bounds

LR = 0.1


def loss(X: NDArray, y: NDArray, params: Sequence[NDArray]) -> NDArray:
    """Half the squared error of each sample (n,)."""
    w, b = params
    return ((X * w).sum(axis=1) + b - y) ** 2 / 2


def gradients(X: Any, y: Any, params: Sequence[Any]) -> Hosts:
    """Those of the summed :func:`loss`, in NumPy."""
    w, b = params
    error = X @ w + b - y
    return [error @ X, error.sum(keepdims=True)]


def _sgd(params: Sequence[Any], grads: Sequence[Any], divisor: float) -> Hosts:
    return [param - LR / divisor * grad for param, grad in zip(params, grads)]


def _batch(samples: int) -> Tuple[Any, Any, Hosts]:
    """Samples, labels and the first parameters: small whole numbers."""
    X = onp.array([[(3 * i) % 4, (i * i) % 3 + 1] for i in range(samples)], dtype="float32")
    y = onp.array([(2 * i) % 5 - 1 for i in range(samples)], dtype="float32")
    return X, y, [onp.array([1, 2], dtype="float32"), onp.array([1], dtype="float32")]


def _add(*some: Sequence[Any]) -> Hosts:
    return [sum(grads) for grads in zip(*some)]


def _params(values: Sequence[Any], device: Any) -> List[NDArray]:
    params = [backend.upload(value.astype("float32"), device) for value in values]
    for param in params:
        param.attach_grad()
    return params


def train_batch() -> Iterator[Trial]:
    """One step, or two, on replicas."""
    for title, samples, devices, steps in (
        ("4 samples, 1 device", 4, 1, 1),
        ("4 samples, 2 devices", 4, 2, 1),
        ("5 samples, 2 devices: shards of 3 and 2", 5, 2, 1),
        ("6 samples, 3 devices", 6, 3, 1),
        ("5 samples, 2 devices, two steps", 5, 2, 2),
    ):
        yield _train_batch(title, samples, devices, steps)


def _train_batch(title: str, samples: int, devices: int, steps: int) -> Trial:
    X, y, first = _batch(samples)
    shards = [(X[start:stop], y[start:stop]) for start, stop in bounds(samples, devices)]

    def after(step: Any) -> Values:
        """``step(replicas)`` gives the new ones."""
        replicas = [first] * devices
        for _ in range(steps):
            replicas = step(replicas)
        return _labelled(replicas)

    def grads(replicas: Sequence[Hosts]) -> List[Hosts]:
        return [gradients(*shard, params) for shard, params in zip(shards, replicas)]

    def divided(by: Any) -> Values:
        """The sum of all gradients, divided by ``by(number of own samples)``."""
        return after(
            lambda replicas: [
                _sgd(params, _add(*grads(replicas)), by(len(shard[0]))) for params, shard in zip(replicas, shards)
            ]
        )

    def mean_of_means(replicas: Sequence[Hosts]) -> List[Hosts]:
        means = [[grad / len(shard[0]) for grad in own] for own, shard in zip(grads(replicas), shards)]
        return [_sgd(params, _add(*means), devices) for params in replicas]

    mistakes = {
        "The parameters are as they were. Change them in place: `param -= lr / n * param.grad`.": after(
            lambda replicas: replicas
        ),
        "Each replica took the gradient of its own shard, so the replicas differ now. Sum the gradients of all devices "
        "before the update.": after(
            lambda replicas: [_sgd(params, own, samples) for params, own in zip(replicas, grads(replicas))]
        ),
        "The summed gradient is not divided: divide it by the number of samples in the batch.": divided(lambda _: 1),
        "The summed gradient is divided by the length of a shard. It is the sum over the whole batch: divide it by "
        "len(X), before X is split.": divided(lambda own: own),
        "The gradient is averaged twice: over the batch and over the devices. Sum over the devices.": divided(
            lambda _: samples * devices
        ),
        "That is the mean of the shards' means. With shards of different lengths it is not the batch's mean: sum, then "
        "divide once by the batch.": after(mean_of_means),
        "The step goes uphill: subtract the gradient.": divided(lambda _: -samples),
    }

    def run(function: Function) -> Values:
        contexts = backend.devices(devices, "cpu")
        replicas = [_params(first, context) for context in contexts]
        own = [list(params) for params in replicas]
        for _ in range(steps):
            arrays = [backend.upload(values, contexts[0]) for values in (X, y)]
            function(*arrays, replicas, contexts, LR, loss)
        return _labelled([[param.asnumpy() for param in params] for params in own])

    given = {"X": X, "y": y, "w": first[0], "b": first[1], "lr": LR, "devices": devices}
    return Trial(title, given, divided(lambda _: samples), run, mistakes)


def _labelled(replicas: Sequence[Sequence[Any]]) -> Values:
    return {
        f"{name} on cpu({device})": value for device, params in enumerate(replicas) for name, value in zip("wb", params)
    }


def accumulate() -> Iterator[Trial]:
    """One update, or two, from several micro-batches."""
    for title, cuts, steps in (
        ("1 micro-batch of 4 samples", [], 1),
        ("2 micro-batches of 2 samples", [2], 1),
        ("3 micro-batches of 3, 2 and 1 samples", [3, 5], 1),
        ("2 micro-batches of 2 samples, two steps", [2], 2),
    ):
        yield _accumulate(title, [0, *cuts, 6 if len(cuts) == 2 else 4], steps)


def _accumulate(title: str, ends: Sequence[int], steps: int) -> Trial:
    samples = ends[-1]
    X, y, first = _batch(samples)
    parts = [(X[start:stop], y[start:stop]) for start, stop in zip(ends, ends[1:])]
    last = parts[-1]

    def after(step: Any) -> Values:
        """``step(params)`` gives the new ones."""
        params = first
        for _ in range(steps):
            params = step(params)
        return _labelled([params])

    def one_by_one(params: Hosts, whole: bool) -> Hosts:
        for part in parts:
            params = _sgd(params, gradients(*part, params), samples if whole else len(part[0]))
        return params

    def means(params: Hosts) -> Hosts:
        return _add(*[[grad / len(part[0]) for grad in gradients(*part, params)] for part in parts])

    kept: Dict[str, Hosts] = {}

    def never_zeroed(params: Hosts) -> Hosts:
        kept["sum"] = _add(*([kept["sum"]] if kept else []), gradients(X, y, params))
        return _sgd(params, kept["sum"], samples)

    hints = {
        "The parameters are as they were. Change them in place: `param -= lr / n * param.grad`.": after(lambda it: it),
        "Only the last micro-batch counts: each backward overwrites `param.grad`. Add the gradients up yourself, or "
        "attach_grad(grad_req='add').": after(lambda it: _sgd(it, gradients(*last, it), samples)),
        "The last micro-batch counts twice: the sum is `param.grad` itself, which backward overwrites. Keep a copy: "
        "`param.grad.copy()`.": after(lambda it: _sgd(it, gradients(*last, it), samples / 2)),
        "The parameters change after each micro-batch: the later gradients are those of other parameters. Update once, "
        "after the last.": after(lambda it: one_by_one(it, whole=True)),
        "The parameters change after each micro-batch: that is ordinary SGD with small batches. Update once, after the "
        "last.": after(lambda it: one_by_one(it, whole=False)),
        "The sum is not divided: divide it by the number of samples in all micro-batches.": after(
            lambda it: _sgd(it, gradients(X, y, it), 1)
        ),
        "The sum is divided by the number of micro-batches. It is a sum over samples: divide it by their number.": (
            after(lambda it: _sgd(it, gradients(X, y, it), len(parts)))
        ),
        "That is the mean of the micro-batches' means. Where their lengths differ, it is not the batch's mean: sum "
        "over samples, divide once.": after(lambda it: _sgd(it, means(it), len(parts))),
        "The second step still has the first step's gradients in its sum: begin each step at zero.": after(
            never_zeroed
        ),
    }

    def run(function: Function) -> Values:
        device = backend.devices(1, "cpu")[0]
        params = _params(first, device)
        own = list(params)
        for _ in range(steps):
            function([[backend.upload(x, device) for x in part] for part in parts], params, LR, loss)
        return _labelled([[param.asnumpy() for param in own]])

    given: Values = {f"X, y of micro-batch {place}": _flat(part) for place, part in enumerate(parts)}
    given.update({"w": first[0], "b": first[1], "lr": LR})
    return Trial(title, given, after(lambda it: _sgd(it, gradients(X, y, it), samples)), run, hints)


def _flat(arrays: Sequence[Any]) -> str:
    return ", ".join(str(x.tolist()) for x in arrays)
