from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.partition import bounds, cuts, offsets


@given(length=st.integers(0, 500), parts=st.integers(1, 40))
def test_pieces_cover_everything_once_in_order(length, parts):
    pieces = bounds(length, parts)
    assert len(pieces) == parts
    assert [i for start, stop in pieces for i in range(start, stop)] == list(range(length))


@given(length=st.integers(0, 500), parts=st.integers(1, 40))
def test_lengths_differ_by_one_at_most_and_longer_come_first(length, parts):
    sizes = [stop - start for start, stop in bounds(length, parts)]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


@given(length=st.integers(0, 500), parts=st.integers(1, 40))
def test_cuts_are_the_inner_borders(length, parts):
    assert [0, *cuts(length, parts), length] == [bounds(length, parts)[0][0]] + [
        stop for _, stop in bounds(length, parts)
    ]


@pytest.mark.parametrize(("length", "parts"), [(-1, 2), (3, 0), (3, -1)])
def test_what_cannot_be_cut_is_named(length, parts):
    with pytest.raises(ValueError, match=f"{length} elements into {parts} parts"):
        bounds(length, parts)


@given(sizes=st.lists(st.integers(0, 50), max_size=10))
def test_offsets_are_borders_of_neighbouring_pieces(sizes):
    borders = offsets(sizes)
    assert [stop - start for start, stop in zip(borders, borders[1:])] == sizes
    assert borders[0] == 0
