"""One axis of a tiled picture; whole pictures are in test_halo.py."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from mxdp.plans.layers import halo_axis as windows
from mxdp.plans.layers.halo_axis import Window, cut_axis
from mxdp.plans.partition import bounds


@given(
    length=st.integers(1, 15),
    parts=st.integers(1, 5),
    kernel=st.integers(1, 7),
    stride=st.integers(1, 3),
    data=st.data(),
)
def test_it_is_refused_exactly_where_a_neighbour_is_too_small(length, parts, kernel, stride, data):
    window = Window(kernel, stride, data.draw(st.integers(0, kernel - 1)))
    places = window.places(length)
    assume(parts <= min(length, places))
    rows = [set(range(*piece)) for piece in bounds(length, parts)]
    far = False
    for number, (start, stop) in enumerate(bounds(places, parts)):
        needed = {
            y
            for place in range(start, stop)
            for y in range(place * stride - window.padding, place * stride - window.padding + kernel)
        } & set(range(length))
        reached = set().union(*rows[max(number - 1, 0) : number + 2])
        far = far or not set(range(min(needed), max(needed) + 1)) <= reached
    if far:
        with pytest.raises(ValueError, match="smaller than the halo"):
            cut_axis(length, parts, window)
    else:
        cut_axis(length, parts, window)


@pytest.mark.parametrize("numbers", [(0, 1, 0), (3, 0, 0), (3, 1, -1), (3, 1, 3)])
def test_a_window_that_sees_nothing_is_refused(numbers):
    with pytest.raises(ValueError, match="a padding from 0 to kernel - 1"):
        Window(*numbers)


def test_the_drawing_of_the_module_is_the_plan():
    upper, lower = cut_axis(9, 2, Window(3, padding=1))
    for number, piece in enumerate((upper, lower)):
        holds, needs = (
            next(line for line in windows.__doc__.splitlines() if line.strip().startswith(f"tile {number} {verb}"))
            for verb in ("holds", "needs")
        )
        at = {int(row): place for place, row in ((i, c) for i, c in enumerate(rows_of(windows.__doc__)) if c.isdigit())}
        assert {row for row, place in at.items() if holds[place : place + 1] == "o"} == set(range(*piece.own))
        assert {row for row, place in at.items() if needs[place : place + 1] in ("o", "h")} == set(range(*piece.needs))
        assert {row for row, place in at.items() if needs[place : place + 1] == "h"} == {
            row for holder, part in piece.parts if holder != number for row in range(*part)
        }
        drawn = needs[min(at.values()) - 3 : max(at.values()) + 4]
        assert drawn.count(".") == sum(piece.padding)


def rows_of(text):
    return next(line for line in text.splitlines() if line.strip().startswith("row "))
