"""What holds for all strategies."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
from nets import DTYPES, NETS, copies, devices, faults, pipe, serial
from serial import assert_equal, run, wrong

from mxdp.backend import mx, np
from mxdp.layers import BatchNorm, moments
from mxdp.parallel import data, fully_sharded, layerwise, stage, tile, traffic
from mxdp.parallel import strategy as common
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.stage_times import measure_stages
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.tile import Tile
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.operations import operations

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
    made = STRATEGIES[strategy](net, params, shape, devices(3)[::-1])
    X, y = np.array(X, ctx=mx.cpu(1)), np.array(y, ctx=mx.cpu(3))
    assert_equal(run(made, X, y), expected)
    assert made.step(X, y).ctx == mx.cpu(2), "the losses are on the first device"


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
def test_what_is_no_array_of_samples_is_one_sentence(strategy):
    net, shape, params, X, y, _ = serial("lenet")
    made = STRATEGIES[strategy](net, params, shape, devices(3))
    calls = [("X", X, lambda X: made.step(X, y)), ("y", y, lambda y: made.step(X, y)), ("X", X, made.scores)]
    if strategy == "pipeline":
        calls += [("X", X, lambda X: measure_stages(made, X, y)), ("y", y, lambda y: measure_stages(made, X, y))]
        calls += [("X", X, lambda X: measure_stages(made, X, None))]
    for name, good, call in calls:
        for bad in (good.tolist(), tuple(good), good[..., 0].sum(), np.array(good).as_nd_ndarray(), np.array(1)):
            with pytest.raises(TypeError, match=f"(?i)^{name} must be an array of "):
                call(bad)
        with pytest.raises(TypeError, match=f"(?i)^{name} is complex64, which MXNet's arrays can't be"):
            call(good.astype("complex64"))


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


@pytest.mark.parametrize("algorithm", ["naive", "ring", "sharded"])
def test_any_allreduce(algorithm):
    net, shape, params, X, y, expected = serial("lenet", samples=6)
    strategy = Data(net, params, shape, devices(3), algorithm)
    assert_equal(run(strategy, X, y), expected)
    numbers = sum(param.size for layer in params for param in layer)
    assert strategy.bytes_moved(len(X)) == 4 * (2 * 2 * numbers + 4)


def of_each_part(xs, traffic, back):
    return [moments(x) for x in xs]


def without_the_sizes_of_the_parts(xs, traffic, back):
    moved = [[part.as_in_ctx(xs[0].ctx) for part in moments(x)] for x in xs]
    mean = sum(m for m, _ in moved) / len(moved)
    variance = sum(v + (m - mean) ** 2 for m, v in moved) / len(moved)
    return [(mean.as_in_ctx(x.ctx), variance.as_in_ctx(x.ctx)) for x in xs]


def without_gradient(*given, whole=traffic.moments_of_all):
    return [(mean.detach(), variance) for mean, variance in whole(*given)]


@pytest.mark.parametrize(
    ("strategy", "broken", "shown"),
    [
        (Data, of_each_part, {"scores", "losses", "gradients 0.0"}),
        (Tile, of_each_part, {"scores", "losses", "gradients 0.0"}),
        (Data, without_the_sizes_of_the_parts, {"scores", "losses", "gradients 0.0"}),
        (Data, without_gradient, {"gradients 0.0"}),
    ],
)
def test_wrong_statistics_are_caught(strategy, broken, shown, monkeypatch):
    monkeypatch.setattr(traffic, "moments_of_all", broken)
    assert faults(strategy, 2, "stack", "float64", 5) & {"scores", "losses", "gradients 0.0"} == shown


@pytest.mark.parametrize(
    ("strategy", "right"),
    [(Data, {"scores", "losses"}), (Tile, {"scores", "losses", "gradients 8.0"})],
)
def test_gradients_that_are_not_summed_are_caught(strategy, right):
    net, shape, params, X, y, expected = serial("stack")
    made = strategy(net, params, shape, devices(3))
    made.gradients_moved()
    differing = wrong(run(made, X, y), expected)
    assert {"gradients 0.0", "gradients 1.0", "gradients 1.1", "gradients 4.0", "gradients 5.1"} <= set(differing)
    assert right.isdisjoint(differing)
    assert not made.in_step()


@pytest.mark.parametrize(("strategy", "n", "options"), [(Data, 3, {"algorithm": "naive"}), (Tile, 4, {})])
def test_every_copy_is_counted(strategy, n, options, tmp_path):
    net, shape, params, X, y, _ = serial("strided")
    made = strategy(net, params, shape, devices(n), **options)
    made.step(X, y)
    messages = made.traffic.messages
    expected = sum(messages.values()) - messages["gradients", "backward"]
    for bucket in made.buckets:
        expected += sum(operation.action == "copy" for operation in operations(plan(bucket.algorithm, n)))
    # And those that devices make for themselves, there and back: the first makes two for each batch normalisation,
    expected += 2 * 2 * sum(isinstance(layer, BatchNorm) for layer in net)
    # and each tile makes one in a step of an exchange; none in the first layer.
    plans = getattr(made, "exchanges", [])[1:]
    expected += 2 * n * sum(bool(step) for exchange in plans if exchange for step in exchange.steps)
    assert copies(lambda: made.step(X, y), tmp_path / "trace.json") == expected


def test_a_rounding_is_not_wrong_but_a_thousandth_is():
    *_, X, y, expected = serial("lenet")
    actual = run(pipe("lenet"), X, y)
    assert_equal(actual, expected, tolerance=2e-6)
    actual.gradients[3][1][0] *= 1.001
    assert wrong(actual, expected) == ["gradients 3.1"]
