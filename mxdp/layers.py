"""A network described once, as a short list of layers, and its serial run, which every way to split it must equal::

    net = [Conv(8, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2), Dense(10)]
    params = init(net, input_shape=(3, 16, 16))       for each layer a list: weight and bias, scale and shift, or none
    scores = forward(net, X, params)

A layer is a function of its input and its parameters alone: batch normalisation takes the statistics of the current
batch, in inference, too, and there is no dropout. So a split run is compared number by number.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, List, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import NDArray, np, npx

Shape = Tuple[int, ...]
EPSILON = 1e-5
"""Added to the variance in batch normalisation."""


@dataclass(frozen=True)
class Conv:
    """Convolution of images (samples, channels, height, width), with a bias."""

    channels: int
    kernel: int
    stride: int = 1
    padding: int = 0

    @property
    def step(self) -> int:
        """The stride in use."""
        return self.stride


@dataclass(frozen=True)
class BatchNorm:
    """Normalises each channel to mean 0 and variance 1 over samples, height and width; then scales and shifts it."""


@dataclass(frozen=True)
class Relu:
    """The larger of x and 0."""


@dataclass(frozen=True)
class Pool:
    """The largest or the mean value of each window. Without ``stride`` the windows lie side by side. Padding counts as
    zeros in a mean, and does not count in a maximum."""

    kernel: int
    stride: int = 0
    padding: int = 0
    kind: str = "max"

    @property
    def step(self) -> int:
        """The stride in use."""
        return self.stride or self.kernel


@dataclass(frozen=True)
class Dense:
    """Fully connected: all inputs of a sample (flattened) to ``units`` outputs, with a bias."""

    units: int


@dataclass(frozen=True)
class Residual:
    """``relu(body(x) + shortcut(x))``; an empty shortcut is the input itself. The body's parameters come first."""

    body: Tuple[Layer, ...]
    shortcut: Tuple[Layer, ...] = ()

    def paths(self, params: Sequence[Any]) -> List[List[Tuple[Layer, List[Any]]]]:
        """The body and the shortcut: a list of their layers, each with its parameters."""
        rest = iter(params)

        def with_its(layer: Layer) -> Tuple[Layer, List[Any]]:
            has = isinstance(layer, (Conv, BatchNorm, Dense))
            return layer, [next(rest), next(rest)] if has else []

        return [list(map(with_its, path)) for path in (self.body, self.shortcut)]


Layer = Union[Conv, BatchNorm, Relu, Pool, Dense, Residual]
Net = Sequence[Layer]
LayerParams = List[NDArray]

LENET: Net = (
    Conv(20, kernel=3), Relu(), Pool(2, kind="avg"),
    Conv(50, kernel=5), Relu(), Pool(2, kind="avg"),
    Dense(128), Relu(), Dense(10),
)  # fmt: skip
"""The book's network, for (1, 28, 28)."""


def resnet18(width: int = 64) -> Net:
    """ResNet-18 for 10 classes and pictures of 28 x 28; 11.2 million parameters. ``width``: the first layer's channels.
    Source: Dive into Deep Learning, "Concise Implementation for Multiple GPUs"."""
    net: List[Layer] = [Conv(width, kernel=3, padding=1), BatchNorm(), Relu()]
    for number in range(8):
        channels = width << number // 2
        stride = 2 if number in (2, 4, 6) else 1
        first = Conv(channels, 3, stride, padding=1)
        second = Conv(channels, 3, padding=1)
        shortcut = (Conv(channels, 1, stride),) if stride > 1 else ()
        net.append(Residual((first, BatchNorm(), Relu(), second, BatchNorm()), shortcut))
    return (*net, Pool(4, kind="avg"), Dense(10))


