"""A net with branches on two devices, and ways to order its tasks. Pure Python.

::

    device 0   stem ─┬─ short 1 ... short 5 ───────────────── mid 2 ─┬─ join
                     │                               ┌───────────┘   │
    device 1         ├─ mid 1 ───────────────────────┘               │
                     └─ long 1, long 2, ... long 6 ──────────────────┘

Each task is one matrix product; there are 15, and copies where a line crosses devices.
"""

from __future__ import annotations

from typing import Dict, Sequence

from mxdp.experiments.automatic_parallelism.task_graph import Groups, Task, length, one_by_one
from mxdp.plans.cost.simulate import simulate

COPY = 0.02
"""What a copy takes, in products."""
LONG = [
    Task("copy for long 1", 0, ("stem",), COPY),
    Task("long 1", 1, ("copy for long 1",)),
    *(Task(f"long {number}", 1, (f"long {number - 1}",)) for number in range(2, 7)),
    Task("copy for join", 1, ("long 6",), COPY),
]
MID = [
    Task("copy for mid 1", 0, ("stem",), COPY),
    Task("mid 1", 1, ("copy for mid 1",)),
    Task("copy for mid 2", 1, ("mid 1",), COPY),
    Task("mid 2", 0, ("copy for mid 2",)),
]
SHORT = [Task(f"short {number}", 0, ("stem",)) for number in range(1, 6)]
STEM, JOIN = Task("stem", 0), Task("join", 0, ("copy for join", "mid 2", *(task.name for task in SHORT)))
TASKS = [STEM, *LONG, *MID, *SHORT, JOIN]
LONG_LAST = [STEM, *MID, *SHORT, *LONG, JOIN]
# By hand: in each phase work for both devices.
PHASES = [
    [STEM],
    [LONG[0], MID[0], *LONG[1:2], *MID[1:2], *SHORT[:2]],
    [*LONG[2:6], *MID[2:], *SHORT[2:]],
    LONG[6:],
    [JOIN],
]
WAYS: Dict[str, Groups] = {
    "one": [TASKS],
    "waits": one_by_one(TASKS),
    "by hand": PHASES,
    "engine": [TASKS],
    "long last": [LONG_LAST],
    "2 workers": [LONG_LAST],
}


def modelled(way: str, cores: int, tasks: Sequence[Task]) -> float:
    """How long a way takes, if the tasks have these costs; in their unit."""
    by_name = {task.name: task for task in tasks}
    groups = [[by_name[task.name] for task in group] for group in WAYS[way]]
    return length(simulate(groups, cores, workers=2 if way == "2 workers" else 1))
