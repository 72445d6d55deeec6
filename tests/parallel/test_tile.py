from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from nets import UNSHRUNK, devices, serial
from serial import example as batch
from serial import run, wrong

from mxdp.backend import np
from mxdp.layers import BatchNorm, Conv, Dense, Pool, Relu, forward
from mxdp.parallel.tile import Tile
from mxdp.plans.partition import bounds


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
    top, left = (bounds(length, 2)[0][1] for length in places.shape)
    # Both sides of a seam are wrong, and all that is further in than two windows reach is right.
    assert places[top - 1 : top + 1].any(axis=1).all()
    assert places[:, left - 1 : left + 1].any(axis=0).all()
    for rows in (slice(top - 3), slice(top + 3, None)):
        for columns in (slice(left - 3), slice(left + 3, None)):
            assert places[rows, columns].size
            assert not places[rows, columns].any()


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
