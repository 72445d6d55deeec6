"""A computation as a graph of tasks, each on one device: planned as data, and played through before it is run.

::

    stem ──┬── long 1 ── long 2 ──┬── join        one line: needs
           └── short ─────────────┘

A *lane* is a device. Tasks are pushed in *groups*, with a wait after each: one group for all leaves everything to
MXNet's engine, one for each task leaves nothing to it, and what a person would do lies between. Pure Python.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Mapping, Sequence, Tuple

Span = Tuple[float, float]
"""From when to when, in seconds (or whatever the costs are in)."""


@dataclass(frozen=True)
class Task:
    """``needs``: names of the tasks whose results it takes; ``cost``: how long it takes alone, in any unit."""

    name: str
    lane: int
    needs: Tuple[str, ...] = ()
    cost: float = 1.0


Groups = Sequence[Sequence[Task]]


def one_by_one(tasks: Sequence[Task]) -> Groups:
    """A wait after each task."""
    return [[task] for task in tasks]


def simulate(groups: Groups, cores: int, workers: int = 1) -> Dict[str, Span]:
    """When each task would run, if a lane does what is ready in the order in which it became ready, as MXNet's do.

    A lane runs one task at a time, or ``workers``. Where more tasks run than there are ``cores``, all go slower alike.

    >>> long, short = Task("long", 0, cost=2.0), Task("short", 1)
    >>> join = Task("join", 1, needs=("long", "short"))
    >>> simulate([[long, short, join]], cores=2)["join"], simulate([[long, short, join]], cores=1)["join"]
    ((2.0, 3.0), (3.0, 4.0))

    Raises:
        ValueError: a task needs one that is not there or comes in a later group.
    """
    spans: Dict[str, Span] = {}
    clock = 0.0
    for group in groups:
        clock = _play(group, cores, workers, spans, clock)
    return spans


def _play(group: Sequence[Task], cores: int, workers: int, spans: Dict[str, Span], clock: float) -> float:
    """Add the group's spans to ``spans``; returns when it is over."""
    waiting = list(group)
    queue: List[Task] = []
    running: List[Tuple[Task, float, float]] = []  # what is left of each, and when it began
    while True:
        ready = [task for task in waiting if all(need in spans for need in task.needs)]
        waiting = [task for task in waiting if task not in ready]
        queue += ready
        for task in list(queue):
            if sum(other.lane == task.lane for other, _, _ in running) < workers:
                running.append((task, task.cost, clock))
                queue.remove(task)
        if not running:
            break
        speed = min(1.0, cores / len(running))
        least = min(left for _, left, _ in running)
        clock += least / speed
        for task, left, began in running:
            if left - least <= 1e-9 * left:
                spans[task.name] = (began, clock)
        running = [(task, left - least, began) for task, left, began in running if task.name not in spans]
    if waiting:
        raise ValueError(f"{waiting[0].name!r} needs {', '.join(waiting[0].needs)}, which are not all done before it")
    return clock


def length(spans: Mapping[str, Span]) -> float:
    """From the first start to the last end."""
    return max(end for _, end in spans.values()) - min(start for start, _ in spans.values())


def from_ends(tasks: Sequence[Task], ends: Mapping[str, float]) -> Dict[str, Span]:
    """Spans from the moments at which the tasks ended, counted from the moment of the first push.

    A lane does one thing at a time and never waits with work at hand, so a task began when the last of what it needs
    was done, or the task that ended before it on its lane. A moment noted too late is put right as far as others prove
    it: whatever needs the task ended later. ``tasks`` come after all that they need.
    """
    moments = dict(ends)
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


def side_by_side(tasks: Sequence[Task], spans: Mapping[str, Span]) -> float:
    """The share of the time in which two or more lanes were busy.

    >>> tasks = [Task("a", 0), Task("b", 1)]
    >>> side_by_side(tasks, {"a": (0.0, 3.0), "b": (2.0, 4.0)})
    0.25
    """
    borders = sorted({moment for span in spans.values() for moment in span})
    both = 0.0
    for start, end in zip(borders, borders[1:]):
        busy = {task.lane for task in tasks if spans[task.name][0] <= start and end <= spans[task.name][1]}
        both += (end - start) * (len(busy) > 1)
    return both / length(spans) if both else 0.0
