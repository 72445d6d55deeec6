from __future__ import annotations

import numpy as onp
import pytest
from nets import devices

from mxdp.backend import autograd, mx, np, upload
from mxdp.collectives import ALGORITHMS
from mxdp.parallel import traffic
from mxdp.plans.collective.algorithms import plan


def parts(sizes, dtype="float64"):
    """Parts of one batch of two channels, one on each device, and the whole; far from zero mean."""
    whole = onp.random.RandomState(0).normal(100, 1, (sum(sizes), 2, 3, 5)).astype(dtype)
    cut = onp.split(whole, onp.cumsum(sizes)[:-1])
    return [upload(part, device) for part, device in zip(cut, devices(len(sizes)))], whole


def test_a_variance_much_smaller_than_the_mean_keeps_its_digits():
    xs, whole = parts((3, 2), "float32")
    variance = traffic.moments_of_all(xs, traffic.Traffic(), back=False)[0][1].asnumpy().ravel()
    exact = whole.astype("float64").var((0, 2, 3))
    onp.testing.assert_allclose(variance, exact, rtol=1e-4)
    naive = (whole**2).mean((0, 2, 3)) - whole.mean((0, 2, 3)) ** 2  # "mean of squares less squared mean"
    assert not onp.allclose(naive, exact, rtol=1e-4)


def test_a_way_back_is_counted_only_where_there_is_one():
    sent, x = traffic.Traffic(), np.ones((2, 3))
    assert sent.send(x, mx.cpu(1), "it", back=True).ctx == mx.cpu(1)
    assert dict(sent.nbytes) == {("it", traffic.FORWARD): 24}
    with autograd.record():
        sent.send(x, mx.cpu(1), "it", back=True)
    assert dict(sent.nbytes) == {("it", traffic.FORWARD): 48, ("it", traffic.BACKWARD): 24}
    sent.clear()
    assert sent.total() == 0


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("n", [1, 3, 4])
def test_an_allreduce_moves_what_its_plan_sends(algorithm, n):
    moved = traffic.allreduce_bytes(algorithm, devices(n), 1000, 4)
    if algorithm == "shared-memory":  # half of it is read in place: it moves all the same
        assert moved == 2 * (n - 1) * 4000
    else:
        assert moved == 4 * sum(plan(algorithm, n, [1000]).sent(1000))
    assert traffic.allreduce_bytes(algorithm, devices(n), 0, 4) == 0
