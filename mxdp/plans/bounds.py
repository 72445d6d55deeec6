"""Where things are cut: shards of a batch, chunks of a buffer.

Eleven samples on four devices, the longer shards first::

    0  1  2 | 3  4  5 | 6  7  8 | 9 10
    shard 0   shard 1   shard 2   shard 3
"""

from __future__ import annotations

from itertools import accumulate
from typing import List, Sequence, Tuple

Bounds = Tuple[int, int]


def bounds(length: int, parts: int) -> List[Bounds]:
    """Cut ``range(length)`` into ``parts`` neighbouring pieces whose lengths differ by one at most, the longer ones
    first.

    A piece is ``(start, stop)``, ``stop`` not included; where ``length < parts`` the last pieces are empty.

    >>> bounds(11, 4)
    [(0, 3), (3, 6), (6, 9), (9, 11)]
    >>> bounds(1, 3)
    [(0, 1), (1, 1), (1, 1)]

    Raises:
        ValueError: ``length`` is negative or ``parts`` is less than one.
    """
    if length < 0 or parts < 1:
        raise ValueError(f"can't cut {length} elements into {parts} parts: needs length >= 0 and parts >= 1")
    short, longer = divmod(length, parts)
    starts = [part * short + min(part, longer) for part in range(parts + 1)]
    return list(zip(starts, starts[1:]))


def cuts(length: int, parts: int) -> Tuple[int, ...]:
    """The inner borders alone, as ``numpy.split`` wants them.

    >>> cuts(11, 4)
    (3, 6, 9)
    """
    return tuple(stop for _, stop in bounds(length, parts)[:-1])


def offsets(sizes: Sequence[int]) -> List[int]:
    """Where pieces of these sizes begin when they lie side by side, and last where they end.

    >>> offsets([180, 20, 25000])
    [0, 180, 200, 25200]
    """
    return [0, *accumulate(sizes)]
