"""Pipelines: a network in stages and a batch in micro-batches; which stage works on which micro-batch, and when.

Stage s lies on device s. A micro-batch passes forward through all stages (``F``), and its gradients pass back (``B``).
With one micro-batch, only one device works at a time; with several, the devices overlap. Three stages, four
micro-batches, and a forward pass that takes as long as a backward pass (see :func:`gpipe`)::

    cycle     0   1   2   3   4   5   6   7   8   9   10  11
    stage 0   F0  F1  F2  F3                  B3  B2  B1  B0
    stage 1       F0  F1  F2  F3          B3  B2  B1  B0
    stage 2           F0  F1  F2  F3  B3  B2  B1  B0

The empty places are the *bubble* (:func:`bubble`), equal for both schedules. These differ in memory: a stage keeps the
activations of a micro-batch from F to B (:func:`kept`). The makers of plans raise a ValueError for less than one stage
or micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Callable, Dict, List, Optional, Set, Tuple

from mxdp.errors import did_you_mean

FORWARD = "F"
BACKWARD = "B"


@dataclass(frozen=True)
class Task:
    """One pass of one micro-batch through one stage."""

    kind: str
    micro_batch: int

    def __str__(self) -> str:
        return f"{self.kind}{self.micro_batch}"


@dataclass(frozen=True)
class PipelinePlan:
    """``tasks[stage]``: the tasks of this stage's device, in their order."""

    name: str
    stages: int
    micro_batches: int
    tasks: Tuple[Tuple[Task, ...], ...]

    def __str__(self) -> str:
        lines = [f"{self.name}: {self.stages} stages, {self.micro_batches} micro-batches"]
        for stage, tasks in enumerate(self.tasks):
            lines.append(f"stage {stage}: {' '.join(map(str, tasks))}")
        return "\n".join(lines)


StageTask = Tuple[int, Task]
"""A stage, and one of its tasks."""


def gpipe(stages: int, micro_batches: int) -> PipelinePlan:
    """All forward passes, then all backward passes, the last micro-batch first. The drawing above is ``gpipe(3, 4)``. A
    stage keeps the activations of all m micro-batches. Source: Huang et al., "GPipe: efficient training of giant neural
    networks using pipeline parallelism", NeurIPS 2019."""
    _check(stages, micro_batches)
    tasks = [Task(FORWARD, number) for number in range(micro_batches)]
    tasks += [Task(BACKWARD, number) for number in reversed(range(micro_batches))]
    return PipelinePlan("gpipe", stages, micro_batches, (tuple(tasks),) * stages)


def one_f_one_b(stages: int, micro_batches: int) -> PipelinePlan:
    """Some forward passes to fill the pipeline, then one backward pass and one forward pass alternately.

    ::

        cycle     0   1   2   3   4   5   6   7   8   9   10  11
        stage 0   F0  F1  F2          B0  F3  B1      B2      B3
        stage 1       F0  F1      B0  F2  B1  F3  B2      B3
        stage 2           F0  B0  F1  B1  F2  B2  F3  B3

    It takes as many cycles as GPipe, but stage s keeps the activations of only min(m, p - s) micro-batches: at most one
    for each stage from s to the last. Source: Fan et al., "DAPPLE: a pipelined data parallel approach for training
    large models", PPoPP 2021; Narayanan et al., "Memory-efficient pipeline-parallel DNN training", ICML 2021.
    """
    _check(stages, micro_batches)
    plan = []
    for stage in range(stages):
        filling = min(micro_batches, stages - stage)
        tasks = [Task(FORWARD, number) for number in range(filling)]
        for number in range(micro_batches):
            tasks.append(Task(BACKWARD, number))
            if filling + number < micro_batches:
                tasks.append(Task(FORWARD, filling + number))
        plan.append(tuple(tasks))
    return PipelinePlan("1f1b", stages, micro_batches, tuple(plan))


