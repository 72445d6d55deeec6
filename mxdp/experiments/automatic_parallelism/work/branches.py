"""A net with branches, each task a matrix product. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, npx, upload
from mxdp.experiments.automatic_parallelism.task_graph import Task
from mxdp.experiments.automatic_parallelism.work.task_runs import Results, Work

COPY = "copy for "
Weights = Mapping[str, HostArray]
"""By a task's name: (k, k)."""


class Net:
    """Each task's work on its lane's device: add up what it needs, and multiply that by its own weights; or for a task
    called "copy for ...", bring what it needs to that other task's device. A single device does the work of all lanes.

    ``x``: (rows, k), what a task that needs no other takes.
    """

    def __init__(self, tasks: Sequence[Task], weights: Weights, x: HostArray, devices: Sequence[Device]) -> None:
        place = {task.name: devices[task.lane % len(devices)] for task in tasks}
        self.work: Work = {task.name: self._work(task, place, weights, x) for task in tasks}

    @staticmethod
    def _work(task: Task, place: Mapping[str, Device], weights: Weights, x: HostArray) -> Callable[..., Results]:
        if task.name.startswith(COPY):
            return partial(_copy, place[task.name[len(COPY) :]])
        device = place[task.name]
        first = [] if task.needs else [(upload(x, device),)]
        return partial(_product, upload(weights[task.name].T, device), *first)


def _copy(device: Device, array: Results) -> Results:
    return (array[0].as_in_ctx(device),)


def _product(weight: NDArray, *inputs: Results) -> Results:
    total = inputs[0][0]
    for each in inputs[1:]:
        total = total + each[0]
    return (npx.fully_connected(total, weight, num_hidden=weight.shape[0], no_bias=True),)


def whole_numbers(tasks: Sequence[Task], seed: int, rows: int = 67, k: int = 31) -> Tuple[HostArray, Weights]:
    """(x, weights) with which every product is exact: weights that only move columns about and change signs, so that
    numbers grow by additions alone, however deep the net is."""
    random = onp.random.RandomState(seed)
    signs = {task.name: random.choice([-1.0, 1.0], size=(k, 1)).astype("float32") for task in tasks}
    weights = {name: onp.eye(k, dtype="float32")[random.permutation(k)] * sign for name, sign in signs.items()}
    return random.randint(-99, 100, size=(rows, k)).astype("float32"), weights


def serial(tasks: Sequence[Task], weights: Weights, x: HostArray) -> Dict[str, HostArray]:
    """What every task gives, in NumPy's integers; ``tasks`` come after all that they need."""
    done: Dict[str, Any] = {}
    for task in tasks:
        total = sum(done[need] for need in task.needs) if task.needs else x.astype("int64")
        copied = task.name.startswith(COPY)
        done[task.name] = total if copied else total @ weights[task.name].astype("int64")
    return done
