"""What an oracle compares, counted number by number. NumPy alone."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional, Sequence, Tuple

import numpy as onp

TOLERANCE = 2e-5
"""The largest difference that is right, as a part of an array's largest value. The shards' sums are added in another
order than the serial sum. Each float32 addition rounds by at most 2**-24 of its partial sum, which may be larger than
the end result. Seen: all but 40 in 774,408 numbers within 1e-6, and all within 1e-5."""

_PLACES = (0, 26 * 26, 0, 9 * 9, 0, 0, 0, 0)
"""In how many places of a picture each bias of a convolution is added, by parameter of LeNet. Its gradient is a float32
sum of as many terms a sample, one by one, so the error grows with the root of their number (seen: at most 3 times the
root, in units of 2**-24 of the largest sum). All other sums are formed in blocks."""


def tolerances_of(samples: int) -> List[float]:
    """The tolerance for each parameter of LeNet, and for its gradient, after a step on a batch of this size."""
    return [max(TOLERANCE, 8 * 2**-24 * (samples * places) ** 0.5) for places in _PLACES]


def count(compared: Iterable[Tuple[Any, ...]]) -> Tuple[int, int]:
    """(numbers compared, numbers wrong) of all that an oracle yields: arguments of :func:`count_wrong`."""
    checked = 0
    wrong = 0
    for arrays in compared:
        numbers, wrong_numbers = count_wrong(*arrays)
        checked += numbers
        wrong += wrong_numbers
    return checked, wrong


def count_wrong(
    actual: Any, expected: Any, tolerance: float = TOLERANCE, scale: Optional[float] = None
) -> Tuple[int, int]:
    """(numbers compared, numbers wrong): the comparison of every oracle. A number is wrong if it differs from the
    expected one by more than ``tolerance`` times ``scale``, or if one of the two is infinite or NaN. ``scale`` is by
    default the :func:`magnitude` of the expected numbers. Another shape makes every number wrong."""
    actual = onp.asarray(actual)
    expected = onp.asarray(expected)
    if actual.shape != expected.shape:
        return expected.size, expected.size
    # The limit is finite, so that a difference that is infinite or NaN is never within it.
    limit = tolerance * (magnitude(expected) if scale is None else scale)
    with onp.errstate(invalid="ignore"):
        right = onp.abs(onp.subtract(actual, expected, dtype="float64")) <= limit
    return expected.size, int(expected.size - right.sum())


def magnitude(expected: onp.ndarray[Any, Any]) -> float:
    """The largest absolute value among the finite numbers, or 0 without any."""
    return float(onp.abs(expected).max(initial=0.0, where=onp.isfinite(expected)))


def same_bits(actual: Any, expected: Any) -> Tuple[Any, Any, float]:
    """What an oracle yields to compare two arrays on the host bit for bit."""
    differ = actual.view(f"u{actual.itemsize}") != expected.view(f"u{expected.itemsize}")
    return differ, onp.zeros(actual.shape), 0.0


def changed(actual: Any, before: Any, change: Any) -> Tuple[Any, Any, float, float]:
    """What an oracle yields to compare a parameter with what it is after a ``change``. That may be small beside it, and
    is rounded."""
    # The least error that counts: of the change itself, and of the sum, which is rounded.
    limit = TOLERANCE * magnitude(change) + 2**-22 * magnitude(before)
    return actual, before + change, 1.0, limit


def random_batch(
    samples: int, seed: int, shape: Sequence[int] = (1, 28, 28), classes: int = 10
) -> Tuple[Any, Any]:
    """Random samples and labels on the host."""
    random = onp.random.RandomState(seed)
    X = random.uniform(size=(samples, *shape)).astype("float32")
    return X, random.randint(0, classes, samples).astype("int32")


def whole_numbers(rank: int, count: int, seed: int) -> onp.ndarray[Any, Any]:
    """``count`` whole numbers from 1 to 4095, float32, other ones for each rank and seed: sums of up to 4096 are exact,
    in any order. They repeat after 65521, a prime, so that chunks which change places show."""
    random = onp.random.RandomState([seed, rank])
    return onp.resize(random.randint(1, 4096, size=65521).astype("float32"), count)
