from __future__ import annotations

import numpy as onp
import pytest
from gate import SlowReader

from mxdp.backend import mx, np
from mxdp.scratch import get_params, in_sync


@pytest.fixture
def params():
    return [np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([5.0])]


@pytest.mark.parametrize("device", [mx.cpu(0), mx.cpu(1)])
def test_copies_have_their_own_memory_and_device_and_gradients_of_zero(params, device):
    replica = get_params(params, device)
    params[0][:] = 0
    assert [p.ctx for p in replica] == [p.grad.ctx for p in replica] == [device] * 2
    assert not any(p.grad.asnumpy().any() for p in replica)
    onp.testing.assert_array_equal(replica[0].asnumpy(), [[1, 2], [3, 4]])


def test_in_sync_sees_a_single_bit(params):
    replicas = [get_params(params, mx.cpu(i)) for i in range(3)]
    assert in_sync(replicas)
    replicas[2][1][0] = onp.nextafter(onp.float32(5), onp.float32(6))
    assert not in_sync(replicas)


def test_in_sync_waits_for_work_that_only_reads():
    """An inference pass that is still running may change the layout of its weights while they are read."""
    weights = np.ones((4,))
    reader = SlowReader(weights, np.zeros((1,)))
    assert in_sync([[weights]])
    assert reader.ended


@pytest.mark.parametrize(("a", "b", "same"), [(0.0, -0.0, False), (float("nan"), float("nan"), True)])
def test_in_sync_compares_bits_not_values(a, b, same):
    assert in_sync([[np.array([a])], [np.array([b])]]) is same


def test_in_sync_compares_shapes_counts_and_dtypes():
    for other in ([np.zeros((1, 2))], [np.zeros(2), np.zeros(1)], [np.zeros(2, dtype="int32")]):
        assert not in_sync([[np.zeros(2)], other])
    assert in_sync([[np.zeros(2)]])
