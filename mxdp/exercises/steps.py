"""Exercises on a training step: replicas, accumulated gradients.

The network is a line, ``X w + b``, whose loss is half the squared error. The serial computations hold its parameters
in one vector, w and then b.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Dict, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.backend import NDArray, autograd
from mxdp.errors import plural
from mxdp.exercises.trial import (
    Exercise,
    Moves,
    Record,
    Trial,
    Values,
    by_device,
    differing,
    frugal,
    uneven,
)
from mxdp.plans.partition import bounds

UNCHANGED = "The parameters are as they were. Change them in place: `param -= lr / n * param.grad`."
SHARD = "a device needs its shard of the batch, and the gradients' sum"
PARTED = (
    "The replicas differ: each device went down a gradient of its own. Sum the gradients of all devices before the "
    "update, so that all use the same."
)


def loss(record: Record, X: NDArray, y: NDArray, params: Sequence[NDArray]) -> NDArray:
    """Half the squared error of each sample (n,). It is noted where the gradients are recorded, and for how many."""
    w, b = params
    if autograd.is_recording():
        record.samples[-1][X.ctx.device_id] += len(X)
    return ((X * w).sum(axis=1) + b - y) ** 2 / 2


def gradient(X: Any, y: Any, params: Any) -> Any:
    """The gradient of the summed :func:`loss`, in NumPy."""
    inputs = onp.column_stack([X, onp.ones(len(X))])
    return (inputs @ params - y) @ inputs


def _batch(samples: int, features: int, factor: int) -> Tuple[Any, Any, Any]:
    """Samples, labels and the first parameters: small whole numbers. With another ``factor`` they are other samples,
    whose gradients are about ``factor`` times as large."""
    rows = range(factor - 1, factor - 1 + samples)
    X = [[(3 * i) % 4, *[(i * i + j - 1) % 3 + 1 for j in range(1, features)]] for i in rows]
    y = [(2 * i) % 5 - 1 for i in rows]
    first = onp.array([*range(1, features + 1), 1], float)
    return onp.array(X, "float32"), factor * onp.array(y, "float32"), factor * first


def _params(values: Any, device: Any) -> List[NDArray]:
    params = [backend.upload(part.astype("float32"), device) for part in (values[:-1], values[-1:])]
    for param in params:
        param.attach_grad()
    return params


def _downloaded(replicas: Sequence[Sequence[NDArray]]) -> Values:
    return _labelled(
        [onp.concatenate([param.asnumpy() for param in params]) for params in replicas]
    )


_labelled = partial(by_device, what="w, b on ")


def _drawn_steps(draw: random.Random) -> Tuple[int, int, float]:
    """Steps, features and a learning rate."""
    return draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 4) / 64


BATCHES = [(4, 1, 1), (4, 2, 1), (5, 2, 1), (6, 3, 1), (5, 2, 2), (2, 3, 2)]


def _drawn_batch(draw: random.Random) -> Tuple[int, int, int, int, float]:
    return (draw.randint(1, 16), draw.randint(1, 5), *_drawn_steps(draw))


@partial(Exercise, 4, "one data-parallel step", BATCHES, _drawn_batch)
def train_batch(
    samples: int, devices: int, steps: int, features: int = 2, lr: float = 0.1, factor: int = 1
) -> Trial:
    """Steps on replicas."""
    X, y, start = _batch(samples, features, factor)
    title = f"{plural(samples, 'sample')} of {features}, {plural(devices, 'device')}, {plural(steps, 'step')}"
    title += uneven("shard", samples, devices)
    shards = [(X[a:b], y[a:b]) for a, b in bounds(samples, devices)]
    lengths, record = [len(shard) for shard, _ in shards], Record()

    def after(weights: Any) -> Any:
        """Replica k goes down the sum of ``weights[k, j]`` times the gradient of shard j."""
        replicas = onp.tile(start, (devices, 1))
        for _ in range(steps):
            gradients = [gradient(*shard, params) for shard, params in zip(shards, replicas)]
            replicas = replicas - lr * weights @ onp.array(gradients)
        return replicas

    def run(function: Any) -> Values:
        contexts = backend.devices(devices, "cpu")
        replicas = [_params(start, context) for context in contexts]
        given = [list(params) for params in replicas]
        for _ in range(steps):
            arrays = [backend.upload(values, contexts[0]) for values in (X, y)]
            function(*arrays, given, contexts, lr, partial(loss, record))
        return _downloaded(replicas)

    every, long = onp.ones((devices, devices)), onp.maximum(lengths, 1)
    mean = every / samples
    mistakes = {
        UNCHANGED: 0 * every,
        "Each replica took the gradient of its own shard, so the replicas differ now. Sum the gradients of all devices "
        "before the update.": onp.eye(devices) / samples,
        "The summed gradient is not divided: divide it by the number of samples in the batch.": every,
        "The summed gradient is divided by the length of a shard. It is the sum over the whole batch: divide it by "
        "len(X), before X is split.": every / long[:, None],
        "The gradient is averaged twice: over the batch and over the devices. Sum over the devices.": mean
        / devices,
        "That is the mean of the shards' means. With shards of different lengths it is not the batch's mean: sum, then "
        "divide once by the batch.": every / long / devices,
        "The step goes uphill: subtract the gradient.": -mean,
    }
    planned: Moves = {}  # shards of samples and labels from device 0, gradients to it, and their sum back
    for device, count in enumerate(lengths[1:], 1):
        planned[0, device] = steps * (count + 1) * (features + 1)
        planned[device, 0] = steps * (features + 1)
    given = {"X": X, "y": y, "w": start[:-1], "b": start[-1:], "lr": lr, "devices": devices}
    wrong = {hint: after(weights) for hint, weights in mistakes.items()}
    hint, judge = (
        partial(differing, "w, b", PARTED),
        partial(_parallel, lengths, features, steps, planned),
    )
    return Trial(title, given, _labelled(after(mean)), run, wrong, hint, planned, judge, record)


def _parallel(
    lengths: Sequence[int], features: int, steps: int, planned: Moves, record: Record
) -> str:
    """Each device computes the gradients of a shard; these meet, by whatever all-reduce."""
    devices, params, short, long = (
        len(lengths),
        features + 1,
        steps * min(lengths),
        steps * max(lengths),
    )
    computed = [sum(samples[device] for samples in record.samples) for device in range(devices)]
    for device, samples in enumerate(computed):
        if not short <= samples <= long:
            return (
                f"But cpu({device}) computes the loss of {samples} samples. A device's shards have "
                f"{short if short == long else f'{short} or {long}'}, of {steps * sum(lengths)} in all."
            )
    shards = params * sum(computed[1:])
    most = steps * 2 * (devices - 1) * params  # gradients, by an all-gather or in a ring
    idle = steps * params * computed.count(0)
    return frugal(planned, SHARD, record, [shards + most, *[most] * (devices - 1)], unneeded=idle)


def _drawn_parts(draw: random.Random) -> Tuple[List[int], int, int, float]:
    return ([draw.randint(1, 5) for _ in range(draw.randint(1, 6))], *_drawn_steps(draw))


@partial(
    Exercise,
    5,
    "gradient accumulation",
    [([4], 1), ([2, 2], 1), ([3, 2, 1], 1), ([2, 2], 2)],
    _drawn_parts,
)
def accumulate(
    lengths: Sequence[int], steps: int, features: int = 2, lr: float = 0.1, factor: int = 1
) -> Trial:
    """Updates, each from several micro-batches."""
    record = Record()
    X, y, start = _batch(sum(lengths), features, factor)
    of = f"{', '.join(map(str, lengths))} samples of {features}"
    title = f"{plural(len(lengths), 'micro-batch')} of {of}, {plural(steps, 'step')}"
    ends = onp.cumsum(lengths)[:-1]
    parts = list(zip(onp.split(X, ends), onp.split(y, ends)))

    def run(function: Any) -> Values:
        device = backend.devices(1, "cpu")[0]
        params = _params(start, device)
        given = list(params)
        for _ in range(steps):
            batches = [[backend.upload(x, device) for x in part] for part in parts]
            function(batches, given, lr, partial(loss, record))
        return _downloaded([params])

    given: Values = {
        f"X, y of micro-batch {place}": ", ".join(str(x.tolist()) for x in part)
        for place, part in enumerate(parts)
    }
    given.update({"w": start[:-1], "b": start[-1:], "lr": lr})
    right, mistakes = _accumulations(parts, start, lr, steps)
    judge = partial(_small, lengths, steps, features + 1)
    return Trial(title, given, _labelled(right), run, mistakes, judge=judge, record=record)


def _accumulations(
    parts: Sequence[Tuple[Any, Any]], start: Any, lr: float, steps: int
) -> Tuple[List[Any], Dict[str, List[Any]]]:
    """The right result, and the results of the usual mistakes, by their hints."""
    lengths, last = onp.array([len(X) for X, _ in parts]), onp.arange(len(parts)) == len(parts) - 1
    samples, every = lengths.sum(), onp.ones(len(parts))

    def after(weights: Any, kept: int = 0) -> List[Any]:
        """Goes down the gradients of the micro-batches, times ``weights``. ``kept``: 1 if their sum is never zeroed."""
        params, total = start, 0 * start
        for _ in range(steps):
            total = kept * total + sum(
                weight * gradient(*part, params) for part, weight in zip(parts, weights)
            )
            params = params - lr * total
        return [params]

    def one_by_one(weights: Any) -> List[Any]:
        """Each gradient is that of the parameters that the one before has changed."""
        params = start
        for part, weight in [*zip(parts, weights)] * steps:
            params = params - lr * weight * gradient(*part, params)
        return [params]

    mean = every / samples
    return after(mean), {
        UNCHANGED: after(0 * every),
        "Only the last micro-batch counts: each backward overwrites `param.grad`. Add the gradients up yourself, or "
        "attach_grad(grad_req='add').": after(last / samples),
        "The last micro-batch counts twice: the sum is `param.grad` itself, which backward overwrites. Keep a copy: "
        "`param.grad.copy()`.": after(2 * last / samples),
        "The parameters change after each micro-batch: the later gradients are those of other parameters. Update once, "
        "after the last.": one_by_one(mean),
        "The parameters change after each micro-batch: that is ordinary SGD with small batches. Update once, after the "
        "last.": one_by_one(every / lengths),
        "The sum is not divided: divide it by the number of samples in all micro-batches.": after(
            every
        ),
        "The sum is divided by the number of micro-batches. It is a sum over samples: divide it by their "
        "number.": after(every / len(parts)),
        "That is the mean of the micro-batches' means. Where their lengths differ, it is not the batch's mean: sum "
        "over samples, divide once.": after(every / lengths / len(parts)),
        "The second step still has the first step's gradients in its sum: begin each step at zero.": after(
            mean, kept=1
        ),
    }


def _small(lengths: Sequence[int], steps: int, params: int, record: Record) -> str:
    """No backward pass has more samples than a micro-batch, and the gradients stay on the device."""
    passes = [sum(samples.values()) for samples in record.samples]
    if max(passes) > max(lengths):
        return (
            f"But one backward pass has {max(passes)} samples, and the longest micro-batch has {max(lengths)}: the "
            "memory must hold them all. Call backward after each micro-batch."
        )
    if sum(passes) < steps * sum(lengths):
        return f"But the loss of {sum(passes)} samples is recorded, of {steps * sum(lengths)}."
    if record.host["downloads"] and record.host["uploads"] >= steps * params:
        return "But the gradients went through NumPy, by asnumpy, which waits. Add them up on the device."
    return ""
