"""Sets of moments as sorted lists of intervals that do not touch: ``[(0, 3), (5, 6)]``.

Intervals are half open: ``(0, 3)`` and ``(3, 4)`` have no moment in common, and their union is ``(0, 4)``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Iterable, Iterator, List, Sequence, Tuple, TypeVar

T = TypeVar("T", int, float)


def merge(intervals: Iterable[Tuple[T, T]]) -> List[Tuple[T, T]]:
    """The moments in any of ``intervals``, which may overlap, be empty and have any order.

    >>> merge([(5, 6), (0, 2), (1, 3), (3, 4), (9, 9)])
    [(0, 4), (5, 6)]
    """
    merged: List[Tuple[T, T]] = []
    for start, end in sorted(intervals):
        if start >= end:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def intersect(left: Sequence[Tuple[T, T]], right: Sequence[Tuple[T, T]]) -> List[Tuple[T, T]]:
    """The moments in both sets.

    >>> intersect([(0, 4), (6, 8)], [(3, 7)])
    [(3, 4), (6, 7)]
    """
    return _where(2, [*_changes(left), *_changes(right)])


def subtract(left: Sequence[Tuple[T, T]], right: Sequence[Tuple[T, T]]) -> List[Tuple[T, T]]:
    """The moments of ``left`` that are not in ``right``.

    >>> subtract([(0, 10)], [(2, 3), (9, 12)])
    [(0, 2), (3, 9)]
    """
    return _where(1, [*_changes(left), *((time, -change) for time, change in _changes(right))])


def within(intervals: Sequence[Tuple[T, T]], start: T, end: T) -> List[Tuple[T, T]]:
    """The moments of a set from ``start`` to ``end``, found by bisection.

    >>> within([(0, 4), (6, 8), (9, 12)], 3, 10)
    [(3, 4), (6, 8), (9, 10)]
    """
    first = max(bisect_right(intervals, (start, start)) - 1, 0)
    last = bisect_left(intervals, (end, end))
    return intersect(intervals[first:last], [(start, end)])


def at_least(count: int, sets: Iterable[Sequence[Tuple[T, T]]]) -> List[Tuple[T, T]]:
    """The moments in at least ``count`` of the sets.

    >>> at_least(2, [[(0, 4)], [(3, 9)], [(8, 10)]])
    [(3, 4), (8, 9)]
    """
    return _where(count, [change for intervals in sets for change in _changes(intervals)])


def total(intervals: Iterable[Tuple[T, T]]) -> T:
    """The length of all intervals together.

    >>> total([(0, 3), (5, 6)])
    4
    """
    return sum((end - start for start, end in intervals), start=0)


def _changes(intervals: Iterable[Tuple[T, T]]) -> Iterator[Tuple[T, int]]:
    """When a level rises by 1, at each start, and when it falls by 1."""
    return ((time, change) for interval in intervals for time, change in zip(interval, (1, -1)))


def _where(least: int, changes: Iterable[Tuple[T, int]]) -> List[Tuple[T, T]]:
    """The moments at which the level is at least ``least``."""
    intervals: List[Tuple[T, T]] = []
    level, start = 0, None
    for time, change in sorted(changes):
        level += change
        if level >= least and start is None:
            start = time
        elif level < least and start is not None:
            intervals.append((start, time))
            start = None
    return merge(intervals)
