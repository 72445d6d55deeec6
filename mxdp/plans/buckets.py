"""Which gradients travel together.

Backward produces gradients from the last parameter to the first. Buckets are filled in that order, so that each is
complete as early as it can be::

    parameters     0        1     2        3     4          of 6, 2, 3, 3 and 1 bytes; a bucket holds 6
    buckets        |- 2 --| |---- 1 -----| |---- 0 ----|    4 and 3 have 4 bytes; with 2 they would have 7
"""

from __future__ import annotations

from typing import Dict, List, Sequence


def fill_buckets(nbytes: Sequence[int], kinds: Sequence[str], room: float) -> List[List[int]]:
    """The numbers of the parameters in each bucket, both in the order in which backward produces the gradients.

    ``nbytes``: of each gradient; one that is larger than ``room`` has a bucket of its own. ``kinds``: their dtypes;
    gradients of different dtypes don't share a bucket.

    >>> fill_buckets([6, 2, 3, 3, 1], ["float32"] * 5, room=6)
    [[4, 3], [2, 1], [0]]
    >>> fill_buckets([1, 1, 1], ["float32", "float64", "float32"], room=6)
    [[2, 0], [1]]
    """
    buckets: List[List[int]] = []
    filling: Dict[str, List[int]] = {}
    for number in reversed(range(len(nbytes))):
        bucket = filling.get(kinds[number])
        if bucket is None or sum(nbytes[other] for other in bucket) + nbytes[number] > room:
            bucket = filling[kinds[number]] = []
            buckets.append(bucket)
        bucket.append(number)
    return buckets
