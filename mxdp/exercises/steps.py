"""Exercises on a training step: replicas, accumulated gradients.

The network is a line, ``X w + b``, whose loss is half the squared error: its gradients are written down in one line.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.backend import NDArray, autograd
from mxdp.errors import plural
from mxdp.exercises.trial import Case, Function, Hosts, Moves, Record, Trial, Values, too_few
from mxdp.plans.partition import bounds

LR = 0.1


def loss(record: Record, X: NDArray, y: NDArray, params: Sequence[NDArray]) -> NDArray:
    """Half the squared error of each sample (n,). It is noted where the gradients are recorded, and for how many."""
    w, b = params
    if autograd.is_recording():
        record.samples[-1][X.ctx.device_id] = record.samples[-1].get(X.ctx.device_id, 0) + len(X)
    return ((X * w).sum(axis=1) + b - y) ** 2 / 2


def gradients(X: Any, y: Any, params: Sequence[Any]) -> Hosts:
    """Those of the summed :func:`loss`, in NumPy."""
    w, b = params
    error = X @ w + b - y
    return [error @ X, error.sum(keepdims=True)]


def _sgd(params: Sequence[Any], grads: Sequence[Any], divisor: float, lr: float) -> Hosts:
    return [param - lr / divisor * grad for param, grad in zip(params, grads)]


def _batch(samples: int, features: int) -> Tuple[Any, Any, Hosts]:
    """Samples, labels and the first parameters: small whole numbers."""
    X = onp.array(
        [[(3 * i) % 4, *[(i * i + j - 1) % 3 + 1 for j in range(1, features)]] for i in range(samples)], "float32"
    )
    y = onp.array([(2 * i) % 5 - 1 for i in range(samples)], dtype="float32")
    return X, y, [onp.arange(1, features + 1, dtype="float32"), onp.array([1], dtype="float32")]


def _add(*some: Sequence[Any]) -> Hosts:
    return [sum(grads) for grads in zip(*some)]


def _params(values: Sequence[Any], device: Any) -> List[NDArray]:
    params = [backend.upload(value.astype("float32"), device) for value in values]
    for param in params:
        param.attach_grad()
    return params


def train_batch(draw: random.Random) -> Iterator[Case]:
    """One step, or two, on replicas."""
    for title, samples, devices, steps in (
        ("4 samples, 1 device", 4, 1, 1),
        ("4 samples, 2 devices", 4, 2, 1),
        ("5 samples, 2 devices: shards of 3 and 2", 5, 2, 1),
        ("6 samples, 3 devices", 6, 3, 1),
        ("5 samples, 2 devices, two steps", 5, 2, 2),
        ("2 samples, 3 devices, two steps: none for the last device", 2, 3, 2),
    ):
        yield [_train_batch(title, samples, devices, steps)]
    others = []
    for devices in (1, 2, 3, 4, 5):
        for samples in (draw.randint(1, devices), draw.randint(devices + 1, 8 * devices)):
            features, steps = draw.randint(1, 4), draw.randint(1, 3)
            title = f"{plural(samples, 'sample')} of {features}, {plural(devices, 'device')}, {plural(steps, 'step')}"
            others.append(_train_batch(title, samples, devices, steps, features, draw.randint(1, 4) / 64))
    yield others


def _train_batch(title: str, samples: int, devices: int, steps: int, features: int = 2, lr: float = LR) -> Trial:
    X, y, first = _batch(samples, features)
    record = Record()
    shards = [(X[start:stop], y[start:stop]) for start, stop in bounds(samples, devices)]

    lengths = [stop - start for start, stop in bounds(samples, devices)]

    def after(step: Step) -> Values:
        replicas = [first] * devices
        for _ in range(steps):
            replicas = step(replicas)
        return _labelled(replicas)

    def run(function: Function) -> Values:
        contexts = backend.devices(devices, "cpu")
        replicas = [_params(first, context) for context in contexts]
        own = [list(params) for params in replicas]
        for _ in range(steps):
            arrays = [backend.upload(values, contexts[0]) for values in (X, y)]
            function(*arrays, replicas, contexts, lr, partial(loss, record))
        return _labelled([[param.asnumpy() for param in params] for params in own])

    given = {"X": X, "y": y, "w": first[0], "b": first[1], "lr": lr, "devices": devices}
    planned, judge = _steps_moves(lengths, features, steps), partial(_parallel, lengths, features, steps)
    right, mistakes = _updates(shards, partial(_sgd, lr=lr))
    hints = {text: after(step) for text, step in mistakes.items()}
    return Trial(title, given, after(right), run, hints, planned=planned, judge=judge, record=record)


Step = Callable[[List[Hosts]], List[Hosts]]
"""The replicas after a step, from those before it."""


def _updates(shards: Sequence[Tuple[Any, Any]], sgd: Callable[..., Hosts]) -> Tuple[Step, Dict[str, Step]]:
    """The step that is right, and the step that a usual mistake makes, by its hint."""
    devices, samples = len(shards), sum(len(X) for X, _ in shards)
    lengths = [len(X) or 1 for X, _ in shards]

    def grads(replicas: List[Hosts]) -> List[Hosts]:
        return [gradients(*shard, params) for shard, params in zip(shards, replicas)]

    def summed(*divisors: float) -> Step:
        """With the sum of all gradients, which each replica divides by its own number."""
        return lambda replicas: [
            sgd(params, _add(*grads(replicas)), divisor) for params, divisor in zip(replicas, divisors)
        ]

    def mean_of_means(replicas: List[Hosts]) -> List[Hosts]:
        means = [[grad / length for grad in own] for own, length in zip(grads(replicas), lengths)]
        return [sgd(params, _add(*means), devices) for params in replicas]

    return summed(*[samples] * devices), {
        "The parameters are as they were. Change them in place: `param -= lr / n * param.grad`.": lambda it: it,
        "Each replica took the gradient of its own shard, so the replicas differ now. Sum the gradients of all devices "
        "before the update.": lambda it: [sgd(params, own, samples) for params, own in zip(it, grads(it))],
        "The summed gradient is not divided: divide it by the number of samples in the batch.": summed(*[1] * devices),
        "The summed gradient is divided by the length of a shard. It is the sum over the whole batch: divide it by "
        "len(X), before X is split.": summed(*lengths),
        "The gradient is averaged twice: over the batch and over the devices. Sum over the devices.": summed(
            *[samples * devices] * devices
        ),
        "That is the mean of the shards' means. With shards of different lengths it is not the batch's mean: sum, then "
        "divide once by the batch.": mean_of_means,
        "The step goes uphill: subtract the gradient.": summed(*[-samples] * devices),
    }


def _steps_moves(lengths: Sequence[int], features: int, steps: int) -> Moves:
    """Shards of samples and labels from device 0, gradients to it, and their sum back."""
    moves: Moves = {}
    for device, length in enumerate(lengths[1:], 1):
        moves[0, device] = steps * ((length + 1) * (features + 1))
        moves[device, 0] = steps * (features + 1)
    return moves


def _parallel(lengths: Sequence[int], features: int, steps: int, record: Record) -> str:
    """Each device computes the gradients of a shard; these meet, by whatever all-reduce."""
    devices, params, short, long = len(lengths), features + 1, steps * min(lengths), steps * max(lengths)
    computed = [sum(samples.get(device, 0) for samples in record.samples) for device in range(devices)]
    for device, samples in enumerate(computed):
        if not short <= samples <= long:
            return (
                f"But cpu({device}) computes the loss of {samples} samples. A device's shards have "
                f"{short if short == long else f'{short} or {long}'}, of {steps * sum(lengths)} in all."
            )
    chunks = sum(2 * (devices - 1) * -(-size // devices) for size in (features, 1))
    most = steps * max(2 * params, chunks)
    for (source, target), moved in sorted(record.moves.items()):
        room = most + (0 if source else computed[target] * params)
        if moved > room:
            return (
                f"But cpu({source}) sends {moved} numbers to cpu({target}), and {room} are enough. A device needs its "
                "shard of the batch, and the gradients' sum."
            )
    for device, samples in enumerate(computed if devices > 1 else []):
        came = sum(moved for (_, target), moved in record.moves.items() if target == device)
        went = sum(moved for (source, _), moved in record.moves.items() if source == device)
        others = sum(computed) - samples
        needed = params * ((others > 0) * steps + (samples if device else 0))
        if came < needed:
            return too_few(record, f"to cpu({device})", came, needed)
        needed = params * ((samples > 0) * steps + (0 if device else others))
        if went < needed:
            return too_few(record, f"from cpu({device})", went, needed)
    return ""


def _labelled(replicas: Sequence[Sequence[Any]]) -> Values:
    return {
        f"{name} on cpu({device})": value for device, params in enumerate(replicas) for name, value in zip("wb", params)
    }


def accumulate(draw: random.Random) -> Iterator[Case]:
    """One update, or two, from several micro-batches."""
    for title, lengths, steps in (
        ("1 micro-batch of 4 samples", [4], 1),
        ("2 micro-batches of 2 samples", [2, 2], 1),
        ("3 micro-batches of 3, 2 and 1 samples", [3, 2, 1], 1),
        ("2 micro-batches of 2 samples, two steps", [2, 2], 2),
    ):
        yield [_accumulate(title, lengths, steps)]
    others = []
    for parts in (1, 2, 3, 4, 5, 6):
        lengths, features, steps = [draw.randint(1, 5) for _ in range(parts)], draw.randint(1, 4), draw.randint(1, 3)
        title = f"micro-batches of {', '.join(map(str, lengths))} samples of {features}, {plural(steps, 'step')}"
        others.append(_accumulate(title, lengths, steps, features, draw.randint(1, 4) / 64))
    yield others


def _accumulate(title: str, lengths: Sequence[int], steps: int, features: int = 2, lr: float = LR) -> Trial:
    samples, record, sgd = sum(lengths), Record(), partial(_sgd, lr=lr)
    X, y, first = _batch(samples, features)
    ends = [sum(lengths[:part]) for part in range(len(lengths) + 1)]
    parts = [(X[start:stop], y[start:stop]) for start, stop in zip(ends, ends[1:])]

    def after(step: Any) -> Values:
        """``step(params)`` gives the new ones."""
        params = first
        for _ in range(steps):
            params = step(params)
        return _labelled([params])

    hints = {text: after(step) for text, step in _wrong_accumulation(X, y, parts, sgd).items()}

    def run(function: Function) -> Values:
        device = backend.devices(1, "cpu")[0]
        params = _params(first, device)
        own = list(params)
        for _ in range(steps):
            batches = [[backend.upload(x, device) for x in part] for part in parts]
            function(batches, params, lr, partial(loss, record))
        return _labelled([[param.asnumpy() for param in own]])

    given: Values = {
        f"X, y of micro-batch {place}": ", ".join(str(x.tolist()) for x in part) for place, part in enumerate(parts)
    }
    given.update({"w": first[0], "b": first[1], "lr": lr})
    right = after(lambda it: sgd(it, gradients(X, y, it), samples))
    return Trial(title, given, right, run, hints, judge=partial(_small, lengths, steps, features + 1), record=record)


def _wrong_accumulation(
    X: Any, y: Any, parts: Sequence[Tuple[Any, Any]], sgd: Callable[..., Hosts]
) -> Dict[str, Callable[[Hosts], Hosts]]:
    """The step that a usual mistake makes of the parameters, by its hint."""
    samples, last = len(X), parts[-1]

    def one_by_one(params: Hosts, whole: bool) -> Hosts:
        for X_part, y_part in parts:
            params = sgd(params, gradients(X_part, y_part, params), samples if whole else len(X_part))
        return params

    def means(params: Hosts) -> Hosts:
        return _add(*[[grad / len(part) for grad in gradients(part, labels, params)] for part, labels in parts])

    kept: Dict[str, Hosts] = {}

    def never_zeroed(params: Hosts) -> Hosts:
        kept["sum"] = _add(*([kept["sum"]] if kept else []), gradients(X, y, params))
        return sgd(params, kept["sum"], samples)

    def once(X: Any, y: Any, divisor: float) -> Callable[[Hosts], Hosts]:
        return lambda params: sgd(params, gradients(X, y, params), divisor)

    return {
        "The parameters are as they were. Change them in place: `param -= lr / n * param.grad`.": lambda it: it,
        "Only the last micro-batch counts: each backward overwrites `param.grad`. Add the gradients up yourself, or "
        "attach_grad(grad_req='add').": once(*last, samples),
        "The last micro-batch counts twice: the sum is `param.grad` itself, which backward overwrites. Keep a copy: "
        "`param.grad.copy()`.": once(*last, samples / 2),
        "The parameters change after each micro-batch: the later gradients are those of other parameters. Update once, "
        "after the last.": partial(one_by_one, whole=True),
        "The parameters change after each micro-batch: that is ordinary SGD with small batches. Update once, after the "
        "last.": partial(one_by_one, whole=False),
        "The sum is not divided: divide it by the number of samples in all micro-batches.": once(X, y, 1),
        "The sum is divided by the number of micro-batches. It is a sum over samples: divide it by their number.": (
            once(X, y, len(parts))
        ),
        "That is the mean of the micro-batches' means. Where their lengths differ, it is not the batch's mean: sum "
        "over samples, divide once.": lambda it: sgd(it, means(it), len(parts)),
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
    if record.downloads and record.uploads >= steps * params:
        return "But the gradients went through NumPy, by asnumpy, which waits. Add them up on the device."
    return ""
