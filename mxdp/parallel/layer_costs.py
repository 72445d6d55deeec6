"""Where to cut a network into stages, by each layer's measured time and each stage's predicted memory."""

from __future__ import annotations

import math
import statistics
from typing import List, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, autograd, upload
from mxdp.layers import LayerParams, Net, Shape, apply, outputs
from mxdp.parallel.footprint import lasting_numbers, step_numbers
from mxdp.parallel.traffic import flat, has_gradient, itemsize
from mxdp.plans.partition import balance, bounds
from mxdp.plans.pipeline import PipelinePlan
from mxdp.scratch import get_params
from mxdp.timing import Timer


class LayerCost(NamedTuple):
    """Seconds of one layer's passes; ``backward`` is 0 where nothing is to be differentiated."""

    forward: float
    backward: float

    @property
    def seconds(self) -> float:
        """Both passes."""
        return self.forward + self.backward


def measure_layers(
    net: Net, params: Sequence[LayerParams], input_shape: Shape, device: Device, samples: int, rounds: int = 3
) -> List[LayerCost]:
    """Measure each layer alone on ``device``: the median of ``rounds``, after one round of warm-up. Waits."""
    x = upload(onp.random.RandomState(0).uniform(-1, 1, (samples, *input_shape)), device)
    x = x.astype(flat(params)[0].dtype)
    costs = []
    for layer, initial, back in zip(net, params, has_gradient(net)):
        replica, forward, backward = get_params(initial, device), Timer(), Timer()
        if back:
            x.attach_grad()
        for _ in range(1 + rounds):
            with forward, autograd.record():
                y = apply(layer, x, replica)
            if back or initial:
                with backward:
                    y.backward()
        costs.append(LayerCost(*(statistics.median(timer.times[1:] or [0.0]) for timer in (forward, backward))))
        x = y.detach()
    return costs


def find_cuts(
    net: Net,
    params: Sequence[LayerParams],
    input_shape: Shape,
    device: Device,
    plan: PipelinePlan,
    batch_size: int,
    limit: float = math.inf,
    training: bool = True,
) -> Tuple[int, ...]:
    """The cuts that make the slowest stage as fast as possible, while no stage needs more than ``limit`` bytes (as
    :mod:`mxdp.parallel.footprint` predicts). Measures layers on ``device``, which waits; without ``training`` only
    their forward passes. Raises a ValueError for fewer layers than stages, or no cuts within the limit.
    """
    samples = max(1, bounds(batch_size, plan.micro_batches)[0][1])
    costs = measure_layers(net, params, input_shape, device, samples)
    width, shapes = itemsize(flat(params)[0]), [tuple(input_shape), *outputs(net, input_shape)]

    def needed(stage: int, start: int, stop: int) -> int:
        given = net[start:stop], shapes[start], plan, stage, batch_size
        return width * (step_numbers(*given) + lasting_numbers(*given))

    seconds = [cost.seconds if training else cost.forward for cost in costs]
    return balance(seconds, plan.stages, needed, limit)
