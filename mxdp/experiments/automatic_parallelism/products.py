"""Matrix products on one device, prepared once and pushed again and again."""

from __future__ import annotations

from typing import Any, Iterator, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, NDArray, np, upload
from mxdp.engine import prepare
from mxdp.scratch import Arrays

SLIDES = "the book's slides: 50 of 4000 x 4000"


class Products:
    """A product with ``w`` for each of ``lefts``, each into its own array of ``results``.

    A ``chain`` starts from the first of ``lefts``; each result is the left factor of the next product::

        independent   x1 w, x2 w, x3 w           chain   x1 w, x1 w w, x1 w w w
    """

    def __init__(self, lefts: Arrays, w: NDArray, chain: bool) -> None:
        self.results = [np.zeros(left.shape, ctx=left.ctx) for left in lefts]
        if chain:
            lefts = [lefts[0], *self.results[:-1]]
        self._calls = [
            prepare("_np_dot", [left, w], result) for left, result in zip(lefts, self.results)
        ]

    def push(self) -> None:
        """Push all products in order. Doesn't wait."""
        for call in self._calls:
            call()


def factors(height: int, width: int, device: Device, seed: int) -> Tuple[NDArray, NDArray]:
    """Two random matrices, (height, width) and (width, width). The columns of the second sum to 1, so that numbers stay
    as large as they are, product after product."""
    random = onp.random.RandomState(seed)
    x = random.uniform(size=(height, width)).astype("float32")
    w = random.uniform(size=(width, width)).astype("float32")
    return upload(x, device), upload(w / w.sum(axis=0), device)


def whole_factors(count: int, device: Device, seed: int) -> Tuple[Arrays, NDArray]:
    """``count`` different matrices and one more, (33, 33), of -1, 0 and 1. Their products, and a chain of four, are
    exact in float32 in any order of additions, as 33 ** 4 is below 2 ** 24."""
    numbers = onp.random.RandomState(seed).randint(-1, 2, size=(count + 1, 33, 33))
    *lefts, w = numbers.astype("float32")
    return [upload(left, device) for left in lefts], upload(w, device)


def compare_products(
    found: Sequence[Sequence[NDArray]],
    lefts: Arrays,
    w: NDArray,
    chain: bool,
) -> Iterator[Tuple[Any, Any, float]]:
    """For an oracle: each array of ``found[i]`` beside NumPy's product i, with tolerance 0."""
    right = lefts[0].asnumpy()
    weights = w.asnumpy()
    for left, arrays in zip(lefts, found):
        right = onp.dot(right if chain else left.asnumpy(), weights)
        for array in arrays:
            yield array.asnumpy(), right, 0.0
