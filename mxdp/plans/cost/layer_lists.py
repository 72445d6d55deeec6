"""Networks as lists of layers whose costs are operations: one for each product and each sum. A backward pass has two
products for each of the forward pass: for the gradients of the input and of the weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, List, Mapping, Tuple

from mxdp.plans.cost.step import Network, TimedLayer

Sizes = Tuple[str, int, int, int]
"""A convolution: its name, its outputs, and the sides of its square window and of its square output. The window of a
fully connected layer is as large as its input, so its output has the side 1."""


def by_operations(name: str, operations: float, parameters: int, outputs: int) -> TimedLayer:
    """A layer that takes ``operations`` for the forward pass of a sample, and twice as many for the backward pass."""
    return TimedLayer(name, operations, 2 * operations, parameters, outputs)


def shared_out(network: Network, sample: float) -> Network:
    """The network with ``sample`` seconds for a sample's forward and backward pass, shared out over its layers by their
    operations (or times).

    >>> layers = by_operations("a", 1e6, 10, 4), by_operations("b", 3e6, 20, 2)
    >>> shared_out(Network("two layers", layers), 12e-6).layers[1]
    TimedLayer(name='b', forward=3e-06, backward=6e-06, parameters=20, outputs=2)
    """
    unit = sample / sum(layer.forward + layer.backward for layer in network.layers)
    layers = []
    for layer in network.layers:
        forward = unit * layer.forward
        layers.append(replace(layer, forward=forward, backward=unit * layer.backward))
    return replace(network, layers=tuple(layers))


def chain(inputs: int, layers: Iterable[Sizes], more: int = 1) -> List[TimedLayer]:
    """Convolutions one after another, of so many ``inputs``. ``more``: parameters of each output beside its weights, 1
    for a bias and 2 for a batch normalisation's scale and shift."""
    timed = []
    for name, outputs, window, side in layers:
        weights = inputs * outputs * window**2
        pixels = side**2
        parameters = weights + more * outputs
        timed.append(by_operations(name, 2 * weights * pixels, parameters, outputs * pixels))
        inputs = outputs
    return timed


def _block(inputs: int, layers: List[Sizes], more: int, shortcut: int) -> TimedLayer:
    """A residual block is one layer: nothing can be cut inside. ``shortcut``: ``more`` of the convolution around a
    block that changes the number of channels."""
    name, outputs, _, side = layers[-1]
    parts = chain(inputs, layers, more)
    if inputs != outputs:
        parts += chain(inputs, [(name, outputs, 1, side)], shortcut)
    operations = sum(part.forward for part in parts)
    parameters = sum(part.parameters for part in parts)
    return by_operations(name, operations, parameters, outputs * side**2)


def _resnet18(activations: int) -> Network:
    """The book's, for 28 x 28 pixels: its first convolution keeps their number, and its convolutions have biases beside
    the batch normalisation's shifts."""
    layers = chain(1, [("conv 1", 64, 3, 28)], more=3)
    before = 64
    stages = ((64, 28), (128, 14), (256, 7), (512, 4))
    for stage, (channels, side) in enumerate(stages, 1):
        for block in (1, 2):
            convolution = (f"stage {stage} block {block}", channels, 3, side)
            layers.append(_block(before, [convolution, convolution], 3, 1))
            before = channels
    layers += chain(512, [("dense", 10, 1, 1)])
    return Network("ResNet-18", tuple(layers), activations=activations)


def _resnet(title: str, *blocks: int, activations: int) -> Network:
    """For 224 x 224 pixels and 1,000 classes; ``blocks``: the bottlenecks of each stage. Source: He et al., "Deep
    residual learning for image recognition", CVPR 2016."""
    (first,) = chain(3, [("conv 1", 64, 7, 112)], more=2)
    layers = [replace(first, outputs=64 * 56**2)]  # after pooling
    before = 64
    side_before = 56
    widths = (64, 128, 256, 512)
    sides = (56, 28, 14, 7)
    for stage, count, width, side in zip((2, 3, 4, 5), blocks, widths, sides):
        for block in range(1, count + 1):
            name = f"stage {stage} block {block}"
            reduced = (name, width, 1, side_before)
            convolved = (name, width, 3, side)
            expanded = (name, 4 * width, 1, side)
            layers.append(_block(before, [reduced, convolved, expanded], 2, 2))
            before = 4 * width
            side_before = side
    layers += chain(2048, [("dense", 1000, 1, 1)])
    return Network(title, tuple(layers), activations=activations)


def _vgg16(activations: int) -> Network:
    """For 224 x 224 pixels and 1,000 classes. Source: Simonyan and Zisserman, "Very deep convolutional networks for
    large-scale image recognition", ICLR 2015."""
    layers = []
    side = 224
    stages = (
        (64, 2),
        (128, 2),
        (256, 3),
        (512, 3),
        (512, 3),
    )
    for stage, (channels, count) in enumerate(stages, 1):
        for number in range(1, count + 1):
            layers.append((f"stage {stage} conv {number}", channels, 3, side))
        side //= 2  # by pooling
    dense = [
        ("dense 1", 4096, 7, 1),
        ("dense 2", 4096, 1, 1),
        ("dense 3", 1000, 1, 1),
    ]
    return Network("VGG-16", tuple(chain(3, layers + dense)), activations=activations)


LENET = [
    ("conv 1", 20, 3, 26),
    ("conv 2", 50, 5, 9),
    ("dense 1", 128, 4, 1),
    ("dense 2", 10, 1, 1),
]
"""The book's, for 28 x 28 pixels."""
NETWORKS: Mapping[str, Network] = {
    "lenet": Network("LeNet", tuple(chain(1, LENET)), activations=39_572),
    "resnet18": _resnet18(activations=1_258_010),
    "resnet50": _resnet("ResNet-50", 3, 4, 6, 3, activations=30_710_760),
    "resnet101": _resnet("ResNet-101", 3, 4, 23, 3, activations=44_358_632),
    "vgg16": _vgg16(activations=23_206_888),
}
"""By their short names, with operations in place of seconds. The activations are those of the graphs that gluon
exports, with NumPy arrays: a test counts them again from these graphs, and compares them with MXNet's own count."""
