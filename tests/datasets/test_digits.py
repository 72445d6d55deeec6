from __future__ import annotations

import sys

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
    X = np.concatenate([data.train.X, data.test.X])
    y = np.concatenate([data.train.y, data.test.y])
    original = datasets.load_digits()

    assert (len(data.train), len(data.test)) == (1437, 360)
    for down in range(3):
        for right in range(3):
            shrunk = X[:, 0, 2 + down : 26 : 3, 2 + right : 26 : 3].reshape(-1, 64) * 16
            ours = np.column_stack([shrunk, y]).astype(int)
            theirs = np.column_stack([original.data, original.target]).astype(int)
            assert rows(ours) == rows(theirs)


def test_the_border_is_empty_and_the_range_is_0_to_1():
    X = load_digits().train.X
    border = np.ones((28, 28), bool)
    border[2:26, 2:26] = False

    assert not X[:, 0, border].any()
    assert (X.min(), X.max()) == (0.0, 1.0)


def test_each_class_gives_a_fifth_to_the_test():
    data = load_digits(seed=1)
    test, train = np.bincount(data.test.y), np.bincount(data.train.y)

    assert len(test) == len(train) == len(data.classes) == 10
    assert (abs(test - (test + train) / 5) < 1).all()


def test_the_samples_are_shuffled():
    y = load_digits().train.y

    assert set(y[:100].tolist()) == set(range(10))
    assert (np.diff(y) < 0).sum() > 400


def test_without_scikit_learn_one_sentence_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)

    with pytest.raises(DataError, match=r"^the digits come with scikit-learn, .* `python -m pip install .mxdp"):
        load_digits()
