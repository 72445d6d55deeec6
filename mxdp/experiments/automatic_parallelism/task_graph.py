"""A computation as a graph of tasks: planned as data, run, and timed.

::

    stem ──┬── long 1 ── long 2 ──┬── join        one line: needs
           └── short ─────────────┘

A task is a :class:`~mxdp.plans.cost.simulate.Job`, and its *lane* is a device. Tasks are pushed in *groups*, with a
wait after each: one group for all leaves everything to MXNet's engine, one for each task leaves nothing to it, and what
a person would do lies between.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

from mxdp.backend import NDArray, npx
from mxdp.engine import CompletionEvent
from mxdp.experiments.lab import Number
from mxdp.plans.cost.simulate import Job, Span

Task = Job[str]
Groups = Sequence[Sequence[Task]]
Results = Tuple[NDArray, ...]
Functions = Mapping[str, Callable[..., Results]]
"""By a task's name: takes the results of the tasks it needs, in that order, and pushes the task's operators."""
SWITCH_SECONDS = 2e-5


def one_by_one(tasks: Sequence[Task]) -> Groups:
    """A wait after each task."""
    return [[task] for task in tasks]


def measured(tasks: Sequence[Task], seconds: Mapping[str, Number]) -> List[Task]:
    """The same tasks, each with its own measured time, the median, as its cost."""
    return [replace(task, cost=seconds[task.name].median) for task in tasks]


def length(spans: Mapping[str, Span]) -> float:
    """From the first start to the last end."""
    return max(end for _, end in spans.values()) - min(start for start, _ in spans.values())


def run(
    groups: Groups, functions: Functions, after: Callable[[Task, Results], Any] = lambda task, results: None
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


def alone(tasks: Sequence[Task], functions: Functions) -> Dict[str, float]:
    """Each task's own time in seconds, with a wait before and after it."""
    npx.waitall()
    moments = [time.perf_counter()]

    def wait(task: Task, results: Results) -> None:
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

    def note(task: Task, results: Results) -> None:
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


def from_ends(tasks: Sequence[Task], ends: Mapping[str, Number]) -> Dict[str, Span]:
    """Spans from the moments (medians) at which the tasks ended, counted from the first push.

    A lane runs one task at a time and is never idle while a task is ready. So a task began when its last need was done
    and the task before it on its lane had ended. A moment that was noted too late is corrected as far as others prove
    it: a task ends before any task that needs it. Each of ``tasks`` comes after all that it needs.
    """
    moments = {name: end.median for name, end in ends.items()}
    for task in reversed(tasks):
        for need in task.needs:
            moments[need] = min(moments[need], moments[task.name])
    spans: Dict[str, Span] = {}
    free: Dict[int, float] = {}
    for task in sorted(tasks, key=lambda task: moments[task.name]):
        ready, end = max((moments[need] for need in task.needs), default=0.0), moments[task.name]
        spans[task.name] = (min(end, max(ready, free.get(task.lane, 0.0))), end)
        free[task.lane] = end
    return spans
