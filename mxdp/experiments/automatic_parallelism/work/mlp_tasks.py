"""The two-layer network of the book's figure, a step of training cut into tasks for one device that keeps the weights
(the figure's CPU) and those that work on a share of the batch each. Loads MXNet: import it inside ``oracle``, ``run``.

What a task returns: ``batch`` (X, Y of worker 0, X, Y of worker 1, ...), ``fc2 backward`` (the weights' gradient, at
the keeper's; the gradient of the hidden layer), ``copy`` (the weights, at worker 0, 1, ...); the others one array. A
copy to another device is pushed by the task that has the source, on whose worker MXNet runs it on a CPU.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, devices, mx, npx, upload
from mxdp.experiments.automatic_parallelism.work.task_runs import Results, Work
from mxdp.plans.partition import bounds

Batches = Sequence[Tuple[HostArray, HostArray]]
EXACT = 1 << 24
"""Whole numbers up to here are exact in float32."""


class Step(NamedTuple):
    """What a step of the serial run ends with."""

    gradients: Tuple[HostArray, HostArray]
    weights: Tuple[HostArray, HostArray]


def lanes(n: int, largest: int, kind: str) -> List[Device]:
    """``n`` devices, the keeper first: ``cpu(0)`` and GPUs where there are ``largest - 1`` of them, else CPU contexts;
    a single one is a worker."""
    workers = devices(max(1, largest - 1), kind)
    if workers[0].device_type == "gpu":
        return [mx.cpu(0), *workers][:n] if n > 1 else workers[:1]
    return devices(n, kind)


def product(a: NDArray, b: NDArray) -> NDArray:
    """``a @ b.T``."""
    return npx.fully_connected(a, b, num_hidden=b.shape[0], no_bias=True, flatten=False)


def mlp_work(found: Sequence[Device], batches: Batches, weights: Sequence[HostArray], lr: float) -> Work:
    """The work of each task that ``mixed_devices.plan`` names, for as many steps as there are batches.

    ``weights``: (hidden, inputs) and (outputs, hidden). The loss is half the squared error, summed; gradients are sums.
    """
    keeper, workers = found[0], list(found[1:]) or [found[0]]
    first = [upload(weight, keeper) for weight in weights]
    sent = [tuple(weight.as_in_ctx(worker) for worker in workers) for weight in first]
    work: Dict[str, Callable[..., Results]] = {}
    for step, (X, Y) in enumerate(batches):
        work[f"batch {step}"] = partial(_split, upload(X, keeper), upload(Y, keeper), workers)
        for rank in range(len(workers)):
            for name, function in _worker_tasks(rank, keeper, sent).items():
                work[f"{name} {step} @{rank}"] = function
        for layer, weight in enumerate(first, 1):
            work[f"fc{layer} sum {step}"] = _sum
            work[f"fc{layer} update {step}"] = partial(_update, weight, lr)
            work[f"fc{layer} copy {step}"] = partial(_copy, workers)
    return work


def _split(X: NDArray, Y: NDArray, workers: Sequence[Device]) -> Results:
    shares = zip(workers, bounds(len(X), len(workers)))
    return tuple(array[start:stop].as_in_ctx(worker) for worker, (start, stop) in shares for array in (X, Y))


def _sum(*parts: Results) -> Results:
    total = parts[0][0]
    for part in parts[1:]:
        total = total + part[0]
    return (total,)


def _update(first: NDArray, lr: float, gradient: Results, before: Results = ()) -> Results:
    return ((before or (first,))[0] - lr * gradient[0],)


def _copy(workers: Sequence[Device], weight: Results) -> Results:
    return tuple(weight[0].as_in_ctx(worker) for worker in workers)


def _worker_tasks(rank: int, keeper: Device, first: Sequence[Results]) -> Dict[str, Callable[..., Results]]:
    """Of one worker; ``first`` are each layer's weights in the first step, which gets them from no one."""

    def fc1_forward(batch: Results, weights: Results = first[0]) -> Results:
        return (npx.activation(product(batch[2 * rank], weights[rank]), act_type="relu"),)

    def fc2_forward(hidden: Results, weights: Results = first[1]) -> Results:
        return (product(hidden[0], weights[rank]),)

    def loss(outputs: Results, batch: Results) -> Results:
        return (outputs[0] - batch[2 * rank + 1],)

    def fc2_backward(error: Results, hidden: Results, weights: Results = first[1]) -> Results:
        # The weights' gradient first: it has a way to go, and its copy then starts before this layer's other product.
        gradient = product(error[0].T, hidden[0].T).as_in_ctx(keeper)
        passed = (hidden[0] > 0).astype("float32")
        return gradient, product(error[0], weights[rank].T) * passed

    def fc1_backward(above: Results, batch: Results) -> Results:
        return (product(above[1].T, batch[2 * rank].T).as_in_ctx(keeper),)

    return {
        "fc1 forward": fc1_forward,
        "fc2 forward": fc2_forward,
        "loss": loss,
        "fc2 backward": fc2_backward,
        "fc1 backward": fc1_backward,
    }


def random_floats(seed: int, batch: int, size: int, steps: int) -> Tuple[Batches, List[HostArray]]:
    """Batches and weights to be timed: ``size`` hidden units, half as many inputs and outputs."""
    random = onp.random.RandomState(seed)
    half = max(1, size // 2)

    def draw(rows: int, columns: int, scale: float = 1.0) -> HostArray:
        return random.normal(scale=scale, size=(rows, columns)).astype("float32")

    batches = [(draw(batch, half), draw(batch, half)) for _ in range(steps)]
    return batches, [draw(size, half, half**-0.5), draw(half, size, size**-0.5)]


def whole_numbers_run(seed: int, batch: int = 11, steps: int = 2) -> Tuple[Batches, List[HostArray], List[Step]]:
    """Batches, weights, and the serial run on them at a learning rate of 1, in NumPy's integers.

    The labels are drawn so that outputs are off by -1, 0 or 1: gradients stay small, and every sum is exact in float32,
    in whatever order it is added up.

    Raises:
        ArithmeticError: for these numbers it would not be.
    """
    random = onp.random.RandomState(seed)
    W1, W2 = random.randint(-1, 2, size=(17, 9)), random.randint(-1, 2, size=(5, 17))
    weights, batches, done = [W1, W2], [], []
    for _ in range(steps):
        X, error = random.randint(-2, 3, size=(batch, 9)), random.randint(-1, 2, size=(batch, 5))
        hidden = onp.maximum(_exact(X, W1.T), 0)
        batches.append((X.astype("float32"), (_exact(hidden, W2.T) - error).astype("float32")))
        gradients = (_exact((_exact(error, W2) * (hidden > 0)).T, X), _exact(error.T, hidden))
        W1, W2 = W1 - gradients[0], W2 - gradients[1]
        done.append(Step(gradients, (W1, W2)))
    return batches, [weight.astype("float32") for weight in weights], done


def _exact(a: Any, b: Any) -> Any:
    if (onp.abs(a) @ onp.abs(b)).max() >= EXACT:
        raise ArithmeticError("these products are not exact in float32")
    return a @ b
