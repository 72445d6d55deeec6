"""Small trainings with gluon whose results are known; helpers of the tests in this folder."""

from functools import partial

import numpy as onp

from mxdp.backend import autograd, gluon, mx, np
from mxdp.collectives import ALGORITHMS

NAMES = [f"mxdp{name}" for name in sorted([*ALGORITHMS, "auto"])]

SHAPES = [(3, 5), (5,), (2, 3, 2), (1,)]

# Powers of two: with integer gradients nothing is rounded, so sums are equal in any order.
SGD = ("sgd", {"learning_rate": 0.5, "momentum": 0.5, "wd": 0.25})


def devices(n, first=0):
    return [mx.cpu(first + rank) for rank in range(n)]


def parameters(n, shapes=SHAPES, **options):
    made = [gluon.Parameter(f"p{number}", shape=shape, **options) for number, shape in enumerate(shapes)]
    for param in made:
        param.initialize(ctx=devices(n), init="ones")
    return made


def like(data, values):
    make = np.array if isinstance(data, np.ndarray) else mx.nd.array
    return make(values.astype(data.dtype), ctx=data.ctx, dtype=data.dtype)


def slope(param, number, rank, step):
    """The gradient that :func:`backward` computes: integers that depend on all arguments."""
    size = int(onp.prod(param.shape))
    return (onp.arange(size).reshape(param.shape) % 5 + 2 * rank - 3 * number + step).astype("float64")


def backward(params, step=0, ranks=None):
    for rank in range(len(params[0].list_ctx())) if ranks is None else ranks:
        with autograd.record():
            losses = [
                (param.list_data()[rank] * like(param.list_data()[rank], slope(param, number, rank, step))).sum()
                for number, param in enumerate(params)
            ]
        autograd.backward(losses)


def weights(params):
    return [[data.asnumpy() for data in param.list_data()] for param in params]


def assert_equal(actual, expected):
    for arrays, others in zip(actual, expected):
        for one, other in zip(arrays, others):
            onp.testing.assert_array_equal(one, other)


by_mxnet = partial(gluon.Trainer, kvstore="device")
by_devices = partial(gluon.Trainer, kvstore="device", update_on_kvstore=False)


def network():
    net = gluon.nn.HybridSequential()
    net.add(gluon.nn.Conv2D(3, 3, activation="relu"), gluon.nn.BatchNorm(), gluon.nn.MaxPool2D(2))
    net.add(gluon.nn.Dense(5, activation="relu"), gluon.nn.Dense(3))
    return net
