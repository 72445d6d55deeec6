from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import autograd, np
from mxdp.scratch import cross_entropy

PRECISION = 5e-6
"""Absolute; what oneDNN's exponential and logarithm leave of float32."""


def test_equals_the_definition_and_is_not_averaged():
    scores = onp.array([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], "float32")
    loss = cross_entropy(np.array(scores), np.array([2, 1], dtype="int32")).asnumpy()
    assert loss.shape == (2,)
    assert loss[0] == pytest.approx(-onp.log(onp.exp(3) / onp.exp([1, 2, 3]).sum()), abs=PRECISION)
    assert loss[1] == pytest.approx(onp.log(3), abs=PRECISION)


def test_gradient_is_a_sum_of_softmax_minus_one_hot():
    scores = np.array([[1.0, 2.0], [0.0, 4.0]])
    scores.attach_grad()
    with autograd.record():
        loss = cross_entropy(scores, np.array([0, 1], dtype="int32"))
    loss.backward()
    softmax = onp.exp(scores.asnumpy()) / onp.exp(scores.asnumpy()).sum(1, keepdims=True)
    onp.testing.assert_allclose(scores.grad.asnumpy(), softmax - onp.eye(2), rtol=0, atol=PRECISION)


def test_large_scores_do_not_overflow():
    right, wrong = cross_entropy(np.array([[1e4, 0.0]] * 2), np.array([0, 1], dtype="int32")).asnumpy()
    assert right == pytest.approx(0.0, abs=PRECISION)
    assert wrong == pytest.approx(1e4)