def outputs(net: Net, input_shape: Shape) -> List[Shape]:
    """The shape of each layer's output for a sample of ``input_shape``. Raises a ValueError where a layer doesn't fit.

    >>> outputs(LENET, (1, 28, 28))[2], outputs(LENET, (1, 28, 28))[-1]
    ((20, 13, 13), (10,))
    """
    shapes: List[Shape] = []
    shape = tuple(input_shape)
    for number, layer in enumerate(net):
        if isinstance(layer, Dense):
            shape = (layer.units,)
        elif isinstance(layer, (Conv, Pool)):
            if len(shape) != 3:
                raise ValueError(
                    f"layer {number}, {layer}, needs images (channels, height, width), not {shape}"
                )
            margin = 2 * layer.padding - layer.kernel
            sides = [(side + margin) // layer.step + 1 for side in shape[1:]]
            if min(sides) < 1:
                raise ValueError(
                    f"layer {number}, {layer}, has a window larger than its image {shape[1:]}"
                )
            channels = layer.channels if isinstance(layer, Conv) else shape[0]
            shape = (channels, *sides)
        elif isinstance(layer, Residual):
            body = _last(layer.body, shape)
            shortcut = _last(layer.shortcut, shape)
            if body != shortcut:
                raise ValueError(
                    f"layer {number} adds up {body} and {shortcut}: a Residual's paths end in one shape"
                )
            shape = body
        shapes.append(shape)
    return shapes


def _last(path: Net, shape: Shape) -> Shape:
    """The shape after the last layer; of an empty path, the one before it."""
    return outputs(path, shape)[-1] if path else shape


def param_shapes(net: Net, input_shape: Shape) -> List[List[Shape]]:
    """The shapes of each layer's parameters. Relu and pooling have none.

    >>> param_shapes([Conv(8, 3), BatchNorm(), Relu(), Dense(10)], (3, 4, 4))
    [[(8, 3, 3, 3), (8,)], [(8,), (8,)], [], [(10, 32), (10,)]]
    """
    shapes: List[List[Shape]] = []
    for layer, before in zip(net, [tuple(input_shape), *outputs(net, input_shape)]):
        its: List[Shape] = []
        if isinstance(layer, Conv):
            its = [(layer.channels, before[0], layer.kernel, layer.kernel), (layer.channels,)]
        elif isinstance(layer, Dense):
            its = [(layer.units, math.prod(before)), (layer.units,)]
        elif isinstance(layer, BatchNorm):
            its = [before[:1], before[:1]]
        elif isinstance(layer, Residual):
            for path in (layer.body, layer.shortcut):
                its += itertools.chain(*param_shapes(path, before))
        shapes.append(its)
    return shapes


def init(net: Net, input_shape: Shape, seed: int = 0, dtype: str = "float32") -> List[LayerParams]:
    """Parameters on ``cpu(0)`` by ``seed``, the same however the network is split. Weights are uniform within the
    square root of 6 / (inputs + outputs) (Glorot and Bengio, AISTATS 2010). Biases and shifts are small but not zero,
    and scales about 1: no gradient vanishes, and a wrong one shows."""
    random = onp.random.RandomState(seed)

    def draw(layer: Layer, shapes: List[Shape]) -> LayerParams:
        drawn = []
        for shape in shapes:
            limit = 0.1
            if len(shape) > 1:
                inputs = math.prod(shape[1:])
                outputs = shape[0] * math.prod(shape[2:])
                limit = (6 / (inputs + outputs)) ** 0.5
            drawn.append(random.uniform(-limit, limit, shape))
        if isinstance(layer, BatchNorm):
            drawn[0] += 1  # the scale
        return [np.array(array, dtype=dtype) for array in drawn]

    params: List[LayerParams] = []
    for layer, shapes in zip(net, param_shapes(net, input_shape)):
        paths = layer.paths(shapes) if isinstance(layer, Residual) else [[(layer, shapes)]]
        inner_layers = itertools.chain(*paths)
        params.append([param for inner, its in inner_layers for param in draw(inner, its)])
    return params


def apply(layer: Layer, x: NDArray, params: Sequence[NDArray]) -> NDArray:
    """One layer's output, on the device of ``x``. Doesn't wait."""
    if isinstance(layer, Conv):
        return npx.convolution(
            x,
            *params,
            num_filter=params[0].shape[0],
            kernel=(layer.kernel, layer.kernel),
            stride=(layer.stride, layer.stride),
            pad=(layer.padding, layer.padding),
        )
    if isinstance(layer, BatchNorm):
        return normalise(x, *moments(x), *params)
    if isinstance(layer, Residual):
        ends = []
        for path in layer.paths(params):
            end = x
            for inner, inner_params in path:
                end = apply(inner, end, inner_params)
            ends.append(end)
        return npx.activation(ends[0] + ends[1], act_type="relu")
    if isinstance(layer, Relu):
        return npx.activation(x, act_type="relu")
    if isinstance(layer, Pool):
        return npx.pooling(
            x,
            pool_type=layer.kind,
            kernel=(layer.kernel, layer.kernel),
            stride=(layer.step, layer.step),
            pad=(layer.padding, layer.padding),
        )
    return npx.fully_connected(x, *params, num_hidden=params[0].shape[0])


def moments(x: NDArray) -> Tuple[NDArray, NDArray]:
    """Mean and variance of each channel over samples, height and width. Both have the shape (1, channels, 1, 1)."""
    mean = x.mean(axis=(0, 2, 3), keepdims=True)
    squares = (x - mean) ** 2
    return mean, squares.mean(axis=(0, 2, 3), keepdims=True)


def normalise(
    x: NDArray, mean: NDArray, variance: NDArray, scale: NDArray, shift: NDArray
) -> NDArray:
    """Batch normalisation with the given statistics."""
    scale = scale.reshape(1, -1, 1, 1)
    shift = shift.reshape(1, -1, 1, 1)
    return (x - mean) / np.sqrt(variance + EPSILON) * scale + shift


def forward(net: Net, X: NDArray, params: Sequence[Sequence[NDArray]]) -> NDArray:
    """The serial run: from (samples, ...) to (samples, outputs). Doesn't wait."""
    for layer, layer_params in zip(net, params):
        X = apply(layer, X, layer_params)
    return X
