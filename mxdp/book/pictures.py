"""The book's iterators over Fashion-MNIST, over pictures that mxdp has loaded."""

from __future__ import annotations

import time
from typing import Any, Callable, Iterator, Tuple

import numpy as onp

from mxdp import datasets
from mxdp.backend import NDArray, mx, npx, upload
from mxdp.datasets import Split

LONG_EPOCH = 60.0
"""Seconds of an epoch that is announced."""
LOOKED_AT = 3
"""Batches after which the time of an epoch is estimated; the first one does not count."""


class PictureBatches:
    """Iterates over batches ``(X, y)`` of a split, as gluon's ``DataLoader`` of the book does, without processes.

    ``X`` is float32 (n, 1, height, width) on ``cpu(0)``, ``y`` int32; the last batch may be smaller. With ``shuffle``
    each epoch has an order of its own, drawn by NumPy. ``say`` is told how long an epoch will take, once, after a few
    batches, if that is long: this waits for all devices once.
    """

    def __init__(self, split: Split, batch_size: int, resize: Any, shuffle: bool, say: Callable[[str], None]) -> None:
        datasets.positive_int("batch_size", batch_size)
        self._split, self._size, self._resize, self._shuffle, self._say = split, batch_size, resize, shuffle, say
        self._estimated = not shuffle

    def __len__(self) -> int:
        return -(-len(self._split) // self._size)

    def __iter__(self) -> Iterator[Tuple[NDArray, NDArray]]:
        n = len(self._split)
        order = onp.random.permutation(n) if self._shuffle else onp.arange(n)
        started = 0.0
        for number, first in enumerate(range(0, n, self._size)):
            if number in (1, LOOKED_AT) and not self._estimated:
                npx.waitall()
                if number == LOOKED_AT:
                    self._announce((time.perf_counter() - started) / (LOOKED_AT - 1))
                started = time.perf_counter()
            rows = order[first : first + self._size]
            X = upload(self._split.X[rows], mx.cpu())
            if self._resize is not None:
                X = npx.image.resize(X.transpose(0, 2, 3, 1), self._resize).transpose(0, 3, 1, 2)
            yield X, upload(self._split.y[rows], mx.cpu())

    def _announce(self, seconds: float) -> None:
        self._estimated = True
        epoch = seconds * len(self)
        if epoch >= LONG_EPOCH:
            self._say(
                f"an epoch of {len(self._split):,} pictures takes about {seconds_in_words(epoch)} here, ten of them "
                f"{seconds_in_words(10 * epoch)}; interrupt it, and set MXDP_BOOK_SAMPLES=1024, if that is too long"
            )


def iterators(
    batch_size: int, resize: Any, samples: int, say: Callable[[str], None]
) -> Tuple[PictureBatches, PictureBatches]:
    """The training and the test iterator. ``samples``: the most pictures that each takes; 0: all."""
    data = datasets.load(notify=say)
    if samples:
        data = data.take(min(samples, len(data.train)), min(samples, len(data.test)))
    return (
        PictureBatches(data.train, batch_size, resize, True, say),
        PictureBatches(data.test, batch_size, resize, False, say),
    )


def seconds_in_words(seconds: float) -> str:
    """
    >>> seconds_in_words(3.2), seconds_in_words(160), seconds_in_words(12000)
    ('3 s', '3 min', '3.3 h')
    """
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
