"""What the experiments on pipelines run and compare. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

from typing import Any, Callable, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, autograd, upload
from mxdp.experiments.measure.memory import peak_bytes
from mxdp.experiments.measure.oracle import count_wrong
from mxdp.layers import Conv, Dense, LayerParams, Net, Pool, Relu, forward, init
from mxdp.parallel.pipeline import Pipeline
from mxdp.process import cores
from mxdp.scratch import cross_entropy, get_params, sgd
from mxdp.tracing import Timeline, record
from mxdp.tracing.recording import can_record

NET: Net = (
    Conv(20, kernel=3), Relu(), Conv(20, kernel=3), Relu(), Pool(2, kind="avg"),
    Conv(60, kernel=3), Relu(), Conv(60, kernel=3), Relu(), Pool(2, kind="avg"),
    Dense(10),
)  # fmt: skip
"""Can be cut into two halves that take nearly as long. Like LeNet's its convolutions use none of oneDNN's temporary
space, so that the memory of a step is that of its activations."""
INPUT = (1, 28, 28)
LR = 0.01
RECORDED = 3

Span = Tuple[int, str, float, float]
"""Stage, task, start and end in seconds."""


def problem(samples: int, seed: int) -> Tuple[List[LayerParams], HostArray, HostArray]:
    """Parameters on ``cpu(0)``; pictures and labels on the host."""
    random = onp.random.RandomState(seed)
    X = random.uniform(-1, 1, (samples, *INPUT)).astype("float32")
    return init(NET, INPUT, seed), X, random.randint(0, 10, samples)


def check_pipeline(made: Pipeline, params: List[LayerParams], X: HostArray, y: HostArray) -> Tuple[int, int]:
    """Scores, losses and gradients of a step, and the parameters after it, against the plain run on one device:
    (compared, wrong). There is no batch normalisation, so micro-batches change nothing."""
    own = [get_params(layer, made.devices[0]) for layer in params]
    flat = [param for layer in own for param in layer]
    with autograd.record():
        scores = forward(NET, upload(X, made.devices[0]), own)
        losses = cross_entropy(scores, upload(y, made.devices[0]))
    losses.backward()
    expected = [scores.asnumpy(), losses.asnumpy(), *(param.grad.asnumpy() for param in flat)]
    sgd(flat, LR, len(X))
    actual = [made.scores(X).asnumpy(), made.step(X, y).asnumpy()]
    actual += [array.asnumpy() for layer in made.gradients() for array in layer]
    made.update(LR, len(X))
    actual += [array.asnumpy() for layer in made.params() for array in layer]
    counts = [count_wrong(*pair) for pair in zip(actual, expected + [param.asnumpy() for param in flat])]
    return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)


def memory(devices: Sequence[Device], lasting: Sequence[int], work: Callable[[], Any]) -> Optional[List[int]]:
    """Most bytes on each device while ``work`` runs, with those in ``lasting``, which are there already; None where
    MXNet can't count (so many CPU devices that its profiler can't follow). Waits."""
    if not can_record(devices):
        return None
    return [sum(pair) for pair in zip(peak_bytes(work, devices), lasting)]


def workers(made: Pipeline) -> int:
    """How many of the pipeline's devices, and Python, can work at the same time: as many as there are cores, or all, if
    they are GPUs."""
    return cores() if made.devices[0].device_type == "cpu" else len(made.devices) + 1


def recorded_spans(made: Pipeline, X: HostArray, y: HostArray) -> List[Span]:
    """When each task of a step really ran, in the quickest of a few recorded ones; empty where MXNet's profiler can't
    follow. Waits."""
    if not can_record(made.devices):
        return []
    found = []
    for _ in range(RECORDED):
        with record(made.devices) as recording:
            made.step(X, y)
        found.append(spans(recording.timeline, made))
    return min(found, key=lambda each: max(stop for _, _, _, stop in each))


def spans(timeline: Timeline, made: Pipeline) -> List[Span]:
    """The tasks in a recording: on each device in the plan's order, each ended by the passing of its stage's token."""
    found: List[Span] = []
    for stage, device in enumerate(made.devices):
        tasks = list(made.plan.tasks[stage])
        work: List[Any] = []
        for event in timeline.lanes[str(device)]:
            if event.name == "ImperativeBulk":
                work.append(event)
            elif event.name == "size_array" and work:
                found.append((stage, str(tasks.pop(0)), work[0].start, work[-1].end))
                work = []
    began = min(start for _, _, start, _ in found)
    return [(stage, task, start - began, stop - began) for stage, task, start, stop in found]
