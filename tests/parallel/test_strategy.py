"""What holds for all strategies."""

from __future__ import annotations

from functools import partial

import numpy as onp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nets import UNSHRUNK, copies, devices, drawn_nets, serial
from serial import example, run, serial_run, wrong

from mxdp.backend import mx, np
from mxdp.layers import BatchNorm, Conv, Residual
from mxdp.parallel import data, fully_sharded, layerwise, stage, tile
from mxdp.parallel import strategy as common
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.stage_times import measure_stages
from mxdp.parallel.tile import Tile
from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.operations import operations
from mxdp.plans.partition import bounds
from mxdp.plans.pipeline import PIPELINES

STRATEGIES = {
    "data": Data,
    "layerwise": Layerwise,
    "pipeline": partial(Pipeline, cuts=(3, 6)),
    "tile": Tile,
    "fully-sharded": FullySharded,
    "combined": partial(Combined, split=Layerwise, groups=3),
}
each_strategy = pytest.mark.parametrize("strategy", STRATEGIES)
TOO_SMALL = "smaller than the halo", "can't be cut into"


def drawn_strategy(name, draw, net, n):
    """A way to make it, its number of devices, and by the number of samples, where what it normalises at once ends."""
    if name == "combined":
        groups = draw(st.integers(2, 3))
        width = draw(st.integers(1, 2))
        make, _, inner = drawn_strategy(
            draw(st.sampled_from(["data", "layerwise", "pipeline", "tile"])), draw, net, width
        )

        def pieces(samples):
            for start, stop in bounds(samples, groups):
                for a, b in inner(stop - start):
                    yield start + a, start + b

        return partial(Combined, split=make.func, groups=groups, **make.keywords), groups * width, pieces
    options = {}
    if name == "pipeline":
        n = min(n, len(net))
        cuts = draw(st.sets(st.integers(1, len(net) - 1), min_size=n - 1, max_size=n - 1)) if n > 1 else ()
        parts = draw(st.integers(1, 4))
        options = dict(cuts=tuple(sorted(cuts)), micro_batches=parts, schedule=draw(st.sampled_from(sorted(PIPELINES))))
        return partial(Pipeline, **options), n, lambda samples: bounds(samples, parts)
    if name == "tile":
        options["grid"] = draw(st.sampled_from([(1, n), (n, 1), (2, 2)] if n == 4 else [(1, n), (n, 1)]))
    elif name == "data":
        options["algorithm"] = draw(st.sampled_from(["auto", *sorted(ALGORITHMS)]))
    elif name == "fully-sharded":
        options["stage"] = draw(st.integers(0, 3))
    return partial(STRATEGIES[name], **options), n, lambda samples: [(0, samples)]


@each_strategy
@settings(max_examples=15, phases=UNSHRUNK)
@given(drawn=st.data())
def test_it_equals_the_serial_run_and_moves_what_it_says(strategy, drawn):
    """Any network, devices, and samples that don't divide; three steps."""
    draw = drawn.draw
    net, shape = draw(drawn_nets(residual=strategy in ("data", "fully-sharded")))
    make, n, pieces = drawn_strategy(strategy, draw, net, draw(st.integers(1, 4)))
    samples = draw(st.integers(0, 3))
    params = example(net, shape, 1, "float64")[0]
    try:
        made = make(net, params, shape, devices(n))
    except ValueError as error:
        if not any(words in str(error) for words in TOO_SMALL):
            raise
        assume(False)
    _, X, y = example(net, shape, made.least + samples, "float64")
    expected = serial_run(net, params, X, y, list(pieces(len(X))))
    params[-1][-1][:] = onp.nan  # they are copied
    # MXNet's optimisers have rates of float32.
    assert wrong(run(made, X, y), expected, 1e-6 if strategy == "fully-sharded" else None) == []
    assert made.in_step()
    assert made.traffic.total() == made.bytes_moved(len(X))


@each_strategy
def test_arrays_of_mxnet_are_taken_too_wherever_they_are(strategy):
    net, shape, params, X, y, expected = serial("lenet")
    made = STRATEGIES[strategy](net, params, shape, devices(3)[::-1])
    X, y = np.array(X, ctx=mx.cpu(1)), np.array(y, ctx=mx.cpu(3))
    assert wrong(run(made, X, y), expected) == []
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
    if strategy in ("layerwise", "tile"):
        shortened = (Residual((Conv(1, 1),)),)
        with pytest.raises(ValueError, match=r"layer 0 is a Residual, which can't be cut (into tiles|by its channels)"):
            STRATEGIES[strategy](shortened, [[]], shape, devices(3))


@each_strategy
def test_what_is_no_array_of_samples_is_one_sentence(strategy):
    net, shape, params, X, y, _ = serial("lenet")
    made = STRATEGIES[strategy](net, params, shape, devices(3))
    calls = [("X", X, lambda X: made.step(X, y)), ("y", y, lambda y: made.step(X, y)), ("X", X, made.scores)]
    if strategy == "pipeline":
        calls += [("y", y, lambda y: measure_stages(made, X, y)), ("X", X, lambda X: measure_stages(made, X, None))]
    for name, good, call in calls:
        for bad in (good.tolist(), np.array(good).as_nd_ndarray(), np.array(1)):
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


@pytest.mark.parametrize(("strategy", "n", "options"), [(Data, 3, {"algorithm": "naive"}), (Tile, 4, {})])
def test_every_copy_is_counted(strategy, n, options, tmp_path):
    net, shape, params, X, y, _ = serial("stack")
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


class WithoutOne(Data):
    """The last device leaves out its part."""

    def _sum_gradients(self):
        for param in self.held[-1]:
            param.grad[()] = 0
        super()._sum_gradients()


def test_a_part_that_is_left_out_is_found_and_a_thousandth():
    net, shape, params, X, y, expected = serial("lenet")
    found = wrong(run(WithoutOne(net, params, shape, devices(3)), X, y), expected)
    assert {name.split()[0] for name in found} == {"gradients", "params"}
    actual = run(Data(net, params, shape, devices(3)), X, y)
    actual["gradients 3.1"][0] *= 1.001
    assert wrong(actual, expected) == ["gradients 3.1"]
