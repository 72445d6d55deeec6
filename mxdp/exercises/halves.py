"""Exercises on the two halves of an all-reduce: reduce-scatter and all-gather."""

from __future__ import annotations

import random
from functools import partial
from itertools import permutations
from typing import Any, Dict, List, Sequence

import numpy as onp

from mxdp.errors import plural
from mxdp.exercises.trial import Trial, Trials, Values, Wrong, by_device, frugal, uneven, uploaded
from mxdp.plans.partition import bounds

SIZES = [(2, 4), (3, 6), (3, 5), (3, 2), (1, 3)]
"""Devices and numbers."""
TO_OWNER = "send each other device its own chunk alone, or one chunk a step to the right neighbour"
FROM_OWNER = "send its own chunk to each other device once, or one chunk a step to the right neighbour"


def reduce_scatter(draw: random.Random) -> Trials:
    """The sum of vectors, chunk k on device k."""
    others = _drawn(draw)
    random_vectors = [
        onp.array([[float(draw.randint(1, 99)) for _ in range(length)] for _ in range(n)]) for n, length in others
    ]
    chosen = [_reduce_scatter(onp.outer(10.0 ** onp.arange(n), onp.arange(1, length + 1))) for n, length in SIZES]
    return chosen, [_reduce_scatter(vectors) for vectors in random_vectors]


def all_gather(draw: random.Random) -> Trials:
    """The chunks of all devices, on every device."""
    chosen = [_all_gather(onp.arange(1.0, length + 1), n) for n, length in SIZES]
    others = [(n, onp.array([float(draw.randint(1, 99)) for _ in range(length)])) for n, length in _drawn(draw)]
    return chosen, [_all_gather(vector, n) for n, vector in others]


def _drawn(draw: random.Random) -> List[Any]:
    """Numbers of devices with lengths, shorter and longer ones."""
    return [(n, length) for n in range(1, 7) for length in (draw.randint(1, n), draw.randint(n, 5 * n))]


def _reduce_scatter(given: Any) -> Trial:
    """``given`` (devices, length)."""
    devices, length = given.shape
    total, cut = given.sum(axis=0), [slice(*border) for border in bounds(length, devices)]
    chunks = [total[place] for place in cut]
    own = [vector[place] for vector, place in zip(given, cut)]
    mistakes: Dict[str, List[Any]] = {
        "Each device has its own chunk, to which nothing was added. Chunk k needs the numbers of all devices.": own,
        "Every device has the whole sum: that is an all-reduce. Device k keeps chunk k alone.": [total] * devices,
        "That is the mean. Add up only.": [chunk / devices for chunk in chunks],
        "Device k has chunk k + 1 of the sum. A ring in which device k sends chunk k first ends so: let it send chunk "
        "k - 1 first.": chunks[1:] + chunks[:1],
        "Device k has chunk k - 1 of the sum: go one chunk on.": chunks[-1:] + chunks[:-1],
        "The longer chunks come last. Here, as in NumPy's array_split, they come first.": (
            [total[length - place.stop : length - place.start] for place in reversed(cut)]
        ),
    }
    return _trial(devices, length, by_device(given), list(given), chunks, mistakes, TO_OWNER)


def _all_gather(vector: Any, devices: int) -> Trial:
    length, chunks = len(vector), [vector[slice(*border)] for border in bounds(len(vector), devices)]
    mistakes: Dict[str, List[Any]] = {
        "Each device has its own chunk alone. Send it to all others.": chunks,
        "Each device has its own chunk first, then those of its right neighbours. The chunks lie in the order of the "
        "devices.": [onp.concatenate(chunks[k:] + chunks[:k]) for k in range(devices)],
        "Each device has its own chunk first, then those of its left neighbours, as they arrive in a ring. The chunks "
        "lie in the order of the devices.": [
            onp.concatenate([chunks[k - j] for j in range(devices)]) for k in range(devices)
        ],
        "The chunks lie in reverse order.": [onp.concatenate(chunks[::-1])] * devices,
        "Only device 0 has all chunks. Every device needs them.": [vector, *chunks[1:]],
    }
    if length % devices == 0:
        mistakes["The chunks are added up. Put them side by side."] = [sum(chunks)] * devices
    return _trial(devices, length, by_device(chunks), chunks, [vector] * devices, mistakes, FROM_OWNER)


def _trial(
    devices: int,
    length: int,
    shown: Values,
    given: List[Any],
    right: List[Any],
    mistakes: Dict[str, List[Any]],
    advice: str,
) -> Trial:
    """The function is called with a list of arrays, one on each device, and returns another."""
    title = f"{plural(devices, 'device')}, {plural(length, 'number')}{uneven('chunk', length, devices)}"
    sizes = [stop - start for start, stop in bounds(length, devices)]
    receives = advice is TO_OWNER
    planned = {
        (a, b): sizes[b if receives else a] for a, b in permutations(range(devices), 2) if sizes[b if receives else a]
    }
    moved = (devices - 1) * length
    wrong = {hint: by_device(arrays) for hint, arrays in mistakes.items()}
    wrong["The numbers are right, but all of them lie on cpu(0). Part k of the list belongs on device k."] = {
        f"{k} on cpu(0)": x for k, x in enumerate(right)
    }
    return Trial(
        title,
        shown,
        by_device(right),
        partial(_returned, given),
        wrong,
        lambda got: _lengths(got, right),
        planned,
        partial(frugal, [(devices - 1) * sizes[0]] * devices, moved, advice),  # a ring may take this way, too
    )


def _returned(given: List[Any], function: Any) -> Values:
    arrays = uploaded(given)
    returned = function(list(arrays))
    if not isinstance(returned, (list, tuple)) or not all(hasattr(x, "ctx") for x in returned):
        kind = "nothing" if returned is None else f"a {type(returned).__name__}"
        raise Wrong(f"It returns {kind}: return a list with an array for each device.")
    places = [str(x.ctx) for x in returned]
    labels = places if places == list(by_device(returned)) else [f"{k} on {place}" for k, place in enumerate(places)]
    return dict(zip(labels, (x.asnumpy() for x in returned)))


def _lengths(got: Values, right: Sequence[Any]) -> str:
    lengths = [", ".join(str(x.size) for x in arrays) for arrays in (got.values(), right)]
    if lengths[0] != lengths[1]:
        return f"The lengths are {lengths[0]}. They must be {lengths[1]}."
    return "`python -m mxdp.plans reduce-scatter 3` and `all-gather 3` print both plans: compare them with your steps."
