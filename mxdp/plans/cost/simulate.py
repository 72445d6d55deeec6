"""One simulator for every plan: all-reduces, pipelines and graphs of tasks become jobs, and :func:`simulate` runs them.

::

    Python     push a   push b   push c                     Python pushes one job after another
    worker 0            a ------------------ c -------      a worker runs jobs in the order in which they became ready
    worker 1                     b ---------                with fewer cores than running jobs, all slow down alike

Jobs share the cores evenly, as the operating system does it. Python needs a core while it pushes: without that,
pipelines of 4 stages are off by 12 %, not 8 %, and of two all-reduces the one with more operations seems the faster.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import (
    Any,
    Dict,
    Generic,
    Hashable,
    List,
    Mapping,
    Optional,
    Sequence,
    Set,
    Tuple,
    TypeVar,
)

from mxdp.plans.collective.operations import Slot, adds_in_place, operations
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.machine import Machine
from mxdp.plans.pipeline import BACKWARD, FORWARD, PipelinePlan, StageTask, needs, order

Name = TypeVar("Name", bound=Hashable)
StartEnd = Tuple[float, float]
"""Start and end, in seconds (or in the unit of the costs)."""


@dataclass(frozen=True)
class Job(Generic[Name]):
    """Work for one worker of the device ``lane``. ``needs``: names of the jobs that must end before; ``cost``: its time
    alone, in any unit; ``together``: its time while others run on other cores (default: the same)."""

    name: Name
    lane: int
    needs: Tuple[Name, ...] = ()
    cost: float = 1.0
    together: Optional[float] = None

    def seconds(self, others: bool) -> float:
        """While others run on other cores, or alone."""
        return self.together if others and self.together is not None else self.cost


def simulate(
    groups: Sequence[Sequence[Job[Name]]], cores: int, workers: int = 1, push: float = 0.0
) -> Dict[Name, StartEnd]:
    """When each job runs, in the order in which they end. Raises a ValueError if a job needs one that is missing or
    comes in a later group.

    Args:
        groups: jobs in the order in which Python pushes them. Python waits for all jobs of a group before the next.
        cores: shared evenly by the jobs that run, and by Python while it pushes.
        workers: of each lane.
        push: Python's time for one job.

    >>> long, short = Job("long", 0, cost=2.0), Job("short", 1)
    >>> join = Job("join", 1, needs=("long", "short"))
    >>> simulate([[long, short, join]], cores=2)["join"], simulate([[long, short, join]], cores=1)["join"]
    ((2.0, 3.0), (3.0, 4.0))
    """
    spans: Dict[Name, StartEnd] = {}
    now = 0.0
    for group in groups:
        pushed = 0 if push else len(group)
        push_left = 1.0  # the share of a push that is still to do
        freed = list(range(pushed))  # places in the group of jobs that may be ready now
        # By a job that has not ended: the places of those that need it.
        waiting: Dict[Optional[Name], List[int]] = {}
        ready: List[Job[Name]] = []
        running: List[Job[Name]] = []
        started: Dict[Name, float] = {}
        left: Dict[Name, float] = {}  # the share of a job that is still to do
        while True:
            for place in sorted(freed):
                missing = next((need for need in group[place].needs if need not in spans), None)
                waiting.setdefault(missing, []).append(place)
            freed = []
            queue = ready + [group[place] for place in waiting.pop(None, [])]
            ready = []
            for job in queue:
                if sum(other.lane == job.lane for other in running) < workers:
                    running.append(job)
                    started[job.name] = now
                    left[job.name] = 1.0
                else:
                    ready.append(job)
            pushing = 1 if pushed < len(group) else 0
            if not running and not pushing:
                break
            # Go on to the next end of a job or of a push.
            slower = max(1.0, (len(running) + pushing) / cores)
            shared = min(len(running), cores) > 1
            seconds = [slower * job.seconds(shared) for job in running]
            push_seconds = push * slower
            ends = [left[job.name] * whole for job, whole in zip(running, seconds)]
            if pushing:
                ends.append(push_left * push_seconds)
            step = min(ends)
            now += step
            for job, whole in zip(running, seconds):
                left[job.name] -= step / whole if whole else 1.0
                if left[job.name] <= 1e-12:
                    spans[job.name] = (started[job.name], now)
                    freed += waiting.pop(job.name, [])
            running = [job for job in running if job.name not in spans]
            if pushing:
                push_left -= step / push_seconds
                if push_left <= 1e-12:
                    freed.append(pushed)
                    pushed += 1
                    push_left = 1.0
        if waiting:
            first = group[min(chain.from_iterable(waiting.values()))]
            raise ValueError(
                f"{first.name!r} needs {', '.join(map(str, first.needs))}: not all of them end before it"
            )
    return spans


def last_end(spans: Mapping[Any, StartEnd]) -> float:
    """When the last of these jobs ends; 0 if there is none."""
    return max((end for _, end in spans.values()), default=0.0)


def predict(schedule: Schedule, nbytes: int, machine: Machine, itemsize: int = 4) -> float:
    """Seconds of a collective over vectors of ``nbytes`` bytes, from the first push to the end of the last operation.
    ``itemsize``: bytes of a number. Fewer numbers than chunks leave chunks empty.

    Unlike the textbook's formula (:func:`mxdp.plans.cost.link.allreduce_seconds`) it counts what a plan meets in MXNet:
    a device does one operation after another; one that writes an array waits for its readers, and all chunks of a
    vector are one array; Python pushes one after another; sums take time; and devices share the cores and the memory.
    """
    jobs = collective_jobs(schedule, nbytes, machine, itemsize)
    return last_end(simulate([jobs], machine.cores, push=machine.push))


def collective_jobs(
    schedule: Schedule, nbytes: int, machine: Machine, itemsize: int = 4
) -> List[Job[int]]:
    """The jobs of :func:`predict`. Each needs the writers of what it reads, and all users of what it writes."""
    if not nbytes:
        return []
    length = sum(schedule.sizes) or -(-nbytes // itemsize)
    in_place = adds_in_place(schedule, nbytes)
    sizes = [(stop - start) * nbytes / length for start, stop in schedule.borders(length)]
    todo = operations(schedule, in_place, [size > 0 for size in sizes])
    slots = {slot for operation in todo for slot in (*operation.sources, operation.target)}
    footprint = sum(sizes[slot.chunk] for slot in slots)

    def array(slot: Slot) -> Hashable:
        """The array that MXNet sees: a staging buffer, or a device's whole vector."""
        return slot if slot.buffer or schedule.sizes or in_place else slot.device

    wrote: Dict[Hashable, int] = {}
    read: Dict[Hashable, Set[int]] = {}
    jobs = []
    for number, operation in enumerate(todo):
        sources = {array(slot) for slot in operation.sources}
        target = array(operation.target)
        before = {wrote[used] for used in sources | {target} if used in wrote}
        before |= read.get(target, set())
        size = sizes[operation.target.chunk]
        alone = machine.seconds(operation, size, footprint, others=False)
        together = machine.seconds(operation, size, footprint, others=True)
        jobs.append(Job(number, operation.worker, tuple(before), alone, together))
        for source in sources:
            read.setdefault(source, set()).add(number)
        wrote[target] = number
        read[target] = set()
    return jobs


