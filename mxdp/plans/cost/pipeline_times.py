"""How long a pipeline takes: its plan played through with the times of its stages.

Each device has a worker that does its stage's tasks in the plan's order, and sends what the next stage needs (a copy on
CPU devices is the work of its source). Python pushes one task after another. Workers and Python share the cores: while
more of them work than there are cores, each gets its share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional, Sequence, Set, Tuple

from mxdp.plans.pipeline import FORWARD, PipelinePlan, Place, Task, needs, order

PYTHON = -1


@dataclass(frozen=True)
class Span:
    """When a task began and ended, in seconds, its message to the next stage included."""

    stage: int
    task: Task
    start: float
    stop: float


def replay(
    plan: PipelinePlan,
    forward: Sequence[float],
    backward: Sequence[float] = (),
    transfer: Sequence[float] = (),
    cores: Optional[int] = None,
    push: float = 0.0,
) -> List[Span]:
    """Every task with its times, in the order in which they end.

    Args:
        forward: seconds of a forward pass of one micro-batch, stage by stage; ``backward``: likewise.
        transfer: seconds of a message between stages s and s + 1, either way (default: none).
        cores: how many can work at the same time (default: all).
        push: Python's seconds for a task.

    >>> from mxdp.plans.pipeline import gpipe
    >>> for span in replay(gpipe(2, 1), forward=[1, 2], backward=[3, 1], transfer=[0.5]):
    ...     print(span.stage, span.task, span.start, span.stop)
    0 F0 0.0 1.5
    1 F0 1.5 3.5
    1 B0 3.5 5.0
    0 B0 5.0 8.0

    Raises:
        ValueError: not a time for each stage, or not a transfer for each border between two.
    """
    _check(plan, forward, backward, transfer)
    seconds = {place: _seconds(plan, place, forward, backward, transfer) for place in order(plan)}
    return _Replay(plan, seconds, cores or plan.stages + 1, push).run()


def predicted_seconds(
    plan: PipelinePlan,
    forward: Sequence[float],
    backward: Sequence[float] = (),
    transfer: Sequence[float] = (),
    cores: Optional[int] = None,
    push: float = 0.0,
) -> float:
    """From the first push to the last task's end; arguments and errors as for :func:`replay`.

    >>> from mxdp.plans.pipeline import gpipe
    >>> predicted_seconds(gpipe(2, 1), [1, 1], [2, 2]), predicted_seconds(gpipe(2, 4), [0.25] * 2, [0.5] * 2)
    (6.0, 3.75)
    >>> predicted_seconds(gpipe(2, 4), [0.25] * 2, [0.5] * 2, cores=1)
    6.0
    """
    return max(span.stop for span in replay(plan, forward, backward, transfer, cores, push))


class _Replay:
    """Time goes on from one moment at which something ends to the next."""

    def __init__(self, plan: PipelinePlan, seconds: Dict[Place, float], cores: int, push: float) -> None:
        self.plan, self.seconds, self.cores, self.push = plan, seconds, cores, push
        self.to_push = list(order(plan)) if push else []
        self.pushed: Set[Place] = set() if push else set(order(plan))
        self.waiting = [list(own) for own in plan.tasks]
        self.done: Set[Place] = set()
        self.started: Dict[int, Tuple[Task, float]] = {}
        self.left: Dict[int, float] = {PYTHON: push} if push else {}
        """By worker, the seconds of work that are still to do."""

    def run(self) -> List[Span]:
        now, spans = 0.0, []
        self._start(now)
        while self.left:
            pace = min(1.0, self.cores / len(self.left))
            step = min(self.left.values())
            now += step / pace
            for worker in sorted(self.left):
                self.left[worker] -= step
            for worker in [worker for worker, left in sorted(self.left.items()) if left <= 1e-12]:
                del self.left[worker]
                if worker == PYTHON:
                    self._push()
                else:
                    task, start = self.started.pop(worker)
                    self.done.add((worker, task))
                    spans.append(Span(worker, task, start, now))
            self._start(now)
        return spans

    def _push(self) -> None:
        self.pushed.add(self.to_push.pop(0))
        if self.to_push:
            self.left[PYTHON] = self.push

    def _start(self, now: float) -> None:
        for stage, own in enumerate(self.waiting):
            if stage in self.started or not own or (stage, own[0]) not in self.pushed:
                continue
            if all(need in self.done for need in needs(self.plan, stage, own[0])):
                task = own.pop(0)
                self.started[stage] = (task, now)
                self.left[stage] = self.seconds[stage, task]


def _seconds(
    plan: PipelinePlan, place: Place, forward: Sequence[float], backward: Sequence[float], transfer: Sequence[float]
) -> float:
    stage, task = place
    if task.kind == FORWARD:
        return forward[stage] + (transfer[stage] if transfer and stage + 1 < plan.stages else 0.0)
    return backward[stage] + (transfer[stage - 1] if transfer and stage else 0.0)


def _check(plan: PipelinePlan, forward: Sequence[float], backward: Sequence[float], transfer: Sequence[float]) -> None:
    back = any(task.kind != FORWARD for own in plan.tasks for task in own)
    if len(forward) != plan.stages or len(backward) != (plan.stages if back else 0):
        raise ValueError(
            f"{plan.name} has {plan.stages} stages, each with a time for every pass it makes; got {len(forward)}"
            f" forward and {len(backward)} backward"
        )
    if transfer and len(transfer) != plan.stages - 1:
        raise ValueError(f"{plan.stages} stages have {plan.stages - 1} borders between them, not {len(transfer)}")
