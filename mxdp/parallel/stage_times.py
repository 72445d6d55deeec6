"""How long each stage of a pipeline takes when no other works: what a prediction of the whole starts from."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from typing import Any, Callable, List, Optional, Sequence, Tuple

from mxdp.backend import Batch, Device, NDArray, np, npx
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.traffic import load

AT_ONCE = 4
"""Micro-batches that are pushed one after the other, so that Python's time for the next is hidden, as in a pipeline."""


@dataclass(frozen=True)
class StageTimes:
    """Seconds of a pass of one micro-batch, stage by stage, its message to the next stage included; and of Python's
    push of one task (the mean)."""

    forward: List[float]
    backward: List[float]
    push: float


def measure_stages(pipeline: Pipeline, X: Batch, y: Optional[Batch]) -> StageTimes:
    """One stage after the other, alone, with the first (and so a largest) micro-batch of the batch. Waits.

    A few passes follow one another, and their mean is taken. No warm-up: run a step before. The gradients that the
    pipeline holds afterwards are of no use. Without labels ``y``: passes that keep nothing, as for scores, and no
    ``backward``.

    Raises:
        ValueError: fewer samples than micro-batches.
    """
    start, stop = pipeline.pieces(len(X))[0]
    x, labels = X[start:stop], None if y is None else y[start:stop]
    forward: List[float] = []
    backward: List[float] = []
    pushes: List[float] = []
    for place in range(len(pipeline.stages)):
        if labels is None:
            x = _ahead(pipeline, place, x, forward, pushes)
        else:
            x = _there_and_back(pipeline, place, x, labels, forward, backward, pushes)
    return StageTimes(forward, backward, sum(pushes) / len(pushes))


def _ahead(pipeline: Pipeline, place: int, x: Batch, forward: List[float], pushes: List[float]) -> NDArray:
    """As :func:`_there_and_back`, without the way back."""
    stage = pipeline.stages[place]
    loaded = load(x, stage.device)
    seconds, sent = _timed([partial(stage.infer, loaded, _onward(pipeline, place))] * AT_ONCE, pushes)
    forward.append(seconds)
    return sent[0]


def _there_and_back(
    pipeline: Pipeline,
    place: int,
    x: Batch,
    y: Batch,
    forward: List[float],
    backward: List[float],
    pushes: List[float],
) -> NDArray:
    """Measure the stage at ``place``, adding to the lists; what it gives to the next."""
    stage, last, onward = pipeline.stages[place], place + 1 == len(pipeline.stages), _onward(pipeline, place)
    behind = pipeline.devices[place - 1] if place else None
    numbers = range(min(AT_ONCE, pipeline.plan.micro_batches))
    # An array that two recordings share could be differentiated once only: each pass has its own.
    xs = [load(x, stage.device) for _ in numbers]
    ys = [load(y, stage.device) if last else None for _ in numbers]
    stage.kept.clear()
    seconds, sent = _timed([partial(stage.forward, n, xs[n], onward, ys[n]) for n in numbers], pushes)
    forward.append(seconds)
    heads = [None if last else np.ones_like(stage.kept[n].out) for n in numbers]
    seconds, _ = _timed([partial(stage.backward, n, heads[n], behind) for n in numbers], pushes)
    backward.append(seconds)
    return sent[0]


def _onward(pipeline: Pipeline, place: int) -> Device:
    return pipeline.devices[(place + 1) % len(pipeline.devices)]


def _timed(tasks: Sequence[Callable[[], Any]], pushes: List[float]) -> Tuple[float, List[Any]]:
    """Mean seconds of a task, and what they give."""
    npx.waitall()
    began = time.perf_counter()
    results = [tasks[0]()]
    # MXNet begins with the first task now: a bulk is handed over as a whole.
    first = time.perf_counter()
    results += [task() for task in tasks[1:]]
    pushes.append((time.perf_counter() - began) / len(tasks))
    npx.waitall()
    return (time.perf_counter() - first) / len(tasks), results
