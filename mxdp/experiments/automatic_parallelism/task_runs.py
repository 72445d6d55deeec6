"""Runs a graph of tasks on devices, and times its tasks."""

from __future__ import annotations

import sys
import time
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from mxdp.backend import NDArray, npx
from mxdp.engine import CompletionEvent
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask, Groups

SWITCH_SECONDS = 2e-5

Results = Tuple[NDArray, ...]
Functions = Mapping[str, Callable[..., Results]]
"""By a task's name: takes the results of the tasks it needs, in that order, and pushes the task's operators."""


def run(
    groups: Groups, functions: Functions, after: Callable[[GraphTask, Results], Any] = lambda task, results: None
) -> Dict[str, Results]:
    """Push the tasks group by group, and return their results. Waits for all devices between groups, not at the end.

    ``after`` is called after each push.
    """
    done: Dict[str, Results] = {}
    for number, group in enumerate(groups):
        if number:
            npx.waitall()
        for task in group:
            done[task.name] = functions[task.name](*[done[need] for need in task.needs])
            after(task, done[task.name])
    return done


def alone(tasks: Sequence[GraphTask], functions: Functions) -> Dict[str, float]:
    """Each task's own time in seconds, with a wait before and after it."""
    npx.waitall()
    moments = [time.perf_counter()]

    def wait(task: GraphTask, results: Results) -> None:
        npx.waitall()
        moments.append(time.perf_counter())

    run([tasks], functions, wait)
    return {task.name: end - start for task, start, end in zip(tasks, moments, moments[1:])}


def ends(groups: Groups, functions: Functions) -> Dict[str, float]:
    """Run, wait, and return when each task ended, in seconds since the first push.

    A completion event costs some tens of microseconds a task, so this must not be the run that is timed. If all cores
    are busy, an event may come some milliseconds late: take medians over several runs.
    """
    npx.waitall()
    events: Dict[str, CompletionEvent] = {}

    def note(task: GraphTask, results: Results) -> None:
        events[task.name] = CompletionEvent(results)

    # An event needs Python's lock, which the pushing thread may keep for a switch interval.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        started = time.perf_counter()
        run(groups, functions, note)
    finally:
        sys.setswitchinterval(interval)
    found = {name: event.wait() - started for name, event in events.items()}
    npx.waitall()
    return found