def pipeline_spans(
    plan: PipelinePlan,
    forward: Sequence[float],
    backward: Sequence[float] = (),
    transfer: Sequence[float] = (),
    cores: Optional[int] = None,
    push: float = 0.0,
) -> Dict[StageTask, StartEnd]:
    """When each task of a pipeline runs, in the order in which they end. A task ends when its message to the next stage
    is sent (a copy between CPU devices is the work of its source). Raises a ValueError if the number of times is not
    that of the stages, or of the borders between them.

    Args:
        forward: seconds of one micro-batch's forward pass, by stage; ``backward``: likewise.
        transfer: seconds of a message between stages s and s + 1, in either direction (default: 0).
        cores: shared by the devices and Python (default: one for each); ``push``: Python's seconds for one task.

    >>> from mxdp.plans.pipeline import gpipe
    >>> for (stage, task), (start, stop) in pipeline_spans(gpipe(2, 1), [1, 2], [3, 1], transfer=[0.5]).items():
    ...     print(stage, task, start, stop)
    0 F0 0.0 1.5
    1 F0 1.5 3.5
    1 B0 3.5 5.0
    0 B0 5.0 8.0
    """
    tasks = order(plan)
    back = any(task.kind == BACKWARD for _, task in tasks)
    if len(forward) != plan.stages or len(backward) != (plan.stages if back else 0):
        raise ValueError(
            f"{plan.name} has {plan.stages} stages, each with a time for every pass it makes; got {len(forward)}"
            f" forward and {len(backward)} backward"
        )
    borders = plan.stages - 1
    sent = transfer or [0.0] * borders
    if len(sent) != borders:
        raise ValueError(
            f"{plan.stages} stages have {borders} borders between them, not {len(sent)}"
        )
    costs = {
        FORWARD: [sum(pair) for pair in zip(forward, [*sent, 0.0])],
        BACKWARD: [sum(pair) for pair in zip(backward, [0.0, *sent])],
    }
    jobs = []
    before: Dict[int, List[StageTask]] = {}  # the stage's last task, if it has one
    for stage, task in tasks:
        awaited = needs(plan, stage, task) + before.get(stage, [])
        jobs.append(Job((stage, task), stage, tuple(awaited), costs[task.kind][stage]))
        before[stage] = [(stage, task)]
    return simulate([jobs], cores or plan.stages + 1, push=push)
