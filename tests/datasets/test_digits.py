from __future__ import annotations

import sys
from itertools import product

import numpy as np
import pytest
from sklearn import datasets

from mxdp.datasets.digits import load_digits
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
