from __future__ import annotations

import pytest
from nets import devices, faults, prepared, serial
from serial import assert_equal, run

from mxdp.layers import LENET, moments
from mxdp.parallel import traffic
from mxdp.parallel.data import Data


@pytest.mark.parametrize("algorithm", ["naive", "ring", "sharded"])
def test_any_allreduce(algorithm):
    net, shape, params, X, y, expected = serial("lenet", samples=6)
    strategy = Data(net, params, shape, devices(3), algorithm)
    assert_equal(run(strategy, X, y), expected)
    numbers = sum(param.size for layer in params for param in layer)
    assert strategy.bytes_moved(len(X)) == 4 * (2 * 2 * numbers + 4)


def test_statistics_without_the_sizes_of_the_shards_are_caught(monkeypatch):

    def unweighted(xs, traffic, back):
        moved = [[part.as_in_ctx(xs[0].ctx) for part in moments(x)] for x in xs]
        mean = sum(m for m, _ in moved) / len(moved)
        variance = sum(v + (m - mean) ** 2 for m, v in moved) / len(moved)
        return [(mean.as_in_ctx(x.ctx), variance.as_in_ctx(x.ctx)) for x in xs]

    monkeypatch.setattr(traffic, "moments_of_all", unweighted)
    assert "scores" in faults(Data, 2, "stack", "float64", 5)


def test_statistics_through_which_no_gradient_flows_are_caught(monkeypatch):
    whole = traffic.moments_of_all
    monkeypatch.setattr(
        traffic, "moments_of_all", lambda *given: [(mean.detach(), variance) for mean, variance in whole(*given)]
    )
    differing = faults(Data, 2, "stack")
    assert "gradients 0.0" in differing
    assert "scores" not in differing


def test_what_cannot_be_split_is_refused():
    params, X, y = prepared("lenet")
    with pytest.raises(ValueError, match="can't split a batch of 2 over 3 devices"):
        Data(LENET, params, (1, 28, 28), devices(3)).step(X[:2], y[:2])
    with pytest.raises(ValueError, match="no plan is called"):
        Data(LENET, params, (1, 28, 28), devices(2), "rings")
