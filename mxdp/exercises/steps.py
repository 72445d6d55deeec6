"""Exercises on a training step: replicas, accumulated gradients.

The network is a line, ``X w + b``, whose loss is half the squared error. The serial computations hold its parameters
in one vector, w and then b.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.backend import NDArray, autograd
from mxdp.errors import plural
from mxdp.exercises.trial import (
    Exercise,
    Mistakes,
    Moves,
    Record,
    Sizes,
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
    first = factor - 1
    X = []
    y = []
    for i in range(first, first + samples):
        others = [(i * i + j - 1) % 3 + 1 for j in range(1, features)]
        X.append([(3 * i) % 4, *others])
        y.append((2 * i) % 5 - 1)
    params = onp.array([*range(1, features + 1), 1], float)
    return onp.array(X, "float32"), factor * onp.array(y, "float32"), factor * params


def _params(values: Any, device: Any) -> List[NDArray]:
    params = []
    for part in (values[:-1], values[-1:]):
        param = backend.upload(part.astype("float32"), device)
        param.attach_grad()
        params.append(param)
    return params


def _downloaded(replicas: Sequence[Sequence[NDArray]]) -> Values:
    vectors = []
    for w, b in replicas:
        vectors.append(onp.append(w.asnumpy(), b.asnumpy()))
    return _labelled(vectors)


_labelled = partial(by_device, what="w, b on ")


def _parameters(start: Any) -> Values:
    return {"w": start[:-1], "b": start[-1:]}


def _drawn_steps(draw: random.Random) -> Tuple[int, int, float]:
    """Steps, features and a learning rate."""
    return draw.randint(1, 3), draw.randint(1, 4), draw.randint(1, 4) / 64


BATCHES = [
    (4, 1, 1),
    (4, 2, 1),
    (5, 2, 1),
    (6, 3, 1),
    (5, 2, 2),
    (2, 3, 2),
]


def _drawn_batch(draw: random.Random) -> Sizes:
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
    lengths = [len(shard) for shard, _ in shards]
    record = Record()

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

    every = onp.ones((devices, devices))
    mean = every / samples
    by_shards = every / onp.maximum(lengths, 1)
    mistakes = {
        UNCHANGED: 0 * every,
        "Each replica took the gradient of its own shard, so the replicas differ now. Sum the gradients of all devices "
        "before the update.": onp.eye(devices) / samples,
        "The summed gradient is not divided: divide it by the number of samples in the batch.": every,
        "The summed gradient is divided by the length of a shard. It is the sum over the whole batch: divide it by "
        "len(X), before X is split.": by_shards.T,
        "The gradient is averaged twice: over the batch and over the devices. Sum over the "
        "devices.": mean / devices,
        "That is the mean of the shards' means. With shards of different lengths it is not the batch's mean: sum, then "
        "divide once by the batch.": by_shards / devices,
        "The step goes uphill: subtract the gradient.": -mean,
    }
    planned = {}  # shards of samples and labels from device 0, gradients to it, and their sum back
    for device, count in enumerate(lengths[1:], 1):
        planned[0, device] = steps * (count + 1) * (features + 1)
        planned[device, 0] = steps * (features + 1)
    return Trial(
        title,
        given={"X": X, "y": y, **_parameters(start), "lr": lr, "devices": devices},
        expected=_labelled(after(mean)),
        run=run,
        mistakes={hint: after(weights) for hint, weights in mistakes.items()},
        hint=partial(differing, "w, b", PARTED),
        planned=planned,
        judge=partial(_parallel, lengths, features, steps, planned),
        record=record,
    )


def _parallel(
    lengths: Sequence[int], features: int, steps: int, planned: Moves, record: Record
) -> str:
    """Each device computes the gradients of a shard; these meet, by whatever all-reduce."""
    params = features + 1
    others = len(lengths) - 1
    short = steps * min(lengths)
    long = steps * max(lengths)
    computed = []
    for device in range(len(lengths)):
        samples = sum(counts[device] for counts in record.samples)
        if not short <= samples <= long:
            allowed = short if short == long else f"{short} or {long}"
            return (
                f"But cpu({device}) computes the loss of {samples} samples. A device's shards have {allowed}, of "
                f"{steps * sum(lengths)} in all."
            )
        computed.append(samples)
    shards = params * sum(computed[1:])
    most = steps * 2 * others * params  # gradients, by an all-gather or in a ring
    idle = steps * params * computed.count(0)
    return frugal(planned, SHARD, record, [shards + most, *[most] * others], unneeded=idle)


PARTS = [
    ([4], 1),
    ([2, 2], 1),
    ([3, 2, 1], 1),
    ([2, 2], 2),
]


def _drawn_parts(draw: random.Random) -> Sizes:
    lengths = [draw.randint(1, 5) for _ in range(draw.randint(1, 6))]
    return (lengths, *_drawn_steps(draw))


@partial(Exercise, 5, "gradient accumulation", PARTS, _drawn_parts)
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
            batches = []
            for part in parts:
                batches.append([backend.upload(x, device) for x in part])
            function(batches, given, lr, partial(loss, record))
        return _downloaded([params])

    shown = {}
    for place, part in enumerate(parts):
        shown[f"X, y of micro-batch {place}"] = ", ".join(str(x.tolist()) for x in part)
    right, mistakes = _accumulations(parts, start, lr, steps)
    return Trial(
        title,
        given={**shown, **_parameters(start), "lr": lr},
        expected=_labelled(right),
        run=run,
        mistakes=mistakes,
        judge=partial(_small, lengths, steps, features + 1),
        record=record,
    )


def _accumulations(
    parts: Sequence[Tuple[Any, Any]], start: Any, lr: float, steps: int
) -> Tuple[List[Any], Mistakes]:
    """The right result, and the results of the usual mistakes, by their hints."""
    lengths = onp.array([len(X) for X, _ in parts])
    samples = lengths.sum()
    every = onp.ones(len(parts))
    last = onp.zeros(len(parts))
    last[-1] = 1

    def after(weights: Any, zeroed: bool = True) -> List[Any]:
        """Goes down the gradients of the micro-batches, times ``weights``. ``zeroed``: their sum begins each step at
        zero."""
        params = start
        total = 0 * start
        for _ in range(steps):
            if zeroed:
                total = 0 * start
            for part, weight in zip(parts, weights):
                total = total + weight * gradient(*part, params)
            params = params - lr * total
        return [params]

    def one_by_one(weights: Any) -> List[Any]:
        """Each gradient is that of the parameters that the one before has changed."""
        params = start
        for _ in range(steps):
            for part, weight in zip(parts, weights):
                params = params - lr * weight * gradient(*part, params)
        return [params]

    mean = every / samples
    by_parts = every / len(parts)
    never_zeroed = after(mean, zeroed=False)
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
        "number.": after(by_parts),
        "That is the mean of the micro-batches' means. Where their lengths differ, it is not the batch's mean: sum "
        "over samples, divide once.": after(by_parts / lengths),
        "The second step still has the first step's gradients in its sum: begin each step at zero.": never_zeroed,
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
