"""Can three devices compute and communicate at once, without a schedule made by hand?

They train the net of the book's figure. The keeper (the figure's CPU) hands out the batch, sums the gradients, updates
the weights and copies them back. The workers (its GPUs) run the layers, each on its share of the batch::

    keeper     batch ┬─────────────────────── fc2 sum, update, copy ── fc1 sum, update, copy ──┐ (next step)
    worker 0         ├─ fc1, fc2, loss, fc2 backward ┴ fc1 backward ────────┴
    worker 1         └─ fc1, fc2, loss, fc2 backward ┴ fc1 backward ────────┴

While the workers compute the first layer's gradient, the keeper already sums the second layer's. The program only lists
the tasks; MXNet's engine finds this order. The cost model simulates it.
"""

from functools import partial

import numpy as onp

from mxdp.backend import devices, mx, npx, upload
from mxdp.errors import plural
from mxdp.experiments import sources
from mxdp.experiments.automatic_parallelism.task_graph import alone, copy_to, length, run_tasks
from mxdp.experiments.devices import SEVERAL, random_of, several, timed
from mxdp.experiments.lab import Case, Work, faster
from mxdp.plans.cost.simulate import Job
from mxdp.plans.partition import bounds

SOURCE = f"figure and exercise 3 of {sources.PARALLELISM}"
COMPARED = (
    "gradients and all copies of the weights after two steps, against NumPy's integers, exactly"
)
TOGETHER = True
CHECKS = SEVERAL
PRESETS = {
    "quick": dict(
        devices=[3],
        timeout=120.0,
        batch_size=512,
        size=1024,
        steps=4,
    ),
    "full": dict(
        devices=[3],
        timeout=900.0,
        batch_size=1024,
        size=1536,
        steps=4,
    ),
}
LITTLE = dict(batch_size=40, size=64, steps=2)
RECORDED_STEPS = 3
EXACT = 1 << 24
"""Whole numbers up to here are exact in float32."""
WORKER_TASKS = {
    "fc1 forward": (1.0, ("batch {0}", "fc1 copy {1}")),
    "fc2 forward": (1.0, ("fc1 forward {0} @{2}", "fc2 copy {1}")),
    "loss": (0.02, ("fc2 forward {0} @{2}", "batch {0}")),
    "fc2 backward": (2.0, ("loss {0} @{2}", "fc1 forward {0} @{2}", "fc2 copy {1}")),
    "fc1 backward": (1.0, ("fc2 backward {0} @{2}", "batch {0}")),
}
"""The cost of each, in matrix products of a worker's share of the batch, and its needs. There {0} is the step, {1} the
one before (the first step does without), {2} the worker's rank."""
SMALL = 0.05
"""The cost of each of the keeper's tasks: in products of the whole batch."""


def step_tasks(workers, steps):
    """The tasks in the program's order. Lane 0 is the keeper, 1 + rank a worker. Without workers, lane 0 does
    everything."""
    ranks = range(max(1, workers))
    tasks = []
    for step in range(steps):
        tasks.append(Job(f"batch {step}", 0, (), SMALL))
        for rank in ranks:
            lane = 1 + rank if workers else 0
            for name, (products, needs) in WORKER_TASKS.items():
                there = [need for need in needs if step or "{1}" not in need]
                known = tuple(need.format(step, step - 1, rank) for need in there)
                tasks.append(Job(f"{name} {step} @{rank}", lane, known, products / len(ranks)))
        for name in ("fc2", "fc1"):
            gradients = tuple(f"{name} backward {step} @{rank}" for rank in ranks)
            weights = (f"{name} update {step - 1}",) if step else ()
            tasks += [
                Job(f"{name} sum {step}", 0, gradients, SMALL),
                Job(f"{name} update {step}", 0, (f"{name} sum {step}", *weights), SMALL),
                Job(f"{name} copy {step}", 0, (f"{name} update {step}",), SMALL),
            ]
    return tasks


def cases(s):
    yield Case("everything on one device", 1, run="one")
    for n in several(s):
        yield Case(f"{n} devices, a wait after each task", n, run="waits")
        yield Case(f"{n} devices, no waits", n, run="free")


