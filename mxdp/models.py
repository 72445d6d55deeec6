"""The network, written as a function of its parameters.

A variant of LeNet (LeCun et al., "Gradient-based learning applied to document recognition", Proc. IEEE 86, 1998), as
the book's chapter on several GPUs uses it. For a batch of n pictures::

    X              (n,  1, 28, 28)
    conv 3 x 3     (n, 20, 26, 26)  relu
    mean 2 x 2     (n, 20, 13, 13)
    conv 5 x 5     (n, 50,  9,  9)  relu
    mean 2 x 2     (n, 50,  4,  4)
    dense          (n, 128)         relu
    dense          (n, 10)
"""

from __future__ import annotations

from typing import List, Sequence

import numpy as onp

from mxdp.backend import NDArray, np, npx

SHAPES = ((20, 1, 3, 3), (20,), (50, 20, 5, 5), (50,), (128, 800), (128,), (10, 128), (10,))
"""Weight and bias of each layer in turn. Dense weights are (outputs, inputs): the transpose of the book's."""


def init_lenet(seed: int = 0, scale: float = 0.01) -> List[NDArray]:
    """Eight arrays on ``cpu(0)``: weights from N(0, ``scale``), biases zero, float32; the same for the same seed.

    NumPy draws them: MXNet's generator is one for all CPU contexts, so what it gives depends on who drew before.
    """
    random = onp.random.RandomState(seed)
    draws = (random.normal(scale=scale, size=shape) if len(shape) > 1 else onp.zeros(shape) for shape in SHAPES)
    return [np.array(draw, dtype="float32") for draw in draws]


def lenet(X: NDArray, params: Sequence[NDArray]) -> NDArray:
    """Scores (n, 10), before the softmax, of pictures ``X`` (n, 1, 28, 28). Doesn't wait.

    The operators are those that run in oneDNN on a CPU: ``npx.activation`` rather than ``npx.relu``, and
    ``npx.fully_connected`` rather than ``np.dot``.
    """
    W1, b1, W2, b2, W3, b3, W4, b4 = params
    h = npx.convolution(X, W1, b1, kernel=(3, 3), num_filter=20)
    h = npx.activation(h, act_type="relu")
    h = npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h = npx.convolution(h, W2, b2, kernel=(5, 5), num_filter=50)
    h = npx.activation(h, act_type="relu")
    h = npx.pooling(h, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    h = npx.fully_connected(h, W3, b3, num_hidden=128)
    h = npx.activation(h, act_type="relu")
    return npx.fully_connected(h, W4, b4, num_hidden=10)
