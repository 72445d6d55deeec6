"""Batches from a split in memory. An epoch is a seeded permutation, and a batch is one gather.

::

    order of epoch 0   5 2 0 | 4 1 3 | 6          batch size 3: nothing is dropped, the last batch is short
    Stream.take(4)     5 2 0 | 4                  a round may end inside a batch ...
    Stream.take(4)     1 3 6 | 2' ...             ... and the next goes on there; no batch holds two epochs' samples

Here ``2'`` is sample 2 in epoch 1. Each gathered batch is a new array, so the caller may keep it. With the allocator
settings of ``mxdp.process``, reusing one buffer would not be faster. In a timeline, the making of a batch is a section.
"""

from __future__ import annotations

from typing import Iterator, List, Tuple

import numpy as np
import numpy.typing as npt

from mxdp.datasets.records import Images, Labels, Split, check_seed, positive_int
from mxdp.sections import section

HostBatch = Tuple[Images, Labels]


def permutation(n: int, seed: int, epoch: int) -> npt.NDArray[np.int64]:
    """The order in which ``epoch`` visits ``n`` samples, each once. NumPy has frozen ``RandomState``, so the order is
    the same with every version. Raises a ValueError if ``seed`` or ``epoch`` is not an int from 0 to 2**32 - 1, or
    ``n`` is negative."""
    check_seed("seed", seed)
    check_seed("epoch", epoch)
    order = np.random.RandomState([seed, epoch]).permutation(n)
    return order.astype(np.int64, copy=False)


def minibatches(split: Split, batch_size: int, seed: int, epoch: int) -> Iterator[HostBatch]:
    """One epoch of shuffled batches ``X, y``, with the short last one. Each batch is a new copy. Raises a ValueError
    for a ``batch_size``, ``seed`` or ``epoch`` out of range."""
    # No ``yield`` here: wrong arguments raise at the call.
    parts = _slices(len(split), batch_size)
    order = permutation(len(split), seed, epoch)
    return (_gather(split, order[part]) for part in parts)


def sequential(split: Split, batch_size: int) -> Iterator[HostBatch]:
    """The whole split in its stored order, as for evaluation. Batches are views: nothing is copied. Raises a ValueError
    unless ``batch_size`` is a positive int."""
    # No ``yield`` here: wrong arguments raise at the call.
    parts = _slices(len(split), batch_size)
    return ((split.X[part], split.y[part]) for part in parts)


class Stream:
    """Epoch after epoch of shuffled batches, delivered in rounds. The stream keeps its place between rounds.

    The place: ``position`` samples of ``epoch`` have been delivered. A stream that starts at another's place continues
    it. As long as no round ends inside a batch, the batches are those of :func:`minibatches`. Raises a ValueError if
    ``batch_size`` is not a positive int, ``seed`` or the place is out of range, or the split is empty.
    """

    def __init__(
        self, split: Split, batch_size: int, seed: int, epoch: int = 0, position: int = 0
    ) -> None:
        if not len(split):
            raise ValueError("a stream needs at least one sample, and the split is empty")
        if not 0 <= position <= len(split):
            raise ValueError(f"position {position} is not in an epoch of {len(split)} samples")
        self.epoch = epoch
        self.position = position
        self._split = split
        self._size = positive_int("batch_size", batch_size)
        self._seed = seed
        self._order = permutation(len(split), seed, epoch)

    def take(self, samples: int) -> Iterator[HostBatch]:
        """The next batches, new copies, with exactly ``samples`` samples in all: the last one is cut if needed. Only a
        batch that the caller has received counts as delivered. Raises a ValueError unless ``samples`` is a positive
        int."""
        # No ``yield`` here: wrong arguments raise at the call.
        return self._batches(positive_int("samples", samples))

    def _batches(self, left: int) -> Iterator[HostBatch]:
        n = len(self._split)
        while left:
            if self.position == n:
                self.epoch += 1
                self.position = 0
                self._order = permutation(n, self._seed, self.epoch)
            start = self.position
            stop = min(start + self._size, n, start + left)
            self.position = stop
            left -= stop - start
            yield _gather(self._split, self._order[start:stop])


def _slices(n: int, batch_size: int) -> List[slice]:
    size = positive_int("batch_size", batch_size)
    return [slice(start, start + size) for start in range(0, n, size)]


def _gather(split: Split, rows: npt.NDArray[np.int64]) -> HostBatch:
    with section("input"):
        return np.take(split.X, rows, axis=0), np.take(split.y, rows)
