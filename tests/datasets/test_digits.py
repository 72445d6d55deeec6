"""The data sets that need no download."""

from __future__ import annotations

import hashlib
import sys
from itertools import product

import numpy as np
import pytest
from sklearn import datasets

from mxdp.datasets.digits import load_digits
from mxdp.datasets.synthetic import load_synthetic
from mxdp.errors import DataError


def rows(X):
    return sorted(x.tobytes() for x in X)


def test_all_1797_digits_enlarged_exactly():
    """Each of the nine copies of a pixel, taken alone, gives scikit-learn's pictures and labels back."""
    data = load_digits(seed=3)
    assert (len(data.train), len(data.test)) == (1437, 360)
    X = np.concatenate([data.train.X, data.test.X])
    y = np.concatenate([data.train.y, data.test.y])
    original = datasets.load_digits()
    theirs = rows(np.column_stack([original.data, original.target]).astype(int))
    for down, right in product(range(3), repeat=2):
        shrunk = X[:, 0, 2 + down : 26 : 3, 2 + right : 26 : 3].reshape(-1, 64) * 16
        assert rows(np.column_stack([shrunk, y]).astype(int)) == theirs
    X[:, 0, 2:26, 2:26] = 0
    assert not X.any(), "the border is empty"


def test_each_class_gives_a_fifth_to_the_test_and_the_samples_are_shuffled():
    data = load_digits(seed=1)
    test, train = np.bincount(data.test.y), np.bincount(data.train.y)
    assert len(test) == len(train) == len(data.classes) == 10
    assert (abs(test - (test + train) / 5) < 1).all()
    assert set(data.train.y[:100].tolist()) == set(range(10))
    assert (np.diff(data.train.y) < 0).sum() > 400


def test_without_scikit_learn_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(DataError, match=r"^the digits come with scikit-learn, .* `python -m pip install .mxdp"):
        load_digits()


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


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (True, 5), (5, 2.0), (-3, 5)])
def test_bad_sizes(sizes):
    with pytest.raises(ValueError, match=r"^n_(train|test) must be a positive int, not "):
        load_synthetic(0, *sizes)
