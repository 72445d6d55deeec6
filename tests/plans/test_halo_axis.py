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
    lines = windows.__doc__.splitlines()
    (rows,) = [line for line in lines if line.startswith("    row ")]
    at = {int(row): rows.index(f" {row}") + 1 for row in rows.split()[1:]}
    for number, piece in enumerate(cut_axis(9, 2, Window(3, padding=1))):
        own, needs = set(range(*piece.own)), set(range(*piece.needs))
        marks = {at[row]: "o" if row in own else "h" for row in needs}
        marks.update({at[row] + 3 * (1 if row else -1): "." for row, pad in zip((0, 8), piece.padding) if pad})
        for verb, drawn in (("holds", {at[row]: "o" for row in own}), ("needs", marks)):
            label = f"    tile {number} {verb}"
            text = label + "".join(drawn.get(place, " ") for place in range(len(label), max(drawn) + 1))
            assert any(line.startswith(text) and not line[len(text) : at[8] + 4].strip() for line in lines)
