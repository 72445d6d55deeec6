"""Where to cut a network into stages, so that none takes much longer than the others.

A pipeline goes at the pace of its slowest stage. Five layers of 1, 2, 3, 4 and 2 milliseconds on two devices::

    layers     1   2   3 | 4   2
    stages         6     |   6          any other cut has a stage of 7 or more
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import Callable, Dict, List, Optional, Sequence, Tuple

Memory = Callable[[int, int, int], float]
Best = Tuple[float, Tuple[int, ...]]
"""The largest sum, and the inner borders that give it."""


def balance(
    times: Sequence[float], stages: int, nbytes: Optional[Memory] = None, limit: float = math.inf
) -> Tuple[int, ...]:
    """The inner borders of a cut into neighbouring pieces, none empty, whose largest sum of ``times`` is the smallest.

    Of several such cuts the one whose borders come first. ``nbytes(stage, start, stop)``: what layers ``start`` to
    ``stop - 1`` take as that stage (a schedule may have one stage keep more than another); none takes more than
    ``limit``.

    >>> balance([1, 2, 3, 4, 2], 2)
    (3,)
    >>> balance([1, 2, 3, 4, 2], 2, nbytes=lambda stage, start, stop: (2 - stage) * (stop - start), limit=4)
    (2,)

    Raises:
        ValueError: fewer layers than stages, less than one stage, or no cut keeps to the limit.
    """
    if not 1 <= stages <= len(times):
        raise ValueError(f"can't cut {len(times)} layers into {stages} stages: each needs at least one layer")
    sums = [0.0, *accumulate(map(float, times))]
    best: Dict[int, Best] = {0: (0.0, ())}  # by the border behind the stages so far
    for stage in range(stages):
        further: Dict[int, Best] = {}
        for stop in range(stage + 1, len(times) - (stages - stage - 1) + 1):
            found: List[Best] = []
            for start, (largest, borders) in best.items():
                if start < stop and (nbytes is None or nbytes(stage, start, stop) <= limit):
                    found.append((max(largest, sums[stop] - sums[start]), (*borders, start)))
            if found:
                further[stop] = min(found)
        best = further
    answer: Optional[Best] = best.get(len(times))
    if answer is None:
        raise ValueError(
            f"no cut of {len(times)} layers into {stages} stages keeps to {limit:,.0f} bytes each: use more devices or"
            " smaller batches"
        )
    return answer[1][1:]


def pieces(layers: int, borders: Sequence[int]) -> List[Tuple[int, int]]:
    """(start, stop) of each stage, from the inner borders.

    >>> pieces(5, (3,))
    [(0, 3), (3, 5)]

    Raises:
        ValueError: the borders don't rise, or leave a stage without a layer.
    """
    ends = [0, *borders, layers]
    if any(start >= stop for start, stop in zip(ends, ends[1:])):
        raise ValueError(
            f"cuts are rising layer numbers from 1 to {layers - 1} (a stage begins at each), not {tuple(borders)}"
        )
    return list(zip(ends, ends[1:]))
