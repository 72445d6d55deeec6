"""Layers that are cut: by their channels, into tiles, or into shards, which every stage of ZeRO keeps otherwise."""

import numpy as onp
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from nets import STACK, UNSHRUNK, devices, run, serial, wrong
from nets import example as batch

from mxdp.backend import mx, np
from mxdp.experiments import networks
from mxdp.layers import LENET, BatchNorm, Conv, Dense, Pool, Relu, Residual, forward, outputs, resnet18
from mxdp.parallel import layerwise, traffic
from mxdp.parallel.combined import Combined
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.tile import Tile
from mxdp.parallel.traffic import flat
from mxdp.plans.layers import fully_sharded as plans
from mxdp.plans.partition import bounds

MIXED = (BatchNorm(), Pool(2), Dense(7), Relu(), Dense(9), Dense(5), Relu(), Dense(6), Relu(), Dense(10))
"""Begins with tied parameters, has two pairs that touch, and ends with a layer without a partner."""


def test_scores_may_be_pictures():
    net = (Conv(6, 3), Relu(), Conv(5, 3))
    params, X, _ = batch(net, (2, 9, 8), 3)
    for length in (1, 2, 3):
        expected = forward(net[:length], np.array(X), params).asnumpy()
        scores = Layerwise(net[:length], params[:length], (2, 9, 8), devices(2)).scores(X).asnumpy()
        assert scores.shape == expected.shape
        assert abs(scores - expected).max() < 1e-5


@pytest.mark.parametrize(
    ("net", "shape", "n", "forward", "backward", "numbers"),
    [
        (LENET, (1, 28, 28), 2, 2, 1, 4 * (50 * 9 * 9 + 10 + 800)),
        (LENET, (1, 28, 28), 1, 0, 0, 0),
        (MIXED, (2, 6, 5), 2, 2, 3, 4 * (9 + 6 + 6 + 9 + 12)),  # before its first pair there are parameters
        ((Dense(6), Relu(), Dense(10)), (7,), 2, 1, 0, 4 * 10),
    ],
    ids=["lenet", "one device", "mixed", "one pair"],
)
def test_each_allreduce_is_counted_when_it_is_done(net, shape, n, forward, backward, numbers):
    params, X, y = batch(net, shape, 4)
    strategy = Layerwise(net, params, shape, devices(n))
    assert strategy.allreduces == {"forward": 0, "backward": 0}
    for _ in range(2):
        strategy.step(X, y)
        assert strategy.allreduces == {"forward": forward, "backward": backward}
    moved = strategy.traffic.nbytes
    assert sum(moved[layerwise.ALL_REDUCE, way] for way in ("forward", "backward")) == 4 * 2 * numbers
    strategy.scores(X)
    assert strategy.allreduces == {"forward": forward, "backward": 0}


def test_only_what_is_whole_is_tied():
    params, _, _ = batch(STACK, (3, 17, 19), 4)
    strategy = Layerwise(STACK, params, (3, 17, 19), devices(3))
    tied = 4 * sum(param.size for param in params[5])
    assert sum(strategy.param_bytes()) == 2 * tied + 4 * sum(param.size for param in traffic.flat(params))
    strategy._params[1][1][0][:] += 1  # of the device's own channels: nobody else has them
    assert strategy.in_step()
    strategy._params[2][5][0][:] += 1
    assert not strategy.in_step()


def test_fewer_outputs_than_devices_are_refused():
    net = (Conv(3, kernel=3), Relu(), Dense(10))
    params, _, _ = batch(net, (1, 5, 5), 1)
    with pytest.raises(ValueError, match=r"layer 0, Conv.*has 3 outputs for 4 devices"):
        Layerwise(net, params, (1, 5, 5), devices(4))
    assert Layerwise(net, params, (1, 5, 5), devices(3)).param_bytes()


