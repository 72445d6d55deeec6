from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.partition import balance, pieces

times = st.lists(st.integers(0, 20), min_size=1, max_size=9)


def every_cut(layers, stages):
    return combinations(range(1, layers), stages - 1)


def sums(values, borders):
    return [sum(values[start:stop]) for start, stop in pieces(len(values), borders)]


@given(times=times, data=st.data())
def test_no_cut_is_better(times, data):
    stages = data.draw(st.integers(1, len(times)))
    borders = balance(times, stages)
    best = min((max(sums(times, cut)), cut) for cut in every_cut(len(times), stages))
    assert max(sums(times, borders)) == best[0]


@given(times=times, data=st.data())
def test_no_cut_within_the_limits_is_better(times, data):
    stages = data.draw(st.integers(1, len(times)))
    layers = data.draw(st.lists(st.integers(0, 9), min_size=len(times), max_size=len(times)))
    limit = data.draw(st.integers(0, 90))

    def nbytes(stage, start, stop):
        return (stages - stage) * sum(layers[start:stop])

    def fits(cut):
        return all(nbytes(stage, *piece) <= limit for stage, piece in enumerate(pieces(len(times), cut)))

    allowed = [cut for cut in every_cut(len(times), stages) if fits(cut)]
    if not allowed:
        with pytest.raises(ValueError, match=r"no cut of .* keeps to"):
            balance(times, stages, nbytes, limit)
        return
    borders = balance(times, stages, nbytes, limit)
    assert fits(borders)
    assert max(sums(times, borders)) == min(max(sums(times, cut)) for cut in allowed)


def test_of_equal_cuts_the_first_is_taken():
    assert balance([0, 0, 0, 0], 3) == (1, 2)
    assert balance([5, 0, 5], 2) == (1,)


@pytest.mark.parametrize("stages", [0, -1, 4])
def test_each_stage_needs_a_layer(stages):
    with pytest.raises(ValueError, match=f"can't cut 3 layers into {stages} stages"):
        balance([1, 1, 1], stages)


@pytest.mark.parametrize("borders", [(0,), (5,), (3, 2), (2, 2), (-1,), (6,)])
def test_cuts_that_leave_a_stage_empty_are_refused(borders):
    with pytest.raises(ValueError, match="rising layer numbers from 1 to 4"):
        pieces(5, borders)


def test_pieces_of_one_stage():
    assert pieces(5, ()) == [(0, 5)]
