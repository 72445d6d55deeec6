"""A network described once, as a short list of layers, and its serial run, which every way to split it must equal::

    net = [Conv(8, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2), Dense(10)]
    params = init(net, input_shape=(3, 16, 16))       for each layer a list: weight and bias, scale and shift, or none
    scores = forward(net, X, params)

A layer is a function of its input and its parameters alone: batch normalisation takes the statistics of the current
batch, in inference, too, and there is no dropout. So a split run is compared number by number.
"""

from __future__ import annotations

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
        return [
            [
                (
                    layer,
                    [next(rest) for _ in range(2 * isinstance(layer, (Conv, BatchNorm, Dense)))],
                )
                for layer in path
            ]
            for path in (self.body, self.shortcut)
        ]


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
        channels, stride = width << number // 2, 2 if number in (2, 4, 6) else 1
        first, second = Conv(channels, 3, stride, padding=1), Conv(channels, 3, padding=1)
        shortcut = (Conv(channels, 1, stride),) if stride > 1 else ()
        net.append(Residual((first, BatchNorm(), Relu(), second, BatchNorm()), shortcut))
    return (*net, Pool(4, kind="avg"), Dense(10))


def outputs(net: Net, input_shape: Shape) -> List[Shape]:
    """The shape of each layer's output for a sample of ``input_shape``. Raises a ValueError where a layer doesn't fit.

    >>> outputs(LENET, (1, 28, 28))[2], outputs(LENET, (1, 28, 28))[-1]
    ((20, 13, 13), (10,))
    """
    shapes, shape = [], tuple(input_shape)
    for number, layer in enumerate(net):
        if isinstance(layer, Dense):
            shape = (layer.units,)
        elif isinstance(layer, (Conv, Pool)):
            if len(shape) != 3:
                raise ValueError(
                    f"layer {number}, {layer}, needs images (channels, height, width), not {shape}"
                )
            channels, step = (
                (layer.channels, layer.stride)
                if isinstance(layer, Conv)
                else (shape[0], layer.step)
            )
            sides = tuple(
                (side + 2 * layer.padding - layer.kernel) // step + 1 for side in shape[1:]
            )
            if min(sides) < 1:
                raise ValueError(
                    f"layer {number}, {layer}, has a window larger than its image {shape[1:]}"
                )
            shape = (channels, *sides)
        elif isinstance(layer, Residual):
            body, shortcut = (
                [shape, *outputs(path, shape)][-1] for path in (layer.body, layer.shortcut)
            )
            if body != shortcut:
                raise ValueError(
                    f"layer {number} adds up {body} and {shortcut}: a Residual's paths end in one shape"
                )
            shape = body
        shapes.append(shape)
    return shapes


def param_shapes(net: Net, input_shape: Shape) -> List[List[Shape]]:
    """The shapes of each layer's parameters. Relu and pooling have none.

    >>> param_shapes([Conv(8, 3), BatchNorm(), Relu(), Dense(10)], (3, 4, 4))
    [[(8, 3, 3, 3), (8,)], [(8,), (8,)], [], [(10, 32), (10,)]]
    """
    shapes: List[List[Shape]] = []
    for layer, before in zip(net, [tuple(input_shape), *outputs(net, input_shape)]):
        if isinstance(layer, Conv):
            shapes.append(
                [(layer.channels, before[0], layer.kernel, layer.kernel), (layer.channels,)]
            )
        elif isinstance(layer, Dense):
            shapes.append([(layer.units, int(onp.prod(before))), (layer.units,)])
        elif isinstance(layer, Residual):
            paths = [param_shapes(path, before) for path in (layer.body, layer.shortcut)]
            shapes.append([shape for path in paths for inner in path for shape in inner])
        else:
            shapes.append([before[:1]] * 2 if isinstance(layer, BatchNorm) else [])
    return shapes


def init(net: Net, input_shape: Shape, seed: int = 0, dtype: str = "float32") -> List[LayerParams]:
    """Parameters on ``cpu(0)`` by ``seed``, the same however the network is split. Weights are uniform within the
    square root of 6 / (inputs + outputs) (Glorot and Bengio, AISTATS 2010). Biases and shifts are small but not zero,
    and scales about 1: no gradient vanishes, and a wrong one shows."""
    random = onp.random.RandomState(seed)

    def draw(shape: Shape, number: int, norm: bool) -> NDArray:
        if len(shape) > 1:
            limit = (6 / (onp.prod(shape[1:]) + shape[0] * onp.prod(shape[2:]))) ** 0.5
            return np.array(random.uniform(-limit, limit, shape), dtype=dtype)
        return np.array(
            random.uniform(-0.1, 0.1, shape) + (1.0 if norm and number == 0 else 0.0), dtype=dtype
        )

    params: List[LayerParams] = []
    for layer, sizes in zip(net, param_shapes(net, input_shape)):
        paths = layer.paths(sizes) if isinstance(layer, Residual) else [[(layer, sizes)]]
        params.append(
            [
                draw(size, n, isinstance(inner, BatchNorm))
                for path in paths
                for inner, its in path
                for n, size in enumerate(its)
            ]
        )
    return params


def apply(layer: Layer, x: NDArray, params: Sequence[NDArray]) -> NDArray:
    """One layer's output, on the device of ``x``. Doesn't wait."""
    if isinstance(layer, Conv):
        sides = dict(
            kernel=(layer.kernel,) * 2, stride=(layer.stride,) * 2, pad=(layer.padding,) * 2
        )
        return npx.convolution(x, *params, num_filter=params[0].shape[0], **sides)
    if isinstance(layer, BatchNorm):
        return normalise(x, *moments(x), *params)
    if isinstance(layer, Residual):
        ends = []
        for path in layer.paths(params):
            ends.append(x)
            for inner, inner_params in path:
                ends[-1] = apply(inner, ends[-1], inner_params)
        return npx.activation(ends[0] + ends[1], act_type="relu")
    if isinstance(layer, Relu):
        return npx.activation(x, act_type="relu")
    if isinstance(layer, Pool):
        sides = dict(kernel=(layer.kernel,) * 2, stride=(layer.step,) * 2, pad=(layer.padding,) * 2)
        return npx.pooling(x, pool_type=layer.kind, **sides)
    return npx.fully_connected(x, *params, num_hidden=params[0].shape[0])


def moments(x: NDArray) -> Tuple[NDArray, NDArray]:
    """Mean and variance of each channel over samples, height and width. Both have the shape (1, channels, 1, 1)."""
    mean = x.mean(axis=(0, 2, 3), keepdims=True)
    return mean, ((x - mean) ** 2).mean(axis=(0, 2, 3), keepdims=True)


def normalise(
    x: NDArray, mean: NDArray, variance: NDArray, scale: NDArray, shift: NDArray
) -> NDArray:
    """Batch normalisation with the given statistics."""
    scale, shift = (param.reshape(1, -1, 1, 1) for param in (scale, shift))
    return (x - mean) / np.sqrt(variance + EPSILON) * scale + shift


def forward(net: Net, X: NDArray, params: Sequence[Sequence[NDArray]]) -> NDArray:
    """The serial run: from (samples, ...) to (samples, outputs). Doesn't wait."""
    for layer, layer_params in zip(net, params):
        X = apply(layer, X, layer_params)
    return X
