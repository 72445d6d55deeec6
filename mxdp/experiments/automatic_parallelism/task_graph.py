"""A computation as a graph of tasks: planned as data, run, and timed.

A task is a :class:`~mxdp.plans.cost.simulate.Job`: it names the tasks that it needs, and its *lane* is a device. Tasks
are pushed in *groups*, with a wait after each. One group for all leaves everything to MXNet's engine, one for each task
leaves nothing to it, and what a person would do lies between.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Callable, Dict, Mapping, Optional, Sequence, Tuple

from mxdp.backend import Devices, NDArray, npx
from mxdp.experiments.devices import timed
from mxdp.experiments.lab import Number
from mxdp.plans.cost.simulate import Job, simulate

Task = Job[str]
Groups = Sequence[Sequence[Task]]
Results = Tuple[NDArray, ...]
Functions = Mapping[str, Callable[..., Results]]
"""For each task a function: it takes the results of the tasks that it needs, in that order, and pushes operators."""


def length(
    groups: Groups,
    cores: int,
    workers: int = 1,
    seconds: Optional[Mapping[str, Number]] = None,
) -> float:
    """The simulated time until the last task ends, in the unit of the costs. With ``seconds``, measured for each task,
    their medians are the costs."""
    if seconds:
        measured = []
        for group in groups:
            measured.append([replace(task, cost=seconds[task.name].median) for task in group])
        groups = measured
    return max(end for _, end in simulate(groups, cores, workers).values())


def run_tasks(groups: Groups, functions: Functions) -> Dict[str, Results]:
    """Push the tasks group by group, and return their results. Waits for all devices between groups, not at the end."""
    done: Dict[str, Results] = {}
    for number, group in enumerate(groups):
        if number:
            npx.waitall()
        for task in group:
            _push(task, functions, done)
    return done


def alone(tasks: Sequence[Task], functions: Functions) -> Dict[str, float]:
    """Each task's own time in seconds, with a wait before and after it."""
    done: Dict[str, Results] = {}
    return {task.name: timed(partial(_push, task, functions, done)) for task in tasks}


def copy_to(devices: Devices, arrays: Results) -> Results:
    """The first of ``arrays``, on each of ``devices``."""
    return tuple(arrays[0].as_in_ctx(device) for device in devices)


def _push(task: Task, functions: Functions, done: Dict[str, Results]) -> None:
    done[task.name] = functions[task.name](*[done[need] for need in task.needs])
