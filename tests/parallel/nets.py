"""Networks that every strategy is tried on."""

from __future__ import annotations

from functools import lru_cache

from hypothesis import Phase
from hypothesis import strategies as st
from serial import example, serial_run

from mxdp.backend import mx
from mxdp.layers import LENET, BatchNorm, Conv, Dense, Pool, Relu, Residual
from mxdp.parallel.pipeline import Pipeline
from mxdp.plans.partition import bounds

STACK = (
    Conv(8, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Conv(16, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Dense(10),
)  # fmt: skip
"""The slides' stack of convolution, batch normalisation, relu and pooling, for images of any size."""

NETS = {"lenet": (LENET, (1, 28, 28)), "stack": (STACK, (3, 17, 19))}
CUTS = {"lenet": [(), (3,), (3, 6), (1, 3, 6)], "stack": [(), (4,), (2, 6), (1, 4, 8)]}
"""Into 1, 2, 3 and 4 stages."""
SAMPLES = 7
"""Uneven over 2, 3 and 4 devices or micro-batches."""


UNSHRUNK = (Phase.explicit, Phase.reuse, Phase.generate)
"""Of examples that take a tenth of a second: to shrink one would take minutes."""


@st.composite
def drawn_nets(draw, residual=False):
    """(net, input shape): pictures of unlike sides, at most one stride; at least 4 outputs in each layer. The first may
    have parameters, or none."""
    shape = draw(st.integers(1, 3)), draw(st.integers(12, 17)), draw(st.integers(12, 17))
    kinds = ["conv", "pool", "relu", "norm", *["residual"] * residual]
    net = []
    strides = 2  # the largest that is left
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        kernel = draw(st.integers(1, 3))
        stride = draw(st.integers(1, strides))
        strides = min(strides, 3 - stride)
        padding = draw(st.integers(0, kernel // 2))
        if kind == "conv":
            net += [Conv(draw(st.integers(4, 6)), kernel, stride, padding)]
        elif kind == "pool":
            net += [Pool(kernel, stride, padding, draw(st.sampled_from(["max", "avg"])))]
        elif kind == "residual":
            channels = draw(st.integers(2, 3))
            body = (Conv(channels, 3, stride, 1), BatchNorm(), Relu(), Conv(channels, 1), BatchNorm())
            net += [Residual(body, (Conv(channels, 1, stride),)), Residual((Conv(channels, 3, padding=1), BatchNorm()))]
        else:
            # Where nothing but another normalisation follows, a scale has no effect, and its gradient is all rounding.
            net += [BatchNorm()] * (kind == "norm") + [Relu()]
    for units in draw(st.lists(st.integers(4, 9), max_size=3)):
        net += [Dense(units), *[Relu()] * draw(st.integers(0, 1))]
    return (*net, Dense(10)), shape


def devices(n):
    return [mx.cpu(number) for number in range(n)]


@lru_cache(maxsize=None)
def prepared(name):
    """(params, X, y)."""
    return example(*NETS[name], SAMPLES)


@lru_cache(maxsize=None)
def serial(name, micro_batches=1):
    """(net, input_shape, params, X, y, serial run)."""
    params, X, y = prepared(name)
    net, shape = NETS[name]
    return net, shape, params, X, y, serial_run(net, params, X, y, bounds(SAMPLES, micro_batches))


def pipe(name, n=2, micro_batches=1, schedule="gpipe"):
    net, shape = NETS[name]
    return Pipeline(net, prepared(name)[0], shape, devices(n), micro_batches, schedule, CUTS[name][n - 1])
