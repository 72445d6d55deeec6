from __future__ import annotations

import numpy as onp
import pytest
from nets import copies, devices, faults, prepared, serial
from serial import assert_equal, example, run, serial_run, wrong

from mxdp.backend import mx
from mxdp.layers import LENET, BatchNorm, moments
from mxdp.parallel import traffic
from mxdp.parallel.data import Data
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.operations import operations


@pytest.mark.parametrize("samples", [4, 5, 7])
def test_uneven_shards_are_exact(samples):
    net, shape, params, X, y, expected = serial("stack", "float64", samples)
    assert_equal(run(Data(net, params, shape, devices(4)), X, y), expected)


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


def test_gradients_that_are_not_summed_are_caught():
    net, shape, params, X, y, expected = serial("lenet")
    strategy = Data(net, params, shape, devices(2))
    strategy._sync = type("Nothing", (), {"buckets": (), "__call__": lambda self: None})()
    differing = wrong(run(strategy, X, y), expected)
    assert {f"gradients {number}.{place}" for number in (0, 3, 6, 8) for place in (0, 1)} <= set(differing)
    assert "scores" not in differing
    assert not strategy.in_step()


def test_every_copy_is_counted(tmp_path):
    net, shape, params, X, y, _ = serial("strided")
    strategy = Data(net, params, shape, devices(3), "naive")
    strategy.step(X, y)
    allreduce = sum(operation.action == "copy" for operation in operations(plan("naive", 3)))
    # And those that the first device makes for itself, two for each batch normalisation, there and back.
    local = 2 * 2 * sum(isinstance(layer, BatchNorm) for layer in net)
    made = copies(lambda: strategy.step(X, y), tmp_path / "trace.json")
    messages = strategy.traffic.messages
    others = sum(messages.values()) - messages["gradients", "backward"]
    assert made == others + allreduce * len(strategy._sync.buckets) + local


def test_parameters_are_on_every_device_and_the_given_ones_are_left():
    params, X, y = example(LENET, (1, 28, 28), 4)
    before = [param.asnumpy() for layer in params for param in layer]
    strategy = Data(LENET, params, (1, 28, 28), devices(2))
    strategy.step(X, y)
    strategy.update(0.1, len(X))
    nbytes = sum(array.nbytes for array in before)
    assert strategy.param_bytes() == [nbytes, nbytes]
    assert all((param.asnumpy() == array).all() for param, array in zip(traffic.flat(params), before))
    assert all(param.ctx == mx.cpu(0) for param in traffic.flat(strategy.params()))


def test_the_losses_are_on_the_first_device_in_order():
    params, X, y = example(LENET, (1, 28, 28), 5)
    losses = Data(LENET, params, (1, 28, 28), [mx.cpu(1), mx.cpu(0)]).step(X, y)
    assert losses.ctx == mx.cpu(1)
    onp.testing.assert_allclose(losses.asnumpy(), serial_run(LENET, params, X, y).losses, rtol=1e-5)


def test_what_cannot_be_split_is_refused():
    params, X, y = prepared("lenet")
    with pytest.raises(ValueError, match="can't split a batch of 2 over 3 devices"):
        Data(LENET, params, (1, 28, 28), devices(3)).step(X[:2], y[:2])
    with pytest.raises(ValueError, match="no plan is called"):
        Data(LENET, params, (1, 28, 28), devices(2), "rings")
