"""How much memory a step takes on a device, predicted from shapes alone. Parameters and gradients are not in it.

MXNet keeps for each layer, from its forward to its backward pass, what the backward pass computes with::

    convolution, dense    its input
    relu                  its output
    pooling               its input and output; for a maximum, also the places of the largest values
    batch normalisation   its input, and four arrays as large: x - mean (twice), the quotient, and that times the scale

It frees everything else as soon as it was used. MXNet runs the backward pass in bulks of up to 15 operators of a
device, and all gradients that a bulk makes exist at its end. A copy ends a bulk, and a batch normalisation fills one by
itself. So the peak is at the end of one of the bulks::

    kept by all layers before the next bulk | gradients of the layers in this bulk

A pipeline's stage runs each pass as one bulk (:mod:`mxdp.parallel.stage`): all outputs, or all gradients, exist at its
end. Not counted are the operators' temporary space, and the zeros with which oneDNN fills blocks of 8 or 16 channels.
"""

from __future__ import annotations

from mxdp.layers import (
    BatchNorm,
    Conv,
    Dense,
    Layer,
    Net,
    Pool,
    Relu,
    Residual,
    Shape,
    outputs,
    param_shapes,
)
from mxdp.parallel.traffic import elements
from mxdp.plans.partition import bounds
from mxdp.plans.pipeline import PipelinePlan, kept

NORM_KEPT = 4
"""Arrays of the input's size that a batch normalisation keeps besides the input."""
NORM_BACK = 9
"""Arrays that its backward pass makes on one device. Measured (:mod:`mxdp.experiments.memory_use`)."""
NORM_BACK_SPLIT = 6
"""The same over several devices, where the copies of the statistics end bulks in its middle."""
NORM_STAGE_FORWARD = 1
"""Arrays that a batch normalisation in a pipeline's stage adds in the forward pass only."""
NORM_STAGE_BACKWARD = 3
"""Arrays that it adds there in the backward pass, besides the gradient of its input."""


class Footprint:
    """Numbers (not bytes) on one device, added up layer by layer; ``kept``: from forward to backward pass."""

    def __init__(self, inputs: int) -> None:
        self.kept = 0
        self._gone = 0
        self._at_hand = inputs  # the next layer's input, unless it is already in `kept`
        self._gradients = 0
        self._normalising = 0
        self._peak = 0

    @property
    def passing(self) -> int:
        """Numbers of the forward pass that no backward pass needs."""
        return self._gone + self._at_hand

    def keep(self, numbers: int = 0) -> None:
        """The next layer's input is kept, and ``numbers`` more."""
        self.kept += self._at_hand + numbers
        self._at_hand = 0

    def replace(self, numbers: int, back: bool = True) -> None:
        """The next layer's input is replaced by an array made from it; ``back``: the new array has a gradient."""
        self._gone += self._at_hand
        self._at_hand = numbers
        if back:
            self._gradients += numbers

    def add(self, layer: Layer, made: int, split: bool = False) -> None:
        """A layer that makes ``made`` numbers. ``split``: its statistics are taken over several devices. In a residual
        layer each inner one counts as making as many."""
        if isinstance(layer, Residual):
            for inner in (*layer.body, *layer.shortcut, Relu()):
                self.add(inner, made, split)
            return
        if isinstance(layer, BatchNorm):
            self.cut()
        if isinstance(layer, (Conv, Dense, Pool, BatchNorm)):  # backward computes with the input
            self.keep()
        if isinstance(layer, BatchNorm):
            self.replace(made, back=False)
            self.kept += NORM_KEPT * made
            self._normalising = (NORM_BACK_SPLIT if split else NORM_BACK) * made
            return
        self.replace(made)
        if isinstance(layer, (Relu, Pool)):
            self.keep()
        if isinstance(layer, Pool) and layer.kind == "max":
            self.keep(made)
            self._gradients += made

    def cut(self) -> None:
        """One bulk of the backward pass ends here, and another begins."""
        self._peak = max(self._peak, self.kept + max(self._gradients, self._normalising))
        self._gradients = self._normalising = 0

    def peak(self) -> int:
        """The most numbers at a time."""
        self.cut()
        return self._peak


def step_numbers(
    net: Net,
    input_shape: Shape,
    plan: PipelinePlan,
    stage: int,
    batch_size: int,
) -> int:
    """The most numbers in use at a time for ``stage``, whose layers are ``net``, besides :func:`lasting_numbers`.

    Counted are the activations of as many micro-batches as the plan keeps, what a pass needs while it runs, and inputs
    that wait. On the first stage the rest of the batch waits, on the others the next micro-batch. Not counted are the
    loss, gradients that wait for a slower stage, and MXNet's temporary space, which no schedule changes.
    """
    inputs = elements(input_shape)
    sizes = [elements(shape) for shape in outputs(net, input_shape)]
    footprint = Footprint(inputs)
    normalised = 0
    for layer, size in zip(net, sizes):
        footprint.add(layer, size)
        if isinstance(layer, BatchNorm):
            normalised += size
    forward = footprint.passing + NORM_STAGE_FORWARD * normalised
    backward = sum(sizes) + NORM_STAGE_BACKWARD * normalised
    samples = bounds(batch_size, plan.micro_batches)[0][1]
    count = kept(plan)[stage]
    waiting = 0
    if stage == 0:
        waiting = max(0, batch_size - samples * count)
    elif count < plan.micro_batches:
        waiting = samples
    return samples * (count * footprint.kept + max(forward, backward)) + waiting * inputs


def lasting_numbers(
    net: Net,
    input_shape: Shape,
    plan: PipelinePlan,
    stage: int,
    batch_size: int,
) -> int:
    """Numbers that stay on the device of ``stage`` from step to step: parameters, their gradients, the addends of other
    micro-batches, and behind the first stage buffers for the gradient of its input."""
    params = sum(elements(shape) for layer in param_shapes(net, input_shape) for shape in layer)
    gradients = 2 if plan.micro_batches > 1 else 1
    numbers = params * (1 + gradients)
    if stage:
        lengths = {stop - start for start, stop in bounds(batch_size, plan.micro_batches)}
        numbers += sum(lengths) * elements(input_shape)
    return numbers
