"""What holds for all strategies."""

import re
from functools import partial

import numpy as onp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from nets import UNSHRUNK, devices, drawn_nets, example, run, serial, serial_run, unsteady, wrong

from mxdp.backend import mx, np, upload
from mxdp.layers import BatchNorm, Conv, Residual
from mxdp.parallel import data, fully_sharded, layerwise, pipeline, stage, tile, traffic
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
from mxdp.tracing import record

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
    """Any network, devices, and samples that don't divide, of NumPy or of MXNet wherever they are; three steps."""
    draw = drawn.draw
    net, shape = draw(drawn_nets(residual=strategy in ("data", "fully-sharded")))
    make, n, pieces = drawn_strategy(strategy, draw, net, draw(st.integers(1, 4)))
    samples = draw(st.integers(0, 3))
    params = example(net, shape, 1, "float64")[0]
    try:
        made = make(net, params, shape, draw(st.permutations(devices(n))))
    except ValueError as error:
        if not any(words in str(error) for words in TOO_SMALL):
            raise
        assume(False)
    _, X, y = example(net, shape, made.least + samples, "float64")
    case = net, [[param.copy() for param in layer] for layer in params], X, y, list(pieces(len(X)))
    expected = serial_run(*case)
    params[-1][-1][:] = onp.nan  # they are copied
    if draw(st.booleans()):
        X, y = np.array(X, dtype=X.dtype, ctx=mx.cpu(1)), np.array(y, ctx=mx.cpu(3))
    # MXNet's optimisers have rates of float32.
    tolerance = 1e-6 if strategy == "fully-sharded" else None
    found = wrong(run(made, X, y), expected, tolerance)
    assume(not found or not unsteady(*case, tolerance))
    assert found == []
    assert made.in_step()
    assert made.traffic.total() == made.bytes_moved(len(X))
    assert made.step(X, y).ctx == made.scores(X).ctx == made.devices[0]
    assert not any(way == traffic.BACKWARD for _, way in made.traffic.nbytes)


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
def test_every_copy_is_counted(strategy, n, options):
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
    with record(made.devices) as recording:
        made.step(X, y)
    assert sum(event.name == "CopyCPU2CPU" for event in recording.timeline.events) == expected


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


SPLITS = [(Layerwise, {}), (Pipeline, {"micro_batches": 2, "cuts": (3,)})]
each_split = pytest.mark.parametrize(("split", "options"), SPLITS, ids=("layerwise", "pipeline"))


def combined(split, options, n=4, **more):
    net, shape, params, X, y, expected = serial("lenet")
    return Combined(net, params, shape, devices(n), split, **options, **more), X, y, expected


def test_pipelines_are_cut_where_the_first_is(monkeypatch):
    """Of another measurement another place would come."""
    measured, places = pipeline.find_cuts, iter([(3,), (4,)])
    monkeypatch.setattr(pipeline, "find_cuts", lambda *given, **more: measured(*given, **more) and next(places))
    strategy, *_ = combined(Pipeline, {"micro_batches": 2, "batch_size": 4})
    assert [group.cuts for group in strategy.groups] == [(3,), (3,)]


@each_split
def test_memory_is_that_of_the_groups(split, options):
    strategy, *_ = combined(split, options)
    net, shape, params, *_ = serial("lenet")
    alone = split(net, params, shape, devices(2), **options)
    assert strategy.param_bytes() == 2 * alone.param_bytes()
    assert strategy.lasting_bytes(31) == alone.lasting_bytes(16) + alone.lasting_bytes(15)
    assert strategy.peak_bytes(31) == alone.peak_bytes(16) + alone.peak_bytes(15)


@pytest.mark.parametrize("groups", [0, 3, 2.0, "2"])
def test_devices_that_cannot_be_divided_are_refused(groups):
    net, shape, params, *_ = serial("lenet")
    text = f"4 devices can't be divided into {groups} groups of equal size: use a number of groups that divides 4"
    with pytest.raises(ValueError, match=re.escape(text)):
        Combined(net, params, shape, devices(4), Layerwise, groups=groups)


@pytest.mark.parametrize(
    ("split", "samples", "text"),
    [
        (SPLITS[0], 1, "a batch of 1 is too small for 2 groups: use at least 2 samples, or fewer groups"),
        (SPLITS[1], 3, "a batch of 3 is too small for 2 groups with 2 micro-batches each: use at least 4 samples"),
        ((Data, {}), 3, "a batch of 3 is too small for 2 groups with 2 devices each: use at least 4 samples"),
    ],
)
def test_a_batch_that_is_too_small_is_refused_before_anything_is_trained(split, samples, text):
    strategy, X, y, _ = combined(*split)
    strategy.groups[0].step = None  # would raise a TypeError
    for work in (lambda: strategy.step(X[:samples], y[:samples]), lambda: strategy.scores(X[:samples])):
        with pytest.raises(ValueError, match=re.escape(text)):
            work()


def test_a_variance_much_smaller_than_the_mean_keeps_its_digits():
    whole = onp.random.RandomState(0).normal(100, 1, (5, 2, 3, 5)).astype("float32")
    xs = [upload(part, device) for part, device in zip(onp.split(whole, [3]), devices(2))]
    variance = traffic.moments_of_all(xs, traffic.Traffic(), back=False)[0][1].asnumpy().ravel()
    onp.testing.assert_allclose(variance, whole.astype("float64").var((0, 2, 3)), rtol=1e-4)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("n", [1, 3, 4])
def test_an_allreduce_moves_what_its_plan_sends(algorithm, n):
    moved = traffic.allreduce_bytes(algorithm, devices(n), 1000, 4)
    if algorithm == "shared-memory":  # half of it is read in place: it moves all the same
        assert moved == 2 * (n - 1) * 4000
    else:
        assert moved == 4 * sum(plan(algorithm, n, [1000]).sent(1000))
    assert traffic.allreduce_bytes(algorithm, devices(n), 0, 4) == 0
