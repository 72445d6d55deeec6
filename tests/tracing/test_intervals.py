from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mxdp.tracing.intervals import at_least, intersect, merge, subtract, total, within

END = 40
POINTS = st.integers(0, END)
ANY = st.lists(st.tuples(POINTS, POINTS).map(lambda pair: (min(pair), max(pair))), max_size=8)
SETS = ANY.map(merge)


def moments(intervals):
    """Brute force: each moment between two whole numbers is in or out."""
    return {moment for start, end in intervals for moment in range(start, end)}


def assert_tidy(intervals):
    assert all(start < end for start, end in intervals)
    assert all(end < start for (_, end), (start, _) in zip(intervals, intervals[1:]))


@given(ANY)
def test_merge(intervals):
    assert_tidy(merge(intervals))
    assert moments(merge(intervals)) == moments(intervals)
    assert total(merge(intervals)) == len(moments(intervals))


@given(SETS, SETS)
def test_intersect_and_subtract(left, right):
    assert_tidy(intersect(left, right))
    assert moments(intersect(left, right)) == moments(left) & moments(right)
    assert_tidy(subtract(left, right))
    assert moments(subtract(left, right)) == moments(left) - moments(right)


@given(SETS, POINTS, POINTS)
def test_within(intervals, start, end):
    assert_tidy(within(intervals, start, end))
    assert moments(within(intervals, start, end)) == moments(intervals) & set(range(start, end))


@given(st.lists(SETS, max_size=4), st.integers(1, 4))
def test_at_least(sets, count):
    expected = {moment for moment in range(END) if sum(moment in moments(spans) for spans in sets) >= count}
    assert_tidy(at_least(count, sets))
    assert moments(at_least(count, sets)) == expected
