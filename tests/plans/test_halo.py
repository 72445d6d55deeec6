"""Plans of tiles, compared with NumPy: which numbers a window sees, and which tile has them after each step."""

from __future__ import annotations

import dataclasses

import numpy as onp
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mxdp.plans.layers.halo import check_grid, exchange, exchanges
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.partition import bounds


@st.composite
def plans(draw):
    """(height, width, exchange) of any layer that can be cut."""
    window = draw(
        st.integers(1, 5).flatmap(
            lambda kernel: st.builds(Window, st.just(kernel), st.integers(1, 4), st.integers(0, kernel - 1))
        )
    )
    height, width = draw(st.integers(1, 23)), draw(st.integers(1, 23))
    grid = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    try:
        return height, width, exchange(height, width, grid, window)
    except ValueError:
        assume(False)


def seen(plan, height, width, tile):
    """The numbers that this tile's windows see, found by moving them over a picture of numbers padded with -1."""
    window, (i, j) = plan.window, divmod(tile, len(plan.columns))
    padded = onp.pad(onp.arange(height * width).reshape(height, width), window.padding, constant_values=-1)
    numbers = set()
    for y in range(*plan.rows[i].makes):
        for x in range(*plan.columns[j].makes):
            top, left = y * window.stride, x * window.stride
            numbers.update(padded[top : top + window.kernel, left : left + window.kernel].ravel().tolist())
    return numbers - {-1}


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


@given(plan=plans())
def test_a_tile_needs_and_gets_the_rectangle_of_what_its_windows_see_and_no_more(plan):
    height, width, exchange = plan
    for tile, held in enumerate(play(exchange, width)):
        numbers = seen(exchange, height, width, tile)
        assert numbers <= held
        ys, xs = zip(*(divmod(number, width) for number in numbers))
        row, column = exchange.pieces(tile)
        assert (min(ys), max(ys) + 1, min(xs), max(xs) + 1) == (*row.needs, *column.needs)


@given(plan=plans())
def test_windows_over_the_tile_alone_give_its_part_of_the_output(plan):
    height, width, exchange = plan
    random = onp.random.RandomState(0)
    picture = random.randint(0, 100, (height, width))
    whole = sums(onp.pad(picture, exchange.window.padding), exchange.window)
    for row in exchange.rows:
        for column in exchange.columns:
            given_ = onp.pad(picture[slice(*row.needs), slice(*column.needs)], (row.padding, column.padding))
            assert (sums(given_, exchange.window) == whole[slice(*row.makes), slice(*column.makes)]).all()


def sums(padded, window):
    """The sum in each window, without windows at the end that don't fit."""
    views = onp.lib.stride_tricks.sliding_window_view(padded, (window.kernel, window.kernel))
    return views[:: window.stride, :: window.stride].sum(axis=(2, 3))


@given(plan=plans())
def test_parts_lie_side_by_side_in_neighbours_and_are_all_that_is_needed(plan):
    _, _, exchange = plan
    for axis in (exchange.rows, exchange.columns):
        assert [piece.own for piece in axis] == bounds(axis[-1].own[1], len(axis))
        for number, piece in enumerate(axis):
            assert [row for _, part in piece.parts for row in range(*part)] == list(range(*piece.needs))
            assert {holder for holder, _ in piece.parts} <= {number - 1, number, number + 1}


def test_a_missing_halo_row_would_be_found():
    plan = exchange(9, 4, (2, 1), Window(3, padding=1))
    upper, lower = plan.rows
    short = dataclasses.replace(upper, needs=(0, 5), parts=((0, (0, 5)),))
    broken = dataclasses.replace(plan, rows=(short, lower))
    assert not seen(broken, 9, 4, 0) <= play(broken, 4)[0]


def test_a_halo_from_two_tiles_away_is_refused():
    with pytest.raises(ValueError, match=r"rows: tile 0 of 4 holds 0:1 and needs 0:3 of 4.*smaller than the halo"):
        exchange(4, 9, (4, 1), Window(5, padding=2))


def test_more_tiles_than_rows_are_refused():
    with pytest.raises(ValueError, match="5 -> 1 can't be cut into 2"):
        exchange(5, 5, (2, 1), Window(5))
    with pytest.raises(ValueError, match="3 x 9 can't be cut into 4 x 1 tiles"):
        exchanges([None], 3, 9, (4, 1))


def test_the_layer_that_is_too_small_is_named():
    with pytest.raises(ValueError, match="layer 2, columns: 3 -> 1 can't be cut into 2"):
        exchanges([Window(2, 2), None, Window(2, 2)], 16, 6, (2, 2))


@pytest.mark.parametrize("grid", [(0, 1), (1, -1), (2.0, 1), (1, 2, 3)])
def test_a_grid_without_tiles_is_refused(grid):
    with pytest.raises(ValueError, match="two sides, whole numbers of at least 1"):
        check_grid(grid)
