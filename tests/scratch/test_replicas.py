from __future__ import annotations

import numpy as onp
import pytest
from gate import SlowReader
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np
from mxdp.datasets import Split
from mxdp.scratch import evaluate, get_params, in_sync, naive_allreduce, ring_allreduce, train_batch


@pytest.mark.parametrize("device", [mx.cpu(0), mx.cpu(1)])
def test_copies_have_their_own_memory_and_device_and_gradients_of_zero(device):
    params = [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0])]
    replica = get_params(params, device)
    params[0][:] = 0
    assert [p.ctx for p in replica] == [p.grad.ctx for p in replica] == [device] * 2
    assert not any(p.grad.asnumpy().any() for p in replica)
    assert replica[0].asnumpy().tolist() == [[1, 2], [3, 4]]


def test_in_sync_waits_for_work_that_only_reads():
    """An inference pass that is still running may change the layout of its weights while they are read."""
    weights = np.ones((4,))
    reader = SlowReader(weights, np.zeros((1,)))
    assert in_sync([[weights]])
    assert reader.ended


def test_in_sync_compares_bits_shapes_counts_and_dtypes():
    first, bit = [np.zeros(2)], np.array([0, 1e-45], dtype="float32")
    for other in ([bit], [-first[0]], [np.zeros((1, 2))], [*first, np.zeros(1)], [np.zeros(2, dtype="int32")]):
        assert not in_sync([first, [np.zeros(2)], other])
    assert in_sync([[np.full(2, float("nan"))] for _ in range(3)])


def linear(X, params):
    return np.dot(X.reshape(len(X), -1), params[0]) + params[1]


def numpys_step(X, y, params, lr):
    """The losses, and SGD by the gradient of the softmax, in float64."""
    W, b = params
    flat = X.reshape(len(X), -1)
    scores = flat @ W + b
    chances = onp.exp(scores) / onp.exp(scores).sum(axis=1, keepdims=True)
    losses = -onp.log(chances[onp.arange(len(y)), y])
    chances[onp.arange(len(y)), y] -= 1
    W -= lr / len(X) * flat.T @ chances
    b -= lr / len(X) * chances.sum(axis=0)
    return losses


@settings(max_examples=20)
@given(
    st.integers(1, 4),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from([naive_allreduce, ring_allreduce]),
)
def test_steps_and_their_accuracy_are_numpys(n, lengths, allreduce):
    random = onp.random.RandomState(0)
    expected = [random.normal(size=(6, 3)), random.normal(size=3)]
    devices = [mx.cpu(device) for device in range(n)]
    replicas = [get_params([np.array(x, dtype="float64") for x in expected], device) for device in devices]
    for samples in lengths:
        X, y = random.normal(size=(samples, 2, 3)), random.randint(0, 3, samples).astype("int32")
        losses = train_batch(X, y, replicas, devices, 0.5, allreduce, linear)
        onp.testing.assert_allclose(onp.concatenate([x.asnumpy() for x in losses]), numpys_step(X, y, expected, 0.5))
    assert in_sync(replicas)
    for param, values in zip(replicas[0], expected):
        onp.testing.assert_allclose(param.asnumpy(), values, rtol=1e-9, atol=1e-12)
    data = Split(random.normal(size=(11, 1, 2, 3)).astype("float32"), random.randint(0, 3, 11).astype("int32"))
    right = (data.X.reshape(11, -1) @ expected[0] + expected[1]).argmax(axis=1) == data.y
    as_float32 = [get_params([np.array(x, dtype="float32") for x in expected], device) for device in devices]
    for size in (1, 4, 500):
        assert evaluate(data, as_float32, size, linear) == right.mean()