def expect(s, cores):
    n = max(s.devices)
    free = length(_groups(n, "free", s.steps), cores)
    waits = length(_groups(n, "waits", s.steps), cores)
    return f"""On {plural(cores, "core")} {n} devices are {waits / free:.2f} times as fast without waits as with them,
        if each task of the keeper takes {SMALL:.0%} of a product of the whole batch."""


def oracle(case, s):
    batches, weights, serial = whole_numbers_run(s.seed)
    functions = task_functions(lanes(case, s), batches, weights, 1.0)
    done = run_tasks(_groups(case.devices, case.run, len(batches)), functions)
    for step, expected in enumerate(serial):
        for layer, (gradient, weight) in enumerate(expected, 1):
            (summed,) = done[f"fc{layer} sum {step}"]
            yield summed.asnumpy(), gradient, 0.0
            for array in done[f"fc{layer} update {step}"] + done[f"fc{layer} copy {step}"]:
                yield array.asnumpy(), weight, 0.0


def set_up(case, s):
    """A round times the steps; with waits, every task, and adds up."""
    tasks = step_tasks(case.devices - 1, s.steps)
    batches, weights = random_floats(s)
    functions = task_functions(lanes(case, s), batches, weights, 0.1 / s.batch_size)

    def measure():
        if case.run != "waits":
            return timed(lambda: run_tasks([tasks], functions))
        seconds = alone(tasks, functions)
        return sum(seconds.values()), {"tasks": seconds}

    for _ in range(2):  # the first ones ask for memory, which takes longer than the tasks
        measure()
    few = _groups(case.devices, case.run, min(RECORDED_STEPS, s.steps))
    record = None if case.run == "one" else partial(run_tasks, few, functions)
    return Work(measure, lanes(case, s), record=record)


def lanes(case, s):
    """The case's devices, the keeper first: ``cpu(0)`` and GPUs if there are enough for all cases, else CPU devices. A
    single device is a worker."""
    workers = devices(max(1, max(s.devices) - 1), s.kind)
    if workers[0].device_type != "gpu":
        return devices(case.devices, s.kind)
    if case.devices == 1:
        return workers[:1]
    return [mx.cpu(0), *workers][: case.devices]


def _groups(devices, run, steps):
    tasks = step_tasks(devices - 1, steps)
    return [[task] for task in tasks] if run == "waits" else [tasks]


def task_functions(devices, batches, weights, lr):
    """The function of each task of :func:`step_tasks`, with a step for each batch. ``weights`` are (hidden, inputs) and
    (outputs, hidden). The loss is half the squared error, summed; gradients are sums.

    ``batch`` returns X, Y of worker 0, X, Y of worker 1, ...; ``fc2 backward`` the weights' gradient on the keeper and
    the hidden layer's gradient; ``copy`` the weights on worker 0, 1, ...; every other task one array. A copy to another
    device is pushed by the task that has its source, on whose worker MXNet runs it.
    """
    keeper = devices[0]
    workers = list(devices[1:]) or [keeper]
    first = [upload(weight, keeper) for weight in weights]
    sent = [copy_to(workers, (weight,)) for weight in first]
    functions: dict = {}
    for step, (X, Y) in enumerate(batches):
        functions[f"batch {step}"] = partial(_split, upload(X, keeper), upload(Y, keeper), workers)
        for rank in range(len(workers)):
            for name, function in _worker(rank, keeper, sent).items():
                functions[f"{name} {step} @{rank}"] = function
        for layer, weight in enumerate(first, 1):
            functions[f"fc{layer} sum {step}"] = _sum
            functions[f"fc{layer} update {step}"] = partial(_update, weight, lr)
            functions[f"fc{layer} copy {step}"] = partial(copy_to, workers)
    return functions


def _split(X, Y, workers):
    shares = []
    for worker, (start, stop) in zip(workers, bounds(len(X), len(workers))):
        shares += [array[start:stop].as_in_ctx(worker) for array in (X, Y)]
    return tuple(shares)


def _sum(*parts):
    first, *others = [part[0] for part in parts]
    return (sum(others, first),)


def _update(first, lr, gradient, before=()):
    weight = before[0] if before else first
    return (weight - lr * gradient[0],)


def _product(a, b):
    """``a @ b.T``."""
    return npx.fully_connected(a, b, num_hidden=b.shape[0], no_bias=True, flatten=False)