def inference(stages: int, micro_batches: int) -> PipelinePlan:
    """Only forward passes, in m + p - 1 cycles."""
    _check(stages, micro_batches)
    tasks = tuple(Task(FORWARD, number) for number in range(micro_batches))
    return PipelinePlan("inference", stages, micro_batches, (tasks,) * stages)


PIPELINES: Dict[str, Callable[[int, int], PipelinePlan]] = {"1f1b": one_f_one_b, "gpipe": gpipe}
"""The schedules for training, by name."""


def pipeline(schedule: str, stages: int, micro_batches: int) -> PipelinePlan:
    """The plan of the schedule with this name. Raises a ValueError if there is none."""
    if schedule not in PIPELINES:
        raise ValueError(
            f"no schedule is called {schedule!r}; {did_you_mean(schedule, sorted(PIPELINES))}"
        )
    return PIPELINES[schedule](stages, micro_batches)


def needs(plan: PipelinePlan, stage: int, task: Task) -> List[StageTask]:
    """The tasks that must end before this one, apart from the earlier tasks of its own stage.

    >>> [(stage, str(task)) for stage, task in needs(gpipe(3, 2), 1, Task("B", 0))]
    [(1, 'F0'), (2, 'B0')]
    """
    if task.kind == FORWARD:
        before = [(stage - 1, task)]
    else:
        before = [(stage, Task(FORWARD, task.micro_batch)), (stage + 1, task)]
    return [each for each in before if each[0] in range(plan.stages)]


def cycles(plan: PipelinePlan) -> List[Tuple[Optional[Task], ...]]:
    """The staircase: for each clock cycle the task of each stage, or None if it idles. Every task takes one cycle."""
    waiting = [list(tasks) for tasks in plan.tasks]
    done: Set[StageTask] = set()
    rows: List[Tuple[Optional[Task], ...]] = []
    while any(waiting):
        row = []
        for stage, tasks in enumerate(waiting):
            ready = tasks and all(need in done for need in needs(plan, stage, tasks[0]))
            row.append(tasks.pop(0) if ready else None)
        if not any(row):
            raise ValueError(
                f"{plan.name} never ends: after cycle {len(rows)} every stage waits for another"
            )
        done.update((stage, task) for stage, task in enumerate(row) if task)
        rows.append(tuple(row))
    return rows


def order(plan: PipelinePlan) -> List[StageTask]:
    """All tasks in an order in which one device could run them all: cycle by cycle, the first stage first.

    >>> [f"{stage}:{task}" for stage, task in order(gpipe(2, 2))]
    ['0:F0', '0:F1', '1:F0', '1:F1', '1:B1', '0:B1', '1:B0', '0:B0']
    """
    return [(stage, task) for row in cycles(plan) for stage, task in enumerate(row) if task]


def bubble(stages: int, micro_batches: int) -> float:
    """The share of empty places in the staircase: (p - 1) / (m + p - 1), for GPipe and for 1F1B."""
    return (stages - 1) / (micro_batches + stages - 1)


def kept(plan: PipelinePlan) -> List[int]:
    """For each stage, the largest number of micro-batches between F and B, whose activations it keeps.

    >>> kept(gpipe(3, 4)), kept(one_f_one_b(3, 4)), kept(inference(3, 4))
    ([4, 4, 4], [3, 2, 1], [0, 0, 0])
    """
    most = []
    for tasks in plan.tasks:
        back = {task.micro_batch for task in tasks if task.kind == BACKWARD}
        alive = 0
        largest = 0
        for task in tasks:
            if task.kind == BACKWARD:
                alive -= 1
            elif task.micro_batch in back:
                alive += 1
            largest = max(largest, alive)
        most.append(largest)
    return most


def _check(stages: int, micro_batches: int) -> None:
    if stages < 1 or micro_batches < 1:
        raise ValueError(
            f"a pipeline has at least one stage and one micro-batch, not {stages} stages and {micro_batches}"
            " micro-batches"
        )
