"""The networks that are split, by name."""

from __future__ import annotations

from typing import Tuple

from mxdp.layers import LENET, BatchNorm, Conv, Dense, Net, Pool, Relu, Shape, resnet18

NETS = {"lenet": "LeNet", "wide": "Wide net"}
"""The networks that every strategy splits, with their titles."""


def _normed(channels: int) -> Net:
    return (Conv(channels, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2))


def _twice(channels: int) -> Net:
    conv = Conv(channels, kernel=3)
    return (conv, Relu(), conv, Relu(), Pool(2, kind="avg"))


# Channels that are not multiples of 8: else oneDNN stores images in blocks, and its operators ask for temporary space,
# of which mxdp's settings allow many copies.
PICTURES: Net = (*_normed(10), *_normed(20), Dense(10))
# Can be cut into two halves that take nearly the same time. Its convolutions, like LeNet's, use none of oneDNN's
# temporary space, so the memory of a step is that of its activations.
STAGES: Net = (*_twice(20), *_twice(60), Dense(10))


def net_and_shape(name: str, size: int = 0) -> Tuple[Net, Shape]:
    """``lenet``; ``stages``: a deeper one for the same images; ``resnet``: ResNet-18 of width ``size`` for them;
    ``wide``: three dense layers of ``size`` units; ``pictures``: the slides' stack, for ``size`` x ``size`` pixels."""
    if name == "wide":
        hidden = (Dense(size), Relu())
        return (*hidden, *hidden, *hidden, Dense(10)), (784,)
    if name == "pictures":
        return PICTURES, (3, size, size)
    net = resnet18(size) if name == "resnet" else {"lenet": LENET, "stages": STAGES}[name]
    return net, (1, 28, 28)


def numbers_of(name: str, units: int) -> Tuple[int, int]:
    """The parameters of LeNet or of the wide net, and the numbers that layerwise partitioning sums a sample.

    >>> numbers_of("wide", 512)
    (932362, 1034)
    """
    if name == "lenet":
        return 129_068, 4_860
    params = (784 + 1) * units + 2 * (units + 1) * units + 10 * (units + 1)
    return params, 2 * units + 10
