from __future__ import annotations

import math

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import autograd, mx, np
from mxdp.scratch import cross_entropy, init_lenet, lenet


def numpy_lenet(X, params):
    """The network in float64, from its definition."""
    W1, b1, W2, b2, W3, b3, W4, b4 = (p.astype("float64") for p in params)

    def layer(X, W, b):
        """A convolution, ReLU and means of 2 x 2."""
        windows = onp.lib.stride_tricks.sliding_window_view(X, W.shape[2:], axis=(2, 3))
        h = onp.maximum(onp.einsum("nchwij,ocij->nohw", windows, W) + b[:, None, None], 0)
        n, c, rows, columns = h.shape
        h = h[:, :, : rows // 2 * 2, : columns // 2 * 2]
        return h.reshape(n, c, rows // 2, 2, columns // 2, 2).mean((3, 5))

    h = layer(layer(X, W1, b1), W2, b2).reshape(len(X), -1)
    return onp.maximum(h @ W3.T + b3, 0) @ W4.T + b4


@given(st.integers(0, 2**32 - 1), st.sampled_from([None, 0.3, 1e-4]))
@settings(max_examples=5)
def test_initial_parameters_are_numpys_normal_numbers_and_biases_are_zero(seed, scale):
    """MXNet's generator is left alone."""
    mx.random.seed(5)
    expected = np.random.uniform(size=3).asnumpy()
    mx.random.seed(5)
    params = init_lenet(seed) if scale is None else init_lenet(seed, scale)
    onp.testing.assert_array_equal(np.random.uniform(size=3).asnumpy(), expected)
    sizes = [(20, 1, 3, 3), (50, 20, 5, 5), (128, 800), (10, 128)]
    drawn = onp.random.RandomState(seed).normal(size=sum(map(math.prod, sizes)))
    start = 0
    for shape, weight, bias in zip(sizes, params[::2], params[1::2]):
        stop = start + math.prod(shape)
        values = ((0.01 if scale is None else scale) * drawn[start:stop]).astype("float32")
        onp.testing.assert_array_equal(weight.asnumpy(), values.reshape(shape))
        onp.testing.assert_array_equal(bias.asnumpy(), onp.zeros(shape[0], "float32"))
        assert {str(onp.dtype(param.dtype)) for param in (weight, bias)} == {"float32"}
        start = stop


def test_scores_and_losses_are_numpys():
    pictures, labels = onp.random.RandomState(1).uniform(size=(2, 1, 28, 28)), onp.array([9, 3])
    params = init_lenet(4, scale=0.2)
    for bias in params[1::2]:
        bias[:] = onp.random.RandomState(2).normal(size=bias.shape)
    for param in params:
        param.attach_grad()
    with autograd.record():
        scores = lenet(np.array(pictures, dtype="float32"), params)
        loss = cross_entropy(scores, np.array(labels, dtype="int32"))
    loss.backward()
    assert all(param.grad.asnumpy().any() for param in params)
    host = [p.asnumpy().astype("float64") for p in params]
    expected = numpy_lenet(pictures, host)
    onp.testing.assert_allclose(scores.asnumpy(), expected, rtol=1e-4, atol=1e-4)
    losses = onp.log(onp.exp(expected).sum(axis=1)) - expected[onp.arange(2), labels]
    onp.testing.assert_allclose(loss.asnumpy(), losses, rtol=1e-4)


def test_large_scores_do_not_overflow():
    right, wrong = cross_entropy(np.array([[1e4, 0.0]] * 2), np.array([0, 1], dtype="int32")).asnumpy()
    assert right == pytest.approx(0.0, abs=5e-6)  # what oneDNN's exponential and logarithm leave of float32
    assert wrong == pytest.approx(1e4)
