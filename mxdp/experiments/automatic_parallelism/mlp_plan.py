"""A step of training the two-layer network of the book's figure, as tasks. Pure Python."""

from __future__ import annotations

from typing import Dict, List, Tuple

from mxdp.experiments.automatic_parallelism.task_graph import Task

PRODUCTS = {"fc1 forward": 1.0, "fc2 forward": 1.0, "loss": 0.02, "fc2 backward": 2.0, "fc1 backward": 1.0}
"""What a worker does, in matrix products of its share."""
SMALL = 0.05
"""What each thing that the keeper does takes, in such products of the whole batch: copies, sums, updates of weights."""


def plan(workers: int, steps: int) -> List[Task]:
    """The tasks of some steps, in the order of the program. Lane 0 keeps the weights and lane 1 + rank is a worker's;
    with no workers, lane 0 does everything."""
    ranks = range(max(1, workers))
    tasks: List[Task] = []
    for step in range(steps):
        before = {name: (f"{name} {step - 1}",) if step else () for name in ("fc1 copy", "fc2 copy")}
        tasks.append(Task(f"batch {step}", 0, (), SMALL))
        for rank in ranks:
            lane = 1 + rank if workers else 0
            needs: Dict[str, Tuple[str, ...]] = {
                "fc1 forward": (f"batch {step}", *before["fc1 copy"]),
                "fc2 forward": (f"fc1 forward {step} @{rank}", *before["fc2 copy"]),
                "loss": (f"fc2 forward {step} @{rank}", f"batch {step}"),
                "fc2 backward": (f"loss {step} @{rank}", f"fc1 forward {step} @{rank}", *before["fc2 copy"]),
                "fc1 backward": (f"fc2 backward {step} @{rank}", f"batch {step}"),
            }
            tasks += [
                Task(f"{name} {step} @{rank}", lane, needs[name], products / len(ranks))
                for name, products in PRODUCTS.items()
            ]
        for layer in (2, 1):
            name = f"fc{layer}"
            tasks.append(
                Task(f"{name} sum {step}", 0, tuple(f"{name} backward {step} @{rank}" for rank in ranks), SMALL)
            )
            weights = (f"{name} update {step - 1}",) if step else ()
            tasks.append(Task(f"{name} update {step}", 0, (f"{name} sum {step}", *weights), SMALL))
            tasks.append(Task(f"{name} copy {step}", 0, (f"{name} update {step}",), SMALL))
    return tasks


def label(name: str) -> str:
    """What stands in a task's box.

    >>> label("fc2 backward 1 @0"), label("batch 1")
    ('fc2 backward', 'batch')
    """
    return name.split(" @")[0].rpartition(" ")[0]
