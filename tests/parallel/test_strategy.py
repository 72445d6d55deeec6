"""What holds for all strategies."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
from nets import DTYPES, NETS, devices, faults, pipe, serial
from serial import TOLERANCE, assert_equal, run, wrong

import mxdp
from mxdp.backend import mx, np
from mxdp.layers import moments
from mxdp.parallel import data, fully_sharded, layerwise, stage, tile, traffic
from mxdp.parallel import strategy as common
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.tile import Tile

STRATEGIES = {
    "data": Data,
    "layerwise": Layerwise,
    "pipeline": partial(Pipeline, cuts=(3, 6)),
    "tile": Tile,
    "fully-sharded": FullySharded,
    "combined": partial(Combined, split=Layerwise, groups=3),
}
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)


@pytest.mark.parametrize("strategy", [Data, Layerwise, Pipeline, Tile, FullySharded, Combined])
def test_has_the_common_form(strategy):
    for name, method in vars(Strategy).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            assert list(inspect.signature(getattr(strategy, name)).parameters) == list(
                inspect.signature(method).parameters
            )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 2, 3, 4])
@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("strategy", [Data, Layerwise, Tile])
def test_equals_the_serial_run(strategy, name, n, dtype):
    net, shape, params, X, y, expected = serial(name, dtype)
    made = strategy(net, params, shape, devices(n))
    assert_equal(run(made, X, y), expected)
    assert made.in_step()
    assert made.traffic.total() == made.bytes_moved(len(X))


@each_strategy
def test_arrays_of_mxnet_are_taken_too_wherever_they_are(strategy):
    net, shape, params, X, y, expected = serial("lenet")
    made = STRATEGIES[strategy](net, params, shape, devices(3))
    assert_equal(run(made, np.array(X, ctx=mx.cpu(1)), np.array(y, ctx=mx.cpu(3))), expected)


@each_strategy
def test_what_cannot_be_is_refused(strategy):
    net, shape, params, X, y, _ = serial("lenet")
    for wrong_devices in ([], [mx.cpu(0)] * 3):
        with pytest.raises(ValueError, match="devices must be different ones"):
            STRATEGIES[strategy](net, params, shape, wrong_devices)
    made = STRATEGIES[strategy](net, params, shape, devices(3))
    for samples, labels in ((7, 6), (6, 7)):
        with pytest.raises(ValueError, match=f"{samples} samples and .*{labels} labels"):
            made.step(X[:samples], y[:labels])


@each_strategy
def test_the_arrays_that_a_layer_takes_lie_on_one_device(strategy, monkeypatch):
    """CPU devices read one another's memory, so that nothing else would show a missing copy."""
    places = []

    def noting(function):
        def call(*arguments):
            arrays = [x for argument in arguments for x in (argument if isinstance(argument, list) else [argument])]
            places.append({x.ctx for x in arrays if isinstance(x, np.ndarray)})
            return function(*arguments)

        return call

    for module in (common, data, fully_sharded, layerwise, stage, tile):
        for name in {"apply", "normalise", "cross_entropy"} & set(vars(module)):
            monkeypatch.setattr(module, name, noting(getattr(module, name)))
    net, shape, params, X, y, _ = serial("stack")
    made = STRATEGIES[strategy](net, params, shape, devices(3))
    made.step(X, y)
    made.scores(X)
    assert {len(contexts) for contexts in places} == {1}
    assert len(set.union(*places)) == 3


@pytest.mark.parametrize("strategy", [Data, Tile])
def test_statistics_of_each_shard_or_tile_are_caught(strategy, monkeypatch):
    monkeypatch.setattr(traffic, "moments_of_all", lambda xs, traffic, back: [moments(x) for x in xs])
    differing = faults(strategy, 2, "stack")
    assert {"scores", "losses", "gradients 0.0"} <= differing


def test_a_rounding_is_not_wrong_but_a_thousandth_is():
    *_, X, y, expected = serial("lenet")
    actual = run(pipe("lenet"), X, y)
    assert_equal(actual, expected, tolerance=2e-6)
    actual.gradients[3][1][0] *= 1.001
    assert wrong(actual, expected) == ["gradients 3.1"]


def test_data_is_what_train_batch_does():
    net, shape, params, X, y, _ = serial("lenet")
    strategy = Data(net, params, shape, devices(2))
    device_params = [mxdp.get_params([param for layer in params for param in layer], device) for device in devices(2)]
    for _ in range(3):
        strategy.step(X, y)
        strategy.update(0.1, len(X))
        mxdp.train_batch(np.array(X), np.array(y), device_params, devices(2), lr=0.1)
    ours = [param.asnumpy() for layer in strategy.params() for param in layer]
    for a, b in zip(ours, device_params[0]):
        assert abs(a - b.asnumpy()).max() <= TOLERANCE["float32"] * abs(a).max()
