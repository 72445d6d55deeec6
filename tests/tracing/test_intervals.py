from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mxdp.tracing.intervals import at_least, intersect, merge, subtract, total, within

END = 40
POINTS = st.integers(0, END)
ANY = st.lists(st.tuples(POINTS, POINTS).map(lambda pair: (min(pair), max(pair))), max_size=8)


def moments(intervals):
    """Brute force: each moment between two whole numbers is in or out."""
    return {moment for start, end in intervals for moment in range(start, end)}


def tidy(intervals):
    """The same moments, after checking that these intervals are not empty, do not touch and are in order."""
    assert all(start < end for start, end in intervals)
    assert all(end < start for (_, end), (start, _) in zip(intervals, intervals[1:]))
    return moments(intervals)


@given(sets=st.lists(ANY, min_size=2, max_size=4), start=POINTS, end=POINTS, count=st.integers(1, 4))
def test_each_is_what_brute_force_says(sets, start, end, count):
    left, right, *_ = merged = [merge(intervals) for intervals in sets]
    assert [tidy(intervals) for intervals in merged] == list(map(moments, sets))
    assert total(left) == len(moments(left))
    assert tidy(intersect(left, right)) == moments(left) & moments(right)
    assert tidy(subtract(left, right)) == moments(left) - moments(right)
    assert tidy(within(left, start, end)) == moments(left) & set(range(start, end))
    often = {moment for moment in range(END) if sum(moment in moments(spans) for spans in merged) >= count}
    assert tidy(at_least(count, merged)) == often
