"""Runs a graph of tasks on devices. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from mxdp.backend import NDArray, npx
from mxdp.experiments.automatic_parallelism.task_graph import Groups, Task
from mxdp.experiments.measure.completion import CompletionEvent

SWITCH_SECONDS = 2e-5

Results = Tuple[NDArray, ...]
Work = Mapping[str, Callable[..., Results]]
"""By a task's name: takes the results of the tasks it needs, in that order, and pushes its own operators."""


def run(
    groups: Groups, work: Work, after: Callable[[Task, Results], Any] = lambda task, results: None
) -> Dict[str, Results]:
    """Push the tasks, group by group; wait for all devices between groups, but not at the end. The tasks' results.

    ``after`` is called when a task was pushed.
    """
    done: Dict[str, Results] = {}
    for number, group in enumerate(groups):
        if number:
            npx.waitall()
        for task in group:
            done[task.name] = work[task.name](*[done[need] for need in task.needs])
            after(task, done[task.name])
    return done


def alone(tasks: Sequence[Task], work: Work) -> Dict[str, float]:
    """How long each task takes in seconds, with a wait before and after it."""
    npx.waitall()
    begun: List[float] = [time.perf_counter()]
    seconds: Dict[str, float] = {}

    def wait(task: Task, results: Results) -> None:
        npx.waitall()
        begun.append(time.perf_counter())
        seconds[task.name] = begun[-1] - begun[-2]

    run([tasks], work, wait)
    return seconds


def ends(groups: Groups, work: Work) -> Dict[str, float]:
    """Run, wait, and tell when each task ended, in seconds since the first push.

    Looking costs some tens of microseconds a task, so a run that is timed should not be this one. Where all cores are
    busy a moment may be noted some milliseconds late, now and then: take the medians of several runs.
    """
    npx.waitall()
    stamps: Dict[str, CompletionEvent] = {}

    def stamp(task: Task, results: Results) -> None:
        stamps[task.name] = CompletionEvent(results)

    # A stamp needs Python's lock, which whoever pushes may keep for that long.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        started = time.perf_counter()
        run(groups, work, stamp)
    finally:
        sys.setswitchinterval(interval)
    found = {name: each.wait() - started for name, each in stamps.items()}
    npx.waitall()
    return found


class Medians:
    """Seconds by task, of several runs."""

    def __init__(self) -> None:
        self._samples: Dict[str, List[float]] = {}

    def add(self, seconds: Mapping[str, float]) -> Dict[str, Dict[str, float]]:
        """Of this run and all before it, as a metric: ``{"tasks": ...}``."""
        for name, each in seconds.items():
            self._samples.setdefault(name, []).append(each)
        return {"tasks": {name: statistics.median(samples) for name, samples in self._samples.items()}}
