"""Networks as lists of layers: operations, parameters and outputs of each, from the sizes of its windows.

A multiplication and an addition count as two operations. A backward pass has two products for each of the forward pass,
one for the gradient of the input and one for that of the weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Dict, List, Sequence, Tuple

from mxdp.plans.scaling.step import Layer, Network


@dataclass(frozen=True)
class LayerWork:
    """``operations``: of the forward pass of a sample; ``parameters`` and ``outputs``: numbers."""

    name: str
    operations: float
    parameters: int
    outputs: int


def timed(
    name: str, works: Sequence[LayerWork], sample: float, fixed: float = 0.0, update: float = 0.0, spread: float = 0.0
) -> Network:
    """A network whose layers share ``sample`` seconds, of a sample's forward and backward pass, by their operations.

    >>> timed("two layers", [LayerWork("a", 1e6, 10, 4), LayerWork("b", 3e6, 20, 2)], sample=12e-6).layers[1]
    Layer(name='b', forward=3e-06, backward=6e-06, parameters=20, outputs=2)
    """
    unit = sample / (3 * sum(work.operations for work in works))
    layers = (
        Layer(work.name, unit * work.operations, 2 * unit * work.operations, work.parameters, work.outputs)
        for work in works
    )
    return Network(name, tuple(layers), fixed, update, spread=spread)


def convolution(name: str, inputs: int, outputs: int, window: int, side: int, more: int = 1) -> LayerWork:
    """With a square window. ``side``: of the output; ``more``: parameters of each output beside its weights, 1 for a
    bias and 2 for a batch normalisation's scale and shift."""
    weights = inputs * outputs * window**2
    return LayerWork(name, 2 * weights * side**2, weights + more * outputs, outputs * side**2)


def dense(name: str, inputs: int, outputs: int) -> LayerWork:
    """Fully connected, with a bias."""
    return LayerWork(name, 2 * inputs * outputs, (inputs + 1) * outputs, outputs)


def lenet() -> List[LayerWork]:
    """The book's, for 28 x 28 pixels. Its 129,068 parameters:

    >>> sum(work.parameters for work in lenet())
    129068
    """
    return [
        convolution("conv 1", 1, 20, 3, 26),
        convolution("conv 2", 20, 50, 5, 9),
        dense("dense 1", 800, 128),
        dense("dense 2", 128, 10),
    ]


def resnet18() -> List[LayerWork]:
    """The book's, for 28 x 28 pixels: its first convolution keeps their number. Its 11.2 million parameters (the
    convolutions have biases beside the batch normalisation's):

    >>> sum(work.parameters for work in resnet18())
    11175818
    """
    found, before = [convolution("conv 1", 1, 64, 3, 28, more=3)], 64
    for stage, (channels, side) in enumerate(((64, 28), (128, 14), (256, 7), (512, 4)), 1):
        for block in (1, 2):
            name = f"stage {stage} block {block}"
            parts = [convolution(name, inputs, channels, 3, side, more=3) for inputs in (before, channels)]
            if before != channels:
                parts.append(convolution(name, before, channels, 1, side))
            found.append(_together(parts, channels * side**2))
            before = channels
    return [*found, dense("dense", 512, 10)]


def _together(parts: Sequence[LayerWork], outputs: int) -> LayerWork:
    """A block with a way around it is one layer: nothing can be cut inside."""
    operations, parameters = (sum(getattr(part, each) for part in parts) for each in ("operations", "parameters"))
    return LayerWork(parts[0].name, operations, parameters, outputs)


def resnet(blocks: Sequence[int]) -> List[LayerWork]:
    """For 224 x 224 pixels and 1,000 classes, with bottlenecks. Parameters of ResNet-50 and ResNet-101, in millions:

    >>> [round(sum(work.parameters for work in resnet(blocks)) / 1e6, 1) for blocks in ((3, 4, 6, 3), (3, 4, 23, 3))]
    [25.6, 44.5]

    Source: He et al., "Deep residual learning for image recognition", CVPR 2016.
    """
    found, before = [replace(convolution("conv 1", 3, 64, 7, 112, more=2), outputs=64 * 56**2)], 64  # after pooling
    for stage, (count, side) in enumerate(zip(blocks, (56, 28, 14, 7)), 2):
        width = 64 * 2 ** (stage - 2)
        for block in range(1, count + 1):
            larger = 2 * side if block == 1 and stage > 2 else side
            name = f"stage {stage} block {block}"
            parts = [
                convolution(name, before, width, 1, larger, more=2),
                convolution(name, width, width, 3, side, more=2),
                convolution(name, width, 4 * width, 1, side, more=2),
            ]
            if block == 1:
                parts.append(convolution(name, before, 4 * width, 1, side, more=2))
            found.append(_together(parts, 4 * width * side**2))
            before = 4 * width
    return [*found, dense("dense", 2048, 1000)]


def vgg16() -> List[LayerWork]:
    """For 224 x 224 pixels and 1,000 classes. Its 138 million parameters, most of them in one layer:

    >>> round(sum(work.parameters for work in vgg16()) / 1e6, 1)
    138.4

    Source: Simonyan and Zisserman, "Very deep convolutional networks for large-scale image recognition", ICLR 2015.
    """
    found, before, side = [], 3, 224
    for stage, (channels, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for number in range(1, count + 1):
            found.append(convolution(f"stage {stage} conv {number}", before, channels, 3, side))
            before = channels
        side //= 2
    return [*found, dense("dense 1", 512 * 7 * 7, 4096), dense("dense 2", 4096, 4096), dense("dense 3", 4096, 1000)]


NETWORKS: Dict[str, Tuple[str, Callable[[], List[LayerWork]]]] = {
    "lenet": ("LeNet", lenet),
    "resnet18": ("ResNet-18", resnet18),
    "resnet50": ("ResNet-50", lambda: resnet((3, 4, 6, 3))),
    "resnet101": ("ResNet-101", lambda: resnet((3, 4, 23, 3))),
    "vgg16": ("VGG-16", vgg16),
}
"""Titles, and lists of layers."""
