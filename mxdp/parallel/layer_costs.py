"""Where to cut a network into stages, by each layer's measured time."""

from __future__ import annotations

import statistics
from typing import List, NamedTuple, Tuple

import numpy as onp

from mxdp.backend import Device, autograd, upload
from mxdp.layers import Net, Shape, apply
from mxdp.parallel.traffic import NetParams, flat, has_gradient
from mxdp.plans.partition import balance, bounds
from mxdp.plans.pipeline import PipelinePlan
from mxdp.scratch import get_params
from mxdp.timing import Timer

ROUNDS = 3


class LayerCost(NamedTuple):
    """Seconds of one layer's passes; ``backward`` is 0 where nothing is to be differentiated."""

    forward: float
    backward: float

    @property
    def seconds(self) -> float:
        """Both passes."""
        return self.forward + self.backward


def measure_layers(
    net: Net,
    params: NetParams,
    input_shape: Shape,
    device: Device,
    samples: int,
) -> List[LayerCost]:
    """Measure each layer alone on ``device``: the median of three rounds, after one of warm-up. Waits."""
    host = onp.random.RandomState(0).uniform(-1, 1, (samples, *input_shape))
    x = upload(host, device).astype(flat(params)[0].dtype)
    costs = []
    for layer, initial, back in zip(net, params, has_gradient(net)):
        replica = get_params(initial, device)
        forward = Timer()
        backward = Timer()
        if back:
            x.attach_grad()
        for _ in range(1 + ROUNDS):
            with forward, autograd.record():
                y = apply(layer, x, replica)
            if back or initial:
                with backward:
                    y.backward()
        costs.append(LayerCost(_median(forward), _median(backward)))
        x = y.detach()
    return costs


def _median(timer: Timer) -> float:
    return statistics.median(timer.times[1:] or [0.0])


def find_cuts(
    net: Net,
    params: NetParams,
    input_shape: Shape,
    device: Device,
    plan: PipelinePlan,
    batch_size: int,
    training: bool = True,
) -> Tuple[int, ...]:
    """The cuts that make the slowest stage as fast as possible. Measures layers on ``device``, which waits; without
    ``training`` only their forward passes count. Raises a ValueError for fewer layers than stages."""
    samples = max(1, bounds(batch_size, plan.micro_batches)[0][1])
    costs = measure_layers(net, params, input_shape, device, samples)
    return balance([cost.seconds if training else cost.forward for cost in costs], plan.stages)
