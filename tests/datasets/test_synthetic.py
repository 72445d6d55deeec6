from __future__ import annotations

import hashlib

import numpy as np
import pytest

from mxdp.datasets.synthetic import load_synthetic


def test_shapes_range_and_balance():
    data = load_synthetic(seed=2, n_train=205, n_test=37)
    assert data.train.X.shape == (205, 1, 28, 28)
    assert data.test.X.shape == (37, 1, 28, 28)
    assert 0 <= data.train.X.min() < 0.01
    assert 0.99 < data.train.X.max() <= 1
    assert sorted(np.bincount(data.train.y)) == [20] * 5 + [21] * 5
    assert sorted(np.bincount(data.test.y)) == [3] * 3 + [4] * 7
    assert len(data.classes) == 10


def test_the_same_seed_gives_the_same_bytes_on_every_numpy():
    data = load_synthetic(seed=0, n_train=64, n_test=16)
    digest = hashlib.sha256(b"".join(part.tobytes() for part in (data.train.X, data.train.y, data.test.X, data.test.y)))
    assert digest.hexdigest() == "fb539c8a648f79a83d77ad4ed55cc7ca5af660ffe9754a87b72249ba88767172"


def test_the_classes_can_be_told_apart_from_the_training_samples():
    """The nearest training sample has the same class; with the labels shuffled it has not."""
    data = load_synthetic(seed=4, n_train=1000, n_test=100)
    train, test = data.train.X.reshape(1000, -1), data.test.X.reshape(100, -1)
    nearest = ((train**2).sum(axis=1) - 2 * test @ train.T).argmin(axis=1)
    assert (data.train.y[nearest] == data.test.y).mean() > 0.95
    assert (np.random.RandomState(0).permutation(data.train.y)[nearest] == data.test.y).mean() < 0.5


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (True, 5), (5, 2.0), (-3, 5)])
def test_bad_sizes(sizes):
    with pytest.raises(ValueError, match=r"^n_(train|test) must be a positive int, not "):
        load_synthetic(0, *sizes)
