"""A network of two layers with its data; helpers of the tests in this folder."""

import numpy as onp

from mxdp.backend import devices, np
from mxdp.scratch import get_params

IN, HIDDEN, OUT = 12, 7, 4


def cpus(n):
    return devices(n, "cpu")


def batch(samples, seed=0, shape=(3, 4)):
    random = onp.random.RandomState(seed)
    return random.normal(size=(samples, *shape)).astype("float32"), random.randint(0, OUT, samples).astype("int32")


def parameters(inputs=IN, hidden=HIDDEN, outputs=OUT, scale=1.0):
    random = onp.random.RandomState(0)
    shapes = (inputs, hidden), (hidden,), (hidden, outputs), (outputs,)
    return [np.array(random.normal(scale=scale, size=shape), dtype="float32") for shape in shapes]


def replicas_on(places):
    return [get_params(parameters(), device) for device in places]


def bits(arrays):
    return [array.asnumpy().tobytes() for array in arrays]


def all_bits(replicas):
    return [bits(params) for params in replicas]


def mlp(X, params):
    W1, b1, W2, b2 = params
    h = np.maximum(np.dot(X.reshape(len(X), -1), W1) + b1, 0)
    return np.dot(h, W2) + b2
