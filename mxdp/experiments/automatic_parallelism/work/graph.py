"""Runs the net with branches. Each task is a matrix product on its lane's device."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, npx, upload
from mxdp.experiments.automatic_parallelism.graph import TASKS, WAYS
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask
from mxdp.experiments.automatic_parallelism.work.task_runs import Functions, Results, alone, ends, run
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.timing import Timer

COPY = "copy for "
Weights = Mapping[str, HostArray]
"""By a task's name: (k, k)."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Every task's result, on whole numbers."""
    x, weights = whole_numbers(TASKS, settings["seed"])
    done = run(WAYS[case.settings["way"]], net(TASKS, weights, x, devices_of(case, settings)))
    for name, expected in serial(TASKS, weights, x).items():
        yield done[name][0].asnumpy(), expected, 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round times a pass, and then each task in another pass."""
    way, size, devices = case.settings["way"], settings["size"], devices_of(case, settings)
    random = onp.random.RandomState(settings["seed"])
    x, *weights = random.uniform(-1, 1, size=(1 + len(TASKS), size, size)).astype("float32") * size**-0.5
    functions = net(TASKS, {task.name: weight for task, weight in zip(TASKS, weights)}, x, devices)
    one_pass, timer = partial(run, WAYS[way], functions), Timer()
    one_pass()
    npx.waitall()

    def one_round() -> Round:
        with timer:
            one_pass()
        tasks = alone(TASKS, functions) if way == "waits" else ends(WAYS[way], functions)
        return Round(timer.times[-1], {"tasks": tasks})

    return Work(devices, one_round, None if way in ("one", "waits") else lambda: one_pass)


def net(tasks: Sequence[GraphTask], weights: Weights, x: HostArray, devices: Sequence[Device]) -> Functions:
    """Each task's function: add up the inputs and multiply the sum by the task's own weights.

    A task called "copy for ..." copies its input to that other task's device. If there is only one device, it runs all
    lanes. ``x``, (rows, k), is the input of a task without needs.
    """
    place = {task.name: devices[task.lane % len(devices)] for task in tasks}
    functions: Dict[str, Callable[..., Results]] = {}
    for task in tasks:
        device = place[task.name]
        if task.name.startswith(COPY):
            functions[task.name] = partial(_copy, place[task.name[len(COPY) :]])
        else:
            first = [] if task.needs else [(upload(x, device),)]
            functions[task.name] = partial(_product, upload(weights[task.name].T, device), *first)
    return functions


def _copy(device: Device, array: Results) -> Results:
    return (array[0].as_in_ctx(device),)


def _product(weight: NDArray, *inputs: Results) -> Results:
    total = inputs[0][0]
    for each in inputs[1:]:
        total = total + each[0]
    return (npx.fully_connected(total, weight, num_hidden=weight.shape[0], no_bias=True),)


def whole_numbers(tasks: Sequence[GraphTask], seed: int, rows: int = 67, k: int = 31) -> Tuple[HostArray, Weights]:
    """(x, weights) that make every product exact. The weights only permute columns and change signs, so numbers grow by
    additions alone, however deep the net is."""
    random = onp.random.RandomState(seed)
    signs = {task.name: random.choice([-1.0, 1.0], size=(k, 1)).astype("float32") for task in tasks}
    weights = {name: onp.eye(k, dtype="float32")[random.permutation(k)] * sign for name, sign in signs.items()}
    return random.randint(-99, 100, size=(rows, k)).astype("float32"), weights


def serial(tasks: Sequence[GraphTask], weights: Weights, x: HostArray) -> Dict[str, HostArray]:
    """Every task's result in NumPy's integers. Each of ``tasks`` comes after all that it needs."""
    done: Dict[str, Any] = {}
    for task in tasks:
        total = sum(done[need] for need in task.needs) if task.needs else x.astype("int64")
        done[task.name] = total if task.name.startswith(COPY) else total @ weights[task.name].astype("int64")
    return done