def _worker(rank, keeper, first):
    """A worker's functions. ``first`` has each layer's weights for the first step, in which no task copies them."""

    def fc1_forward(batch, weights=first[0]):
        X = batch[2 * rank]
        return (npx.activation(_product(X, weights[rank]), act_type="relu"),)

    def fc2_forward(hidden, weights=first[1]):
        return (_product(hidden[0], weights[rank]),)

    def loss(outputs, batch):
        Y = batch[2 * rank + 1]
        return (outputs[0] - Y,)

    def fc2_backward(error, hidden, weights=first[1]):
        # The weights' gradient comes first, so that its copy starts before this layer's other product.
        gradient = _product(error[0].T, hidden[0].T).as_in_ctx(keeper)
        back = _product(error[0], weights[rank].T)
        return gradient, back * (hidden[0] > 0).astype("float32")

    def fc1_backward(above, batch):
        X = batch[2 * rank]
        return (_product(above[1].T, X.T).as_in_ctx(keeper),)

    return {
        "fc1 forward": fc1_forward,
        "fc2 forward": fc2_forward,
        "loss": loss,
        "fc2 backward": fc2_backward,
        "fc1 backward": fc1_backward,
    }


def random_floats(s):
    """Batches and weights for timing: ``size`` hidden units, half as many inputs and outputs."""
    random = random_of(s)
    half = max(1, s.size // 2)

    def draw(rows, columns, scale=1.0):
        return random.normal(scale=scale, size=(rows, columns)).astype("float32")

    shape = (s.batch_size, half)
    batches = [(draw(*shape), draw(*shape)) for _ in range(s.steps)]
    W1 = draw(s.size, half, half**-0.5)
    W2 = draw(half, s.size, s.size**-0.5)
    return batches, [W1, W2]


def whole_numbers_run(seed, batch=11, steps=2):
    """Batches, weights, and each layer's (gradient, weights) after each step of a serial run in NumPy's integers at a
    learning rate of 1. The labels are drawn so that every output is off by -1, 0 or 1: then gradients stay small, and
    every sum is exact in float32, in any order. Raises an ArithmeticError if one would not be."""
    random = onp.random.RandomState(seed)
    W1 = random.randint(-1, 2, size=(17, 9))
    W2 = random.randint(-1, 2, size=(5, 17))
    weights = [W1.astype("float32"), W2.astype("float32")]
    batches = []
    done = []
    for _ in range(steps):
        X = random.randint(-2, 3, size=(batch, 9))
        error = random.randint(-1, 2, size=(batch, 5))
        hidden = onp.maximum(_exact(X, W1.T), 0)
        Y = _exact(hidden, W2.T) - error
        batches.append((X.astype("float32"), Y.astype("float32")))
        back = _exact(error, W2) * (hidden > 0)
        first = _exact(back.T, X)
        second = _exact(error.T, hidden)
        W1 = W1 - first
        W2 = W2 - second
        done.append([(first, W1), (second, W2)])
    return batches, weights, done


def _exact(a, b):
    if (onp.abs(a) @ onp.abs(b)).max() >= EXACT:
        raise ArithmeticError("these products are not exact in float32")
    return a @ b


def tell(t, s):
    t.column("seconds", "ms a step", ".1f", 1e3 / s.steps, about="the time of a step")
    t.column("of_one", "of one", ".2f", about="that over its time with everything on one device")
    t.column(
        "model_ms",
        "model ms",
        ".1f",
        about="the order, simulated with each task's time, measured with waits",
    )
    t.column(
        "together",
        form=".0%",
        about="the share of a timeline in which two or more devices work",
    )
    t.note("The tasks are listed in the same order with waits and without.")
    t.bars(unit="ms", scale=1e3 / s.steps, title="Time of a step")
    one = t.one(run="one")
    for row in t.rows:
        row.of_one = row.seconds / one.seconds
    free = t.find(run="free")
    for row in free:
        waits = t.one(run="waits", devices=row.devices)
        row.of_waits = row.seconds / waits.seconds
        groups = _groups(row.devices, row.run, s.steps)
        row.model_ms = length(groups, row.cores, seconds=waits.tasks) * 1e3 / s.steps
    most = free[-1]
    t.answer(f"""Left to MXNet's engine, a step on {most.devices} devices {faster(1 / most.of_waits)} as with a wait
        after each task, and {faster(1 / most.of_one)} as on one device.""")
