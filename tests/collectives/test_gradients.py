from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import autograd, mx, np
from mxdp.collectives import ALGORITHMS, GradientSync
from mxdp.collectives.gradients import _flatten_gradients
from mxdp.replicas import get_params

SHAPES = [(2, 3), (), (5,), (0, 4), (1,)]


def replicas(n, dtypes=("float32",)):
    params = [np.zeros(shape, dtype=dtype) for shape in SHAPES for dtype in dtypes]
    return [get_params(params, mx.cpu(rank)) for rank in range(n)]


def fill(device_params):
    """Gradients that depend on rank, parameter and index; their exact sums."""
    for rank, params in enumerate(device_params):
        for number, param in enumerate(params):
            values = onp.arange(param.size).reshape(param.shape) * (rank + 1) + number
            np.array(values, dtype=param.dtype).copyto(param.grad)
    return [sum(params[i].grad.asnumpy() for params in device_params) for i in range(len(device_params[0]))]


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("n", range(1, 6))
@pytest.mark.parametrize("dtypes", [("float32",), ("float32", "float64", "float16")])
def test_every_gradient_of_every_replica_is_the_sum(algorithm, n, dtypes):
    device_params = replicas(n, dtypes)
    sync = GradientSync(device_params, algorithm)
    for _ in range(2):  # the second time with what the first has kept
        expected = fill(device_params)
        assert sync() is None
        for rank, params in enumerate(device_params):
            for param, total in zip(params, expected):
                assert param.grad.ctx == mx.cpu(rank)
                assert param.grad.shape == param.shape
                onp.testing.assert_array_equal(param.grad.asnumpy(), total)


def test_backward_writes_into_the_buffer():
    params = get_params([np.array([1.0, 2.0]), np.array([[3.0]])], mx.cpu(1))
    buffers = _flatten_gradients(params)
    with autograd.record():
        loss = (params[0] ** 2).sum() + 5 * params[1].sum()
    loss.backward()
    onp.testing.assert_array_equal(buffers["float32"].asnumpy(), [2, 4, 5])
    buffers["float32"][:] = 7
    assert params[1].grad.item() == 7


def test_a_second_step_allocates_nothing():
    device_params = replicas(2)
    sync = GradientSync(device_params)
    sync()
    kept = [{place: id(array) for place, array in inboxes.items()} for inboxes in sync._inboxes]
    sync()
    assert [{place: id(array) for place, array in inboxes.items()} for inboxes in sync._inboxes] == kept
    assert set(kept[0]) == {(0, 0), (1, 0)}


@pytest.mark.parametrize(
    ("device_params", "message"),
    [([], "at least one replica"), ([[]], "at least one parameter")],
)
def test_nothing_to_sum(device_params, message):
    with pytest.raises(ValueError, match=message):
        GradientSync(device_params)


def test_replicas_that_differ_are_named():
    first, second = replicas(2)
    with pytest.raises(ValueError, match="replica 1 has other shapes or dtypes than replica 0"):
        GradientSync([first, second[:-1]])


def test_an_unknown_algorithm():
    with pytest.raises(ValueError, match="'tree'; there are: doubling, naive, ring"):
        GradientSync(replicas(2), "tree")