@st.composite
def layers(draw):
    kernel = draw(st.integers(1, 4))
    numbers = kernel, draw(st.integers(1, 3)), draw(st.integers(0, kernel // 2))
    image = Conv(2, *numbers), Pool(*numbers), Pool(*numbers, "avg")
    return draw(st.sampled_from([*image, Relu(), BatchNorm()]))


@settings(max_examples=40, phases=UNSHRUNK)
@given(
    net=st.lists(layers(), min_size=1, max_size=3),
    sides=st.tuples(st.integers(5, 20), st.integers(5, 20)),
    grid=st.sampled_from([(2, 2), (1, 4), (3, 1), (2, 3)]),
)
# Of rows 0, 3 ... 15, the third tile sees row 12, and needs nothing of its own.
@example(net=[Conv(3, kernel=1), Conv(2, kernel=1, stride=3)], sides=(16, 4), grid=(4, 1))
def test_pictures_are_those_of_the_whole(net, sides, grid):
    shape = (2, *sides)
    try:
        params, X, _ = batch(net, shape, 2, "float64")
        made = Tile(net, params, shape, devices(grid[0] * grid[1]), grid=grid)
    except ValueError:
        assume(False)
    expected = forward(net, np.array(X), params).asnumpy()
    onp.testing.assert_allclose(made.scores(X).asnumpy(), expected, rtol=1e-9, atol=1e-9)


def whole_numbers(shape, seed=0):
    return onp.random.RandomState(seed).randint(-4, 5, shape).astype("float32")


@pytest.mark.parametrize("padding", [0, 1])
@pytest.mark.parametrize("sides", [(14, 14), (13, 15)])
def test_without_halos_the_error_is_at_the_seams_alone(sides, padding):
    """Whole numbers have exact sums, so that "no error" means none at all."""
    net = (Conv(3, 3, padding=padding), Relu(), Conv(2, 3, padding=padding))
    params, _, _ = batch(net, (2, *sides), 1)
    params = [[np.array(whole_numbers(param.shape)) for param in layer] for layer in params]
    X = whole_numbers((2, 2, *sides), seed=1)
    exact = forward(net, np.array(X), params).asnumpy()
    assert (Tile(net, params, (2, *sides), devices(4)).scores(X).asnumpy() == exact).all()
    error = Tile(net, params, (2, *sides), devices(4), halo=False).scores(X).asnumpy() != exact
    places = error.any((0, 1))
    rows, columns = (abs(onp.arange(length) - bounds(length, 2)[0][1] + 0.5) for length in places.shape)
    # Both sides of a seam are wrong, and all that is further in than two windows reach is right.
    assert places[rows < 1].any(axis=1).all()
    assert places[:, columns < 1].any(axis=0).all()
    assert not places[rows > 3][:, columns > 3].any()


def test_without_halos_nothing_but_the_halos_is_saved():
    net, shape, params, X, y, expected = serial("lenet")
    with_halo, without = (Tile(net, params, shape, devices(4), halo=halo) for halo in (True, False))
    for strategy in (with_halo, without):
        strategy.step(X, y)
        assert strategy.traffic.total() == strategy.bytes_moved(len(X))
    halos = sum(count for (what, _), count in with_halo.traffic.nbytes.items() if what == "halo")
    assert without.bytes_moved(len(X)) == with_halo.bytes_moved(len(X)) - halos > 0
    assert "scores" in wrong(run(without, X, y), expected)


def test_what_cannot_be_tiled_is_refused():
    def make(net, shape, grid, count=None):
        params = [[] for _ in net]
        return Tile(net, params, shape, devices(count or grid[0] * grid[1]), grid=grid)

    with pytest.raises(ValueError, match=r"layer 0, rows: tile 0 of 4 .*smaller than the halo"):
        make((Conv(2, 5, padding=2),), (1, 4, 9), (4, 1))
    with pytest.raises(ValueError, match="layer 1, columns: 4 -> 1 can't be cut into 2"):
        make((Conv(6, 3, 2, 1), Pool(4)), (2, 17, 7), (1, 2))
    with pytest.raises(ValueError, match="2 x 2 tiles need as many devices, not 3"):
        make((Conv(2, 3),), (1, 9, 9), (2, 2), 3)
    with pytest.raises(ValueError, match=r"pictures \(channels, height, width\), not from \(9,\)"):
        make((Dense(2),), (9,), (1, 2))
    with pytest.raises(ValueError, match="a padding from 0 to kernel - 1"):
        make((Conv(2, 3, padding=3),), (1, 9, 9), (1, 2))
    net, shape, params, X, *_ = serial("lenet")
    with pytest.raises(ValueError, match=r"shape \(1, 28, 28\), not \(1, 27, 28\)"):
        Tile(net, params, shape, devices(2)).scores(X[:, :, 1:])


STAGES = (0, 1, 2, 3)
OPTIMIZERS = st.sampled_from(
    [("sgd", {}), ("sgd", {"momentum": 0.5, "wd": 0.01}), ("adam", {}), ("adam", {"beta1": 0.5, "beta2": 0.75})]
)


def poisoned(made):
    """The strategy, which fills with NaN whatever a task frees."""
    for unit in made.units:
        if made.plan.stage == 3:
            unit.calls[plans.FREE] = [lambda unit=unit: [x.__setitem__(slice(None), onp.nan) for x in unit.vectors]]
        if made.plan.stage > 1:
            fill = [lambda: [room.__setitem__(slice(None), onp.nan) for room in made._gradient_room]]
            unit.calls[plans.REDUCE_SCATTER] = [*unit.calls[plans.REDUCE_SCATTER], *fill]
    return made


@settings(max_examples=12, phases=UNSHRUNK)
@given(
    units=st.lists(st.integers(1, 11), min_size=1, max_size=4),
    n=st.integers(1, 4),
    optimizer=OPTIMIZERS,
    rates=st.lists(st.sampled_from([0.5, 0.125]), min_size=2, max_size=4),
    normalised=st.booleans(),
)
def test_every_stage_is_what_mxnets_optimizer_makes_of_each_array(units, n, optimizer, rates, normalised):
    """Layers smaller than the devices, too. The gradients' own test is that of all strategies."""
    name, options = optimizer
    net = (*[BatchNorm()] * normalised, *[layer for size in units for layer in (Dense(size), Relu())], Dense(10))
    shape = (2, 3, 1)
    params, X, y = batch(net, shape, n + 2)
    ends = []
    for stage in STAGES:
        made = poisoned(FullySharded(net, params, shape, devices(n), stage, name, **options))
        known = [param.copy().as_nd_ndarray() for param in flat(params)]
        updater = mx.optimizer.create(name, rescale_grad=1 / len(X), **options)
        states = [updater.create_state(number, param) for number, param in enumerate(known)]
        for rate in rates:
            made.step(X, y)
            gradients = flat(made.gradients())
            made.update(rate, len(X))
            updater.set_learning_rate(rate)
            for number, (param, gradient) in enumerate(zip(known, gradients)):
                updater.update(number, param, gradient.as_nd_ndarray(), states[number])
            for param, right in zip(flat(made.params()), known):
                onp.testing.assert_allclose(param.asnumpy(), right.asnumpy(), rtol=1e-5, atol=1e-6)
        ends.append([array.asnumpy().tobytes() for array in (*gradients, *flat(made.params()), made.scores(X))])
        assert made.in_step()
    assert ends[1:] == [ends[0]] * 3
    plain = FullySharded(net, params, shape, devices(n), 3)
    states = {"adam": 2, "sgd": int("momentum" in options)}[name]
    # The last device has the smallest shard of each layer.
    more = 4 * states * sum(size // n for size in made.sizes)
    assert made.lasting_bytes(1)[-1] == plain.lasting_bytes(1)[-1] + more


def test_paths_of_a_residual_layer_must_end_in_one_shape():
    with pytest.raises(ValueError, match=r"layer 1 adds up \(3, 2, 2\) and \(2, 4, 4\): a Residual's paths end in one"):
        outputs((Relu(), Residual((Conv(3, 3),))), (2, 4, 4))


def test_resnet18_has_as_many_parameters_as_gluons():
    made = FullySharded(resnet18(8), batch(resnet18(8), (1, 28, 28), 1)[0], (1, 28, 28), devices(2))
    assert len(made.units) == 11
    net = networks.resnet18(8)
    net.initialize()
    net(np.ones((1, 1, 28, 28)))
    assert sum(made.sizes) == sum(p.data().size for p in net.collect_params().values() if p.grad_req != "null")


def test_what_cannot_be_is_refused():
    net, shape, params, X, y, _ = serial("lenet")
    for given_, sentence in (
        (dict(stage=4), "there are the stages 0 .* to 3, not 4"),
        (dict(optimizer="adamm"), "no optimiser is called 'adamm' here; did you mean 'adam'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            FullySharded(net, params, shape, devices(2), **given_)
    with pytest.raises(ValueError, match="which groups can't add up: use another split"):
        Combined(net, params, shape, devices(4), FullySharded)
    with pytest.raises(ValueError, match="has no parameters to cut"):
        FullySharded((Relu(),), [[]], (3,), devices(2))
    with pytest.raises(ValueError, match="a batch of 2 has too few samples for 3 devices"):
        FullySharded(net, params, shape, devices(3)).step(X[:2], y[:2])
