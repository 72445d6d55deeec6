"""Runs the two-layer network of the book's figure as tasks for a keeper of the weights and workers.

Results of the tasks: ``batch`` gives X, Y of worker 0, X, Y of worker 1, ...; ``fc2 backward`` the weights' gradient on
the keeper and the hidden layer's gradient; ``copy`` the weights on worker 0, 1, ...; every other task one array. The
task that has the source pushes a copy to another device: on CPU devices MXNet runs the copy on the source's worker.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, devices, mx, npx, upload
from mxdp.experiments.automatic_parallelism.mixed_devices import plan
from mxdp.experiments.automatic_parallelism.task_graph import Groups, one_by_one
from mxdp.experiments.automatic_parallelism.work.task_runs import Functions, Results, alone, ends, run
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.plans.partition import bounds
from mxdp.timing import Timer

Batches = Sequence[Tuple[HostArray, HostArray]]
RECORDED_STEPS = 3
EXACT = 1 << 24
"""Whole numbers up to here are exact in float32."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Summed gradients, updated weights, and their copies, of each step."""
    batches, weights, serial = whole_numbers_run(settings["seed"])
    found = lanes(case.devices, max(settings["devices"]), settings["kind"])
    functions = mlp(found, batches, weights, lr=1.0)
    done = run(_groups(case, len(batches)), functions)
    for step, expected in enumerate(serial):
        for layer in (1, 2):
            yield done[f"fc{layer} sum {step}"][0].asnumpy(), expected.gradients[layer - 1], 0.0
            for weight in done[f"fc{layer} update {step}"] + done[f"fc{layer} copy {step}"]:
                yield weight.asnumpy(), expected.weights[layer - 1], 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round times the steps. With waits it times each task, too; without them, the steps run once more for that."""
    found = lanes(case.devices, max(settings["devices"]), settings["kind"])
    steps, waits = settings["steps"], case.settings["run"] == "waits"
    batches, weights = random_floats(settings["seed"], settings["batch_size"], settings["size"], steps)
    functions = mlp(found, batches, weights, lr=0.1 / settings["batch_size"])
    tasks, timer = plan(case.devices - 1, steps), Timer()
    run([tasks], functions)
    npx.waitall()

    def one_round() -> Round:
        if waits:
            with timer:
                seconds = alone(tasks, functions)
        else:
            with timer:
                run([tasks], functions)
            seconds = ends([tasks], functions)
        return Round(timer.times[-1], {"tasks": seconds})

    few = partial(run, _groups(case, min(RECORDED_STEPS, steps)), functions)
    return Work(found, one_round, None if case.settings["run"] == "one" else lambda: few)


def lanes(n: int, largest: int, kind: str) -> List[Device]:
    """``n`` devices, the keeper first: ``cpu(0)`` and GPUs if there are ``largest - 1`` of them, else CPU devices. A
    single device is a worker."""
    workers = devices(max(1, largest - 1), kind)
    if workers[0].device_type == "gpu":
        return [mx.cpu(0), *workers][:n] if n > 1 else workers[:1]
    return devices(n, kind)


def _groups(case: Case, steps: int) -> Groups:
    tasks = plan(case.devices - 1, steps)
    return one_by_one(tasks) if case.settings["run"] == "waits" else [tasks]


def product(a: NDArray, b: NDArray) -> NDArray:
    """``a @ b.T``."""
    return npx.fully_connected(a, b, num_hidden=b.shape[0], no_bias=True, flatten=False)


def mlp(found: Sequence[Device], batches: Batches, weights: Sequence[HostArray], lr: float) -> Functions:
    """The function of each task of :func:`plan`, with a step for each batch.

    ``weights``: (hidden, inputs) and (outputs, hidden). The loss is half the squared error, summed; gradients are sums.
    """
    keeper, workers = found[0], list(found[1:]) or [found[0]]
    first = [upload(weight, keeper) for weight in weights]
    sent = [tuple(weight.as_in_ctx(worker) for worker in workers) for weight in first]
    functions: Dict[str, Callable[..., Results]] = {}
    for step, (X, Y) in enumerate(batches):
        functions[f"batch {step}"] = partial(_split, upload(X, keeper), upload(Y, keeper), workers)
        for rank in range(len(workers)):
            for name, function in _worker(rank, keeper, sent).items():
                functions[f"{name} {step} @{rank}"] = function
        for layer, weight in enumerate(first, 1):
            functions[f"fc{layer} sum {step}"] = _sum
            functions[f"fc{layer} update {step}"] = partial(_update, weight, lr)
            functions[f"fc{layer} copy {step}"] = partial(_copy, workers)
    return functions


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


def _worker(rank: int, keeper: Device, first: Sequence[Results]) -> Dict[str, Callable[..., Results]]:
    """A worker's functions. ``first``: each layer's weights for the first step, which needs no copy."""

    def fc1_forward(batch: Results, weights: Results = first[0]) -> Results:
        return (npx.activation(product(batch[2 * rank], weights[rank]), act_type="relu"),)

    def fc2_forward(hidden: Results, weights: Results = first[1]) -> Results:
        return (product(hidden[0], weights[rank]),)

    def loss(outputs: Results, batch: Results) -> Results:
        return (outputs[0] - batch[2 * rank + 1],)

    def fc2_backward(error: Results, hidden: Results, weights: Results = first[1]) -> Results:
        # The weights' gradient comes first, so that its copy starts before this layer's other product.
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
    """Batches and weights for timing: ``size`` hidden units, half as many inputs and outputs."""
    random = onp.random.RandomState(seed)
    half = max(1, size // 2)

    def draw(rows: int, columns: int, scale: float = 1.0) -> HostArray:
        return random.normal(scale=scale, size=(rows, columns)).astype("float32")

    batches = [(draw(batch, half), draw(batch, half)) for _ in range(steps)]
    return batches, [draw(size, half, half**-0.5), draw(half, size, size**-0.5)]


class Step(NamedTuple):
    """What the serial run has after a step, layer by layer."""

    gradients: Tuple[HostArray, HostArray]
    weights: Tuple[HostArray, HostArray]


def whole_numbers_run(seed: int, batch: int = 11, steps: int = 2) -> Tuple[Batches, List[HostArray], List[Step]]:
    """Batches, weights, and the serial run on them at a learning rate of 1, in NumPy's integers.

    The labels are drawn so that every output is off by -1, 0 or 1. Gradients then stay small, and every sum is exact in
    float32, in any order of its terms.

    Raises:
        ArithmeticError: a sum would not be exact.
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
