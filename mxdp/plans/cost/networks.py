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
    layers = (
        replace(at, forward=unit * at.forward, backward=unit * at.backward) for at in network.layers
    )
    return replace(network, layers=tuple(layers))


def chain(inputs: int, layers: Iterable[Sizes], more: int = 1) -> List[TimedLayer]:
    """Convolutions one after another, of so many ``inputs``. ``more``: parameters of each output beside its weights, 1
    for a bias and 2 for a batch normalisation's scale and shift."""
    timed = []
    for name, outputs, window, side in layers:
        weights = inputs * outputs * window**2
        timed.append(
            by_operations(name, 2 * weights * side**2, weights + more * outputs, outputs * side**2)
        )
        inputs = outputs
    return timed


def _block(inputs: int, layers: List[Sizes], more: int, shortcut: int) -> TimedLayer:
    """A residual block is one layer: nothing can be cut inside. ``shortcut``: ``more`` of the convolution around a
    block that changes the number of channels."""
    parts, (name, outputs, _, side) = chain(inputs, layers, more), layers[-1]
    if inputs != outputs:
        parts += chain(inputs, [(name, outputs, 1, side)], shortcut)
    operations, parameters = (
        sum(part.forward for part in parts),
        sum(part.parameters for part in parts),
    )
    return by_operations(name, operations, parameters, outputs * side**2)


def _resnet18() -> Network:
    """The book's, for 28 x 28 pixels: its first convolution keeps their number, and its convolutions have biases beside
    the batch normalisation's shifts."""
    layers, before = chain(1, [("conv 1", 64, 3, 28)], more=3), 64
    for stage, (channels, side) in enumerate(((64, 28), (128, 14), (256, 7), (512, 4)), 1):
        for block in (1, 2):
            layers.append(
                _block(before, [(f"stage {stage} block {block}", channels, 3, side)] * 2, 3, 1)
            )
            before = channels
    return Network("ResNet-18", (*layers, *chain(512, [("dense", 10, 1, 1)])))


def _resnet(title: str, *blocks: int) -> Network:
    """For 224 x 224 pixels and 1,000 classes; ``blocks``: the bottlenecks of each stage. Source: He et al., "Deep
    residual learning for image recognition", CVPR 2016."""
    (first,), before = chain(3, [("conv 1", 64, 7, 112)], more=2), 64
    layers = [replace(first, outputs=64 * 56**2)]  # after pooling
    for stage, (count, width, side) in enumerate(
        zip(blocks, (64, 128, 256, 512), (56, 28, 14, 7)), 2
    ):
        for block in range(1, count + 1):
            name, larger = (
                f"stage {stage} block {block}",
                2 * side if block == 1 and stage > 2 else side,
            )
            sizes = [(name, width, 1, larger), (name, width, 3, side), (name, 4 * width, 1, side)]
            layers.append(_block(before, sizes, 2, 2))
            before = 4 * width
    return Network(title, (*layers, *chain(2048, [("dense", 1000, 1, 1)])))


def _vgg16() -> Network:
    """For 224 x 224 pixels and 1,000 classes. Source: Simonyan and Zisserman, "Very deep convolutional networks for
    large-scale image recognition", ICLR 2015."""
    layers = [
        (f"stage {stage} conv {number}", channels, 3, 224 >> (stage - 1))
        for stage, (channels, count) in enumerate(
            ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), 1
        )
        for number in range(1, count + 1)
    ]
    layers += [("dense 1", 4096, 7, 1), ("dense 2", 4096, 1, 1), ("dense 3", 1000, 1, 1)]
    return Network("VGG-16", tuple(chain(3, layers)))


LENET = [("conv 1", 20, 3, 26), ("conv 2", 50, 5, 9), ("dense 1", 128, 4, 1), ("dense 2", 10, 1, 1)]
"""The book's, for 28 x 28 pixels."""
_LAYERS = {
    "lenet": Network("LeNet", tuple(chain(1, LENET))),
    "resnet18": _resnet18(),
    "resnet50": _resnet("ResNet-50", 3, 4, 6, 3),
    "resnet101": _resnet("ResNet-101", 3, 4, 23, 3),
    "vgg16": _vgg16(),
}
ACTIVATIONS = {
    "lenet": 39_572,
    "resnet18": 1_258_010,
    "resnet50": 30_710_760,
    "resnet101": 44_358_632,
    "vgg16": 23_206_888,
}
"""Numbers of a sample that training holds: of the graphs that gluon exports, with NumPy arrays. A test counts them
again from these graphs, and compares them with MXNet's own count."""
NETWORKS: Mapping[str, Network] = {
    name: replace(network, activations=ACTIVATIONS[name]) for name, network in _LAYERS.items()
}
"""By their short names, with operations in place of seconds."""
