"""Networks as lists of layers whose costs are operations: one for each product and each sum. A backward pass has two
products for each of the forward pass: for the gradients of the input and of the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Callable, Dict, List, Sequence, Tuple

from mxdp.plans.cost.step import Network, TimedLayer


def by_operations(name: str, operations: float, parameters: int, outputs: int) -> TimedLayer:
    """A layer that takes ``operations`` for the forward pass of a sample, and twice as many for the backward pass."""
    return TimedLayer(name, operations, 2 * operations, parameters, outputs)


def shared_out(name: str, layers: Sequence[TimedLayer], sample: float) -> Network:
    """A network whose layers share ``sample`` seconds, of a sample's forward and backward pass, by their operations.

    >>> shared_out("two layers", [by_operations("a", 1e6, 10, 4), by_operations("b", 3e6, 20, 2)], 12e-6).layers[1]
    TimedLayer(name='b', forward=3e-06, backward=6e-06, parameters=20, outputs=2)
    """
    unit = sample / sum(layer.forward + layer.backward for layer in layers)
    return Network(
        name, tuple(replace(layer, forward=unit * layer.forward, backward=unit * layer.backward) for layer in layers)
    )


def convolution(name: str, inputs: int, outputs: int, window: int, side: int, more: int = 1) -> TimedLayer:
    """With a square window. ``side``: of the output; ``more``: parameters of each output beside its weights, 1 for a
    bias and 2 for a batch normalisation's scale and shift."""
    weights = inputs * outputs * window**2
    return by_operations(name, 2 * weights * side**2, weights + more * outputs, outputs * side**2)


def dense(name: str, inputs: int, outputs: int) -> TimedLayer:
    """Fully connected, with a bias."""
    return by_operations(name, 2 * inputs * outputs, (inputs + 1) * outputs, outputs)


def _lenet() -> List[TimedLayer]:
    """The book's, for 28 x 28 pixels."""
    return [
        convolution("conv 1", 1, 20, 3, 26),
        convolution("conv 2", 20, 50, 5, 9),
        dense("dense 1", 800, 128),
        dense("dense 2", 128, 10),
    ]


def _resnet18() -> List[TimedLayer]:
    """The book's, for 28 x 28 pixels, which its first convolution keeps; all convolutions have biases."""
    layers, before = [convolution("conv 1", 1, 64, 3, 28, more=3)], 64
    for stage, (channels, side) in enumerate(((64, 28), (128, 14), (256, 7), (512, 4)), 1):
        for block in (1, 2):
            name = f"stage {stage} block {block}"
            parts = [convolution(name, inputs, channels, 3, side, more=3) for inputs in (before, channels)]
            if before != channels:
                parts.append(convolution(name, before, channels, 1, side))
            layers.append(_together(parts, channels * side**2))
            before = channels
    return [*layers, dense("dense", 512, 10)]


def _together(parts: Sequence[TimedLayer], outputs: int) -> TimedLayer:
    """A block with a way around it is one layer: nothing can be cut inside."""
    operations, parameters = sum(part.forward for part in parts), sum(part.parameters for part in parts)
    return by_operations(parts[0].name, operations, parameters, outputs)


def _resnet(*blocks: int) -> List[TimedLayer]:
    """For 224 x 224 pixels and 1,000 classes; ``blocks``: the bottlenecks of each stage. Source: He et al., "Deep
    residual learning for image recognition", CVPR 2016."""
    layers, before = [replace(convolution("conv 1", 3, 64, 7, 112, more=2), outputs=64 * 56**2)], 64  # after pooling
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
            layers.append(_together(parts, 4 * width * side**2))
            before = 4 * width
    return [*layers, dense("dense", 2048, 1000)]


def _vgg16() -> List[TimedLayer]:
    """For 224 x 224 pixels and 1,000 classes. Source: Simonyan and Zisserman, "Very deep convolutional networks for
    large-scale image recognition", ICLR 2015."""
    layers, before, side = [], 3, 224
    for stage, (channels, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1):
        for number in range(1, count + 1):
            layers.append(convolution(f"stage {stage} conv {number}", before, channels, 3, side))
            before = channels
        side //= 2
    return [*layers, dense("dense 1", 512 * 7 * 7, 4096), dense("dense 2", 4096, 4096), dense("dense 3", 4096, 1000)]


NETWORKS: Dict[str, Tuple[str, Callable[[], List[TimedLayer]]]] = {
    "lenet": ("LeNet", _lenet),
    "resnet18": ("ResNet-18", _resnet18),
    "resnet50": ("ResNet-50", lambda: _resnet(3, 4, 6, 3)),
    "resnet101": ("ResNet-101", lambda: _resnet(3, 4, 23, 3)),
    "vgg16": ("VGG-16", _vgg16),
}
"""Titles, and what makes the layers."""
