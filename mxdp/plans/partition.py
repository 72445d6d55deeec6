"""Cuts of batches, vectors, gradients and networks: shards, chunks, buckets and stages.

Eleven samples on four devices, the longer shards first::

    0  1  2 | 3  4  5 | 6  7  8 | 9 10
    shard 0   shard 1   shard 2   shard 3

Backward produces gradients from the last parameter to the first. Buckets are filled in this order, so each is complete
as early as possible::

    parameters     0        1     2        3     4          of 6, 2, 3, 3 and 1 bytes; a bucket holds 6
    buckets        |- 2 --| |---- 1 -----| |---- 0 ----|    4 and 3 have 4 bytes; with 2 they would have 7

A pipeline is as slow as its slowest stage. Five layers of 1, 2, 3, 4 and 2 milliseconds on two devices::

    layers     1   2   3 | 4   2
    stages         6     |   6          any other cut has a stage of 7 or more
"""

from __future__ import annotations

import math
from itertools import accumulate
from numbers import Real
from typing import Dict, Hashable, List, Optional, Sequence, Tuple

Bounds = Tuple[int, int]


def bounds(length: int, parts: int) -> List[Bounds]:
    """Cut ``range(length)`` into ``parts`` neighbouring pieces ``(start, stop)``. Their lengths differ by at most one;
    longer ones come first, and empty ones last. Raises a ValueError for a negative length or less than one part."""
    if length < 0 or parts < 1:
        raise ValueError(
            f"can't cut {length} elements into {parts} parts: needs length >= 0 and parts >= 1"
        )
    short, longer = divmod(length, parts)
    starts = [part * short + min(part, longer) for part in range(parts + 1)]
    return list(zip(starts, starts[1:]))


def cuts(
    length: int,
    parts: int,
    weights: Optional[Sequence[float]] = None,
) -> Tuple[int, ...]:
    """The inner borders of :func:`bounds`, as ``numpy.split`` takes them; or of pieces in proportion to ``weights``,
    rounded so that none is empty. Fewer elements than parts are cut as without weights. Raises a ValueError unless
    these are as many finite numbers above 0 as ``parts``.

    >>> cuts(11, 4), cuts(12, 3, weights=[1.0, 0.5, 0.1]), cuts(2, 2, weights=[9, 1])
    ((3, 6, 9), (7, 11), (1,))
    """
    evenly = tuple(stop for _, stop in bounds(length, parts)[:-1])
    if weights is None:
        return evenly
    given: List[object] = [weights] if isinstance(weights, Real) else list(weights)
    numbers = [float(weight) if isinstance(weight, Real) else math.nan for weight in given]
    if len(numbers) != parts or not all(0 < weight < math.inf for weight in numbers):
        raise ValueError(
            f"weights are {parts} numbers above 0, one for each device, such as its speed, not {given}: leave "
            "a device out of devices if it shall have no sample"
        )
    if length < parts:
        return evenly
    shares = [length * weight / sum(numbers) for weight in numbers]
    sizes = [max(1, int(share)) for share in shares]
    while sum(sizes) != length:  # the piece that is furthest from its share gains, or loses, one
        change = 1 if sum(sizes) < length else -1
        open_ = [part for part in range(parts) if sizes[part] + change > 0]
        sizes[max(open_, key=lambda part: change * (shares[part] - sizes[part]))] += change
    return tuple(offsets(sizes)[1:-1])


def offsets(sizes: Sequence[int]) -> List[int]:
    """The start of each piece if pieces of these sizes lie side by side, then the end of the last."""
    return [0, *accumulate(sizes)]


def fill_buckets(nbytes: Sequence[int], kinds: Sequence[Hashable], room: float) -> List[List[int]]:
    """The parameter numbers in each bucket, both in the order in which backward produces gradients. ``nbytes``: of each
    gradient; one larger than ``room`` has a bucket of its own. ``kinds``: such as dtypes, which don't share a bucket.

    >>> fill_buckets([6, 2, 3, 3, 1], ["float32"] * 5, room=6), fill_buckets([1, 1, 1], [32, 64, 32], room=6)
    ([[4, 3], [2, 1], [0]], [[2, 0], [1]])
    """
    buckets: List[List[int]] = []
    filling: Dict[Hashable, List[int]] = {}
    for number in reversed(range(len(nbytes))):
        bucket = filling.get(kinds[number])
        if bucket is None or sum(nbytes[other] for other in bucket) + nbytes[number] > room:
            bucket = filling[kinds[number]] = []
            buckets.append(bucket)
        bucket.append(number)
    return buckets


def balance(times: Sequence[float], stages: int) -> Tuple[int, ...]:
    """The inner borders of the best cut into stages: the slowest stage takes the least time, and no stage is empty. Of
    equally good cuts it is always the same. Raises a ValueError for fewer layers than stages, or less than one stage.

    >>> balance([1, 2, 3, 4, 2], 2)
    (3,)
    """
    if not 1 <= stages <= len(times):
        raise ValueError(
            f"can't cut {len(times)} layers into {stages} stages: each needs at least one layer"
        )
    sums = [0.0, *accumulate(map(float, times))]
    # By the border behind the stages so far: the largest sum of the best cut, and its borders.
    best: Dict[int, Tuple[float, Tuple[int, ...]]] = {0: (0.0, ())}
    for stage in range(stages):
        best = {
            stop: min(
                (max(largest, sums[stop] - sums[start]), (*borders, start))
                for start, (largest, borders) in best.items()
                if start < stop
            )
            for stop in range(stage + 1, len(times) - (stages - stage - 1) + 1)
        }
    return best[len(times)][1][1:]


def pieces(layers: int, borders: Sequence[int]) -> List[Tuple[int, int]]:
    """(start, stop) of each stage, from the inner borders. Raises a ValueError if a stage has no layer."""
    ends = [0, *borders, layers]
    if any(start >= stop for start, stop in zip(ends, ends[1:])):
        raise ValueError(
            f"cuts are rising layer numbers from 1 to {layers - 1} (a stage begins at each), not {tuple(borders)}"
        )
    return list(zip(ends, ends[1:]))
