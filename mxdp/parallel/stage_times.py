"""The time of each stage of a pipeline while no other stage works. Predictions of the whole pipeline use it."""

from __future__ import annotations

import time
from functools import partial
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

from mxdp.backend import Batch, check_arrays, np, npx
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.traffic import check_label_count, copy_to

AT_ONCE = 4
"""Micro-batches pushed one after the other. As in a pipeline, Python pushes the next while the device computes."""


class StageTimes(NamedTuple):
    """Seconds of one micro-batch's passes, for each stage, with the message to the next stage. ``push`` is the mean of
    the seconds that Python takes to push one task."""

    forward: List[float]
    backward: List[float]
    push: float


def measure_stages(pipeline: Pipeline, X: Batch, y: Optional[Batch]) -> StageTimes:
    """Measure each stage alone, one after the other, with the batch's first micro-batch, which is a largest one. Waits.

    A time is the mean of a few passes in a row, without a warm-up: run a step before. Afterwards the pipeline's
    gradients are not valid. Without labels ``y`` forward passes keep nothing, as for scores, and ``backward`` is empty.
    Raises a ValueError for fewer samples than micro-batches, and as :meth:`Strategy.step` does.
    """
    if y is None:
        check_arrays(X=X)
    else:
        check_label_count(X, y)
    start, stop = pipeline.pieces(len(X))[0]
    x = X[start:stop]
    devices = pipeline.devices
    numbers = range(min(AT_ONCE, pipeline.plan.micro_batches))
    forward = []
    backward = []
    pushes = []
    for place, stage in enumerate(pipeline.stages):
        last = stage is pipeline.stages[-1]
        target = devices[(place + 1) % len(devices)]
        if y is None:
            passes = [partial(stage.infer, copy_to(x, stage.device), target)] * AT_ONCE
        else:
            # Each pass has arrays of its own: an array that two recordings share could be differentiated only once.
            stage.kept.clear()
            labels = [copy_to(y[start:stop], stage.device) if last else None for _ in numbers]
            passes = [
                partial(stage.forward, n, copy_to(x, stage.device), target, labels[n])
                for n in numbers
            ]
        seconds, push, results = _timed(passes)
        forward.append(seconds)
        pushes.append(push)
        x = results[0]
        if y is not None:
            heads = [None if last else np.ones_like(stage.kept[n].out) for n in numbers]
            before = devices[place - 1] if place else None
            passes = [partial(stage.backward, n, heads[n], before) for n in numbers]
            seconds, push, _ = _timed(passes)
            backward.append(seconds)
            pushes.append(push)
    return StageTimes(forward, backward, sum(pushes) / len(pushes))


def _timed(tasks: Sequence[Callable[[], Any]]) -> Tuple[float, float, List[Any]]:
    """Mean seconds of a task, mean seconds of its push, and the tasks' results."""
    npx.waitall()
    began = time.perf_counter()
    results = [tasks[0]()]
    # MXNet starts the first task only now: it receives a bulk as a whole.
    first = time.perf_counter()
    results += [task() for task in tasks[1:]]
    push = (time.perf_counter() - began) / len(tasks)
    npx.waitall()
    return (time.perf_counter() - first) / len(tasks), push, results
