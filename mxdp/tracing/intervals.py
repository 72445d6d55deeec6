"""Sets of moments as sorted lists of intervals that do not touch: ``[(0, 3), (5, 6)]``.

Intervals are half open: ``(0, 3)`` and ``(3, 4)`` have no moment in common, and their union is ``(0, 4)``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Iterable, List, Sequence, Tuple, TypeVar

T = TypeVar("T", int, float)
Intervals = Sequence[Tuple[T, T]]
Merged = List[Tuple[T, T]]


def merge(intervals: Iterable[Tuple[T, T]]) -> Merged[T]:
    """The moments in any of ``intervals``, which may overlap, be empty and have any order.

    >>> merge([(5, 6), (0, 2), (1, 3), (3, 4), (9, 9)])
    [(0, 4), (5, 6)]
    """
    merged: Merged[T] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            first, last = merged[-1]
            merged[-1] = (first, max(last, end))
        else:
            merged.append((start, end))
    return merged


def intersect(left: Intervals[T], right: Intervals[T]) -> Merged[T]:
    """The moments in both sets.

    >>> intersect([(0, 4), (6, 8)], [(3, 7)])
    [(3, 4), (6, 7)]
    """
    spans = []
    i = 0
    j = 0
    while i < len(left) and j < len(right):
        start = max(left[i][0], right[j][0])
        end = min(left[i][1], right[j][1])
        if start < end:
            spans.append((start, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return spans


def subtract(left: Intervals[T], right: Intervals[T]) -> Merged[T]:
    """The moments of ``left`` that are not in ``right``.

    >>> subtract([(0, 10)], [(2, 3), (9, 12)])
    [(0, 2), (3, 9)]
    """
    spans = []
    j = 0
    for start, end in left:
        while j < len(right) and right[j][1] <= start:
            j += 1
        k = j
        while k < len(right) and right[k][0] < end:
            if start < right[k][0]:
                spans.append((start, right[k][0]))
            start = max(start, right[k][1])
            k += 1
        if start < end:
            spans.append((start, end))
    return spans


def within(intervals: Intervals[T], start: T, end: T) -> Merged[T]:
    """The moments of a set from ``start`` to ``end``, whose intervals are found by bisection.

    >>> within([(0, 4), (6, 8), (9, 12)], 3, 10)
    [(3, 4), (6, 8), (9, 10)]
    """
    first = max(bisect_right(intervals, (start, start)) - 1, 0)
    last = bisect_left(intervals, (end, end))
    spans = []
    for left, right in intervals[first:last]:
        left = max(left, start)
        right = min(right, end)
        if left < right:
            spans.append((left, right))
    return spans


def at_least(count: int, sets: Iterable[Intervals[T]]) -> Merged[T]:
    """The moments in at least ``count`` of the sets.

    >>> at_least(2, [[(0, 4)], [(3, 9)], [(8, 10)]])
    [(3, 4), (8, 9)]
    """
    changes = []
    for intervals in sets:
        for start, end in intervals:
            changes.append((start, 1))
            changes.append((end, -1))
    spans = []
    level = 0
    since = None
    for time, change in sorted(changes):
        level += change
        if level >= count and since is None:
            since = time
        elif level < count and since is not None:
            spans.append((since, time))
            since = None
    return merge(spans)


def total(intervals: Iterable[Tuple[T, T]]) -> T:
    """The length of all intervals together."""
    return sum((end - start for start, end in intervals), start=0)
