"""How much memory a stage needs for a micro-batch, from the shapes alone.

What is kept between the forward and the backward pass is what :mod:`mxdp.parallel.footprint` says. A stage's own input
or output goes as soon as it was used, too: Python has pushed the backward pass long before it runs, and then holds it
no more.

Within a pass nothing is freed before its end, since it is one piece of work (:mod:`mxdp.parallel.stage`): all outputs
are there at the end of a forward pass, and all their gradients at the end of a backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

from mxdp.layers import BatchNorm, Net, Shape, outputs, param_shapes
from mxdp.parallel.footprint import Footprint
from mxdp.parallel.traffic import elements
from mxdp.plans.partition import bounds
from mxdp.plans.pipeline import PipelinePlan, kept

NORM_FORWARD, NORM_BACKWARD = 1, 3
"""Arrays of the input's size that a batch normalisation, as a part of one piece of work, has only in the forward pass;
and makes in the backward pass, besides its input's gradient."""


@dataclass(frozen=True)
class MemoryUse:
    """Numbers for one sample. ``kept``: from forward to backward pass; ``forward``, ``backward``: besides that, while
    the pass runs."""

    kept: int
    forward: int
    backward: int


def memory_use(net: Net, input_shape: Shape) -> MemoryUse:
    """What the layers ``net`` need as one stage. The loss and the gradient of the stage's input are left out: one is
    small, and the other has a place that stays.

    >>> from mxdp.layers import Dense, Relu
    >>> memory_use([Dense(100), Relu(), Dense(10)], (50,))
    MemoryUse(kept=150, forward=110, backward=210)
    """
    sizes = [elements(shape) for shape in outputs(net, input_shape)]
    footprint, normalised = Footprint(elements(input_shape)), 0
    for layer, size in zip(net, sizes):
        footprint.add(layer, size)
        normalised += size * isinstance(layer, BatchNorm)
    forward, backward = footprint.passing + NORM_FORWARD * normalised, sum(sizes) + NORM_BACKWARD * normalised
    return MemoryUse(footprint.kept, forward, backward)


def step_numbers(net: Net, input_shape: Shape, plan: PipelinePlan, stage: int, batch_size: int) -> int:
    """Most numbers in use at a time on the device of ``stage``, whose layers are ``net``, besides what stays there.

    Activations, as many times as the plan keeps them; what a pass needs while it runs; and inputs that wait: all of the
    batch's for the first stage, the next micro-batch's for the others. Left out are gradients that wait for a slower
    stage, and MXNet's temporary space, which no schedule changes.
    """
    samples, count = _samples(plan, batch_size), kept(plan)[stage]
    use = memory_use(net, input_shape)
    waiting = max(0, batch_size - samples * count) if stage == 0 else samples * (count < plan.micro_batches)
    return samples * (count * use.kept + max(use.forward, use.backward)) + waiting * elements(input_shape)


def lasting_numbers(net: Net, input_shape: Shape, plan: PipelinePlan, stage: int, batch_size: int) -> int:
    """Numbers that stay on the device of ``stage`` from step to step: parameters, their gradients, and places for those
    of one micro-batch, where there are several; and one for the gradients of the stage's input."""
    params = sum(elements(shape) for own in param_shapes(net, input_shape) for shape in own)
    gradients = 2 if plan.micro_batches > 1 else 1
    sizes = {stop - start for start, stop in bounds(batch_size, plan.micro_batches)}
    return params * (1 + gradients) + (sum(sizes) * elements(input_shape) if stage else 0)


def _samples(plan: PipelinePlan, batch_size: int) -> int:
    """Of the largest micro-batch."""
    return bounds(batch_size, plan.micro_batches)[0][1]
