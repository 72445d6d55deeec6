"""A computation as a graph of tasks, each on one device: planned as data, and simulated before it is run.

::

    stem ──┬── long 1 ── long 2 ──┬── join        one line: needs
           └── short ─────────────┘

A *lane* is a device. Tasks are pushed in *groups*, with a wait after each: one group for all leaves everything to
MXNet's engine, one for each task leaves nothing to it, and what a person would do lies between. Pure Python.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, List, Mapping, Sequence

from mxdp.experiments.lab import Number
from mxdp.plans.cost.simulate import Job, Span


@dataclass(frozen=True)
class GraphTask(Job[str]):
    """A job with a name that can be read."""


Groups = Sequence[Sequence[GraphTask]]


def one_by_one(tasks: Sequence[GraphTask]) -> Groups:
    """A wait after each task."""
    return [[task] for task in tasks]


def measured(tasks: Sequence[GraphTask], seconds: Mapping[str, Number]) -> List[GraphTask]:
    """The same tasks, each with its own measured time, the median, as its cost."""
    return [replace(task, cost=seconds[task.name].median) for task in tasks]


def length(spans: Mapping[str, Span]) -> float:
    """From the first start to the last end."""
    return max(end for _, end in spans.values()) - min(start for start, _ in spans.values())


def from_ends(tasks: Sequence[GraphTask], ends: Mapping[str, Number]) -> Dict[str, Span]:
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
    place = {task.name: number for number, task in enumerate(tasks)}
    for task in sorted(tasks, key=lambda each: (moments[each.name], place[each.name])):
        ready = max((moments[need] for need in task.needs), default=0.0)
        end = moments[task.name]
        spans[task.name] = (min(end, max(ready, free.get(task.lane, 0.0))), end)
        free[task.lane] = end
    return spans


def side_by_side(tasks: Sequence[GraphTask], spans: Mapping[str, Span]) -> float:
    """The share of the time in which two or more lanes were busy.

    >>> tasks = [GraphTask("a", 0), GraphTask("b", 1)]
    >>> side_by_side(tasks, {"a": (0.0, 3.0), "b": (2.0, 4.0)})
    0.25
    """
    borders = sorted({moment for span in spans.values() for moment in span})
    both = 0.0
    for start, end in zip(borders, borders[1:]):
        busy = {task.lane for task in tasks if spans[task.name][0] <= start and end <= spans[task.name][1]}
        both += (end - start) * (len(busy) > 1)
    return both / length(spans) if both else 0.0
