"""Plans of tiles, compared with NumPy: which numbers a window sees, and which tile has them after each step."""

from collections import Counter
from contextlib import nullcontext

import numpy as onp
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mxdp.plans.layers.halo import exchange, exchanges, tiles
from mxdp.plans.layers.halo_axis import Window, cut_axis
from mxdp.plans.partition import bounds


@st.composite
def plans(draw):
    """(height, width, exchange) of any layer that can be cut."""
    kernel = draw(st.integers(1, 5))
    window = Window(kernel, draw(st.integers(1, 4)), draw(st.integers(0, kernel - 1)))
    height, width, *grid = draw(st.tuples(*[st.integers(1, 23)] * 2, *[st.integers(1, 4)] * 2))
    try:
        return height, width, exchange(height, width, grid, window)
    except ValueError:
        assume(False)


def cells(width, rows, columns):
    return {y * width + x for y in range(*rows) for x in range(*columns)}


def play(plan, width):
    """What each tile holds after both steps. A tile can only send what it holds when the step begins."""
    tiles = [(i, j) for i in range(len(plan.rows)) for j in range(len(plan.columns))]
    held = [cells(width, plan.rows[i].own, plan.columns[j].own) for i, j in tiles]
    for step in plan.steps:
        before = [set(cells_) for cells_ in held]
        for halo in step:
            sent = cells(width, halo.rows, halo.columns)
            assert len(sent) == halo.elements > 0
            assert sent <= before[halo.source]
            assert not sent & before[halo.target], "it has that already"
            held[halo.target] |= sent
    return held


def views_of(padded, window):
    """What each window sees, without windows at the end that don't fit."""
    views = onp.lib.stride_tricks.sliding_window_view(padded, (window.kernel, window.kernel))
    return views[:: window.stride, :: window.stride]


def sums(padded, window):
    return views_of(padded, window).sum(axis=(2, 3))


@settings(max_examples=60)
@given(plan=plans())
def test_a_tile_gets_the_rectangle_of_what_its_windows_see_and_makes_its_part_of_the_output(plan):
    height, width, exchange = plan
    numbered = onp.arange(height * width).reshape(height, width)
    picture = numbered**2 % 97
    whole = sums(onp.pad(picture, exchange.window.padding), exchange.window)
    places = views_of(onp.pad(numbered, exchange.window.padding, constant_values=-1), exchange.window)
    for axis in (exchange.rows, exchange.columns):
        assert [piece.own for piece in axis] == bounds(axis[-1].own[1], len(axis))
        for number, piece in enumerate(axis):
            assert [row for _, part in piece.parts for row in range(*part)] == list(range(*piece.needs))
            assert {holder for holder, _ in piece.parts} <= {number - 1, number, number + 1}
    for tile, held in enumerate(play(exchange, width)):
        row, column = exchange.pieces(tile)
        numbers = {*places[slice(*row.makes), slice(*column.makes)].ravel().tolist()} - {-1}
        ys, xs = zip(*(divmod(number, width) for number in numbers))
        assert (min(ys), max(ys) + 1, min(xs), max(xs) + 1) == (*row.needs, *column.needs)
        needed = cells(width, row.needs, column.needs)
        assert numbers <= needed <= held
        array = onp.pad(picture[slice(*row.needs), slice(*column.needs)], (row.padding, column.padding))
        assert (sums(array, exchange.window) == whole[slice(*row.makes), slice(*column.makes)]).all()
        assert exchange.areas(tile)[-1:] in ([array.size], [])
        # The drawing is read back, and each mark counted.
        drawn = Counter(exchange.drawn(tile).split())
        own = cells(width, row.own, column.own)
        assert drawn["o"] == len(own & needed)
        assert drawn["1"] + drawn["2"] == len(needed - own)
        assert sum(drawn.values()) == array.size


@pytest.mark.parametrize(
    ("windows", "size", "grid", "message"),
    [
        ([Window(5, padding=2)], (4, 9), (4, 1), r"layer 0, rows: tile 0 of 4 holds 0:1 and needs 0:3 of 4.*fewer"),
        ([Window(5)], (5, 5), (2, 1), "5 -> 1 can't be cut into 2"),
        ([None], (3, 9), (4, 1), "3 x 9 can't be cut into 4 x 1 tiles"),
        ([Window(2, 2), None, Window(2, 2)], (16, 6), (2, 2), "layer 2, columns: 3 -> 1 can't be cut into 2"),
        *(([], (9, 9), grid, "two sides, whole") for grid in [(0, 1), (1, -1), (2.0, 1), (1, 2, 3)]),
    ],
)
def test_what_cannot_be_cut_is_named(windows, size, grid, message):
    with pytest.raises(ValueError, match=message):
        exchanges(windows, *size, grid)


@given(
    kernels=st.lists(st.none() | st.integers(1, 3), max_size=4),
    height=st.integers(5, 16),
    width=st.integers(5, 16),
    grid=st.tuples(st.integers(1, 3), st.integers(1, 3)),
)
def test_each_layer_cuts_what_the_layer_before_has_made(kernels, height, width, grid):
    windows = [kernel and Window(kernel, padding=kernel // 2) for kernel in kernels]
    picture = onp.zeros((height, width))
    for window, planned in zip(windows, exchanges(windows, height, width, grid)):
        assert (planned is None) == (window is None)
        if window:
            assert planned == exchange(*picture.shape, grid, window)
            picture = sums(onp.pad(picture, window.padding), window)
    covered = [number for rows_columns in tiles(height, width, grid) for number in cells(width, *rows_columns)]
    assert sorted(covered) == list(range(height * width))


@given(
    length=st.integers(1, 15),
    parts=st.integers(1, 5),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 3),
    data=st.data(),
)
def test_it_is_refused_exactly_where_a_neighbour_is_too_small(length, parts, kernel, stride, data):
    window = Window(kernel, stride, data.draw(st.integers(0, kernel - 1)))
    assume(parts <= min(length, window.places(length)))
    rows = bounds(length, parts)
    far = False
    for number, (first, last) in enumerate(bounds(window.places(length), parts)):
        seen = range(first * stride - window.padding, (last - 1) * stride - window.padding + kernel)
        needed = set(seen) & set(range(length))
        far |= min(needed) < rows[max(number - 1, 0)][0]
        far |= max(needed) >= rows[min(number + 1, parts - 1)][1]
    with pytest.raises(ValueError, match="smaller than the halo") if far else nullcontext():
        cut_axis(length, parts, window)


@pytest.mark.parametrize("numbers", [(0, 1, 0), (3, 0, 0), (3, 1, -1), (3, 1, 3)])
def test_a_window_that_sees_nothing_is_refused(numbers):
    with pytest.raises(ValueError, match="a padding from 0 to kernel - 1"):
        Window(*numbers)
