"""Synthetic pictures that a small convolutional network can learn: each class is a pattern, under noise.

A class is a random 7 x 7 grid of black and white, enlarged to 28 x 28. A sample is the pattern of its class, moved by
up to two pixels in each direction (cyclically), and mixed with noise. A seed gives the same data with every NumPy.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt

from mxdp.datasets.records import Dataset, Images, Split, positive_int

_CLASSES = 10
_GRID = 7
_CELL = 4
_SHIFT = 2
_SIDE = _GRID * _CELL
_SIGNAL = np.float32(0.75)


def load_synthetic(seed: int = 0, n_train: int = 6000, n_test: int = 1000) -> Dataset:
    """``n_train`` and ``n_test`` samples, drawn by ``seed``, in ten classes of equal size (or one sample more). Raises
    a ValueError for numbers that are not positive ints, or a ``seed`` that is not from 0 to 2**32 - 1."""
    positive_int("n_train", n_train)
    positive_int("n_test", n_test)
    random = np.random.RandomState(seed)
    # Classes also differ in brightness. Otherwise the book's small initial weights keep LeNet at chance for longer.
    white = np.arange(1, _CLASSES + 1).reshape(-1, 1, 1) / (_CLASSES + 1)
    is_white = random.random_sample((_CLASSES, _GRID, _GRID)) < white
    patterns = is_white.astype(np.float32).repeat(_CELL, axis=1).repeat(_CELL, axis=2)
    moved = _all_shifts(patterns)
    return Dataset(
        name="synthetic",
        train=_draw(random, moved, n_train),
        test=_draw(random, moved, n_test),
        classes=tuple(f"pattern {label}" for label in range(_CLASSES)),
        origin=f"generated from seed {seed}",
    )


def _all_shifts(patterns: Images) -> Images:
    """(shifts, classes, 28, 28): every pattern, moved by every shift that a sample may have."""
    steps = range(-_SHIFT, _SHIFT + 1)
    shifts = itertools.product(steps, steps)
    return np.stack([np.roll(patterns, shift, axis=(1, 2)) for shift in shifts])


def _draw(random: np.random.RandomState, moved: Images, n: int) -> Split:
    labels = random.permutation(np.arange(n) % _CLASSES)
    y: npt.NDArray[np.int32] = labels.astype(np.int32)
    shift = random.randint(0, len(moved), n)
    X = random.random_sample((n, 1, _SIDE, _SIDE)).astype(np.float32)
    X *= np.float32(1) - _SIGNAL
    X[:, 0] += _SIGNAL * moved[shift, y]
    return Split(X, y)
