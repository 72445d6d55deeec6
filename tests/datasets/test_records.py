from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.datasets.records import Dataset, Split

WHOLE = Split(np.zeros((250, 1, 4, 4), np.float32), np.zeros(250, np.int32))


def split(n: int) -> Split:
    return Split(np.arange(n * 784, dtype=np.float32).reshape(n, 1, 28, 28), np.arange(n, dtype=np.int32))


def test_take_gives_views_from_the_front_and_they_show_themselves_in_a_line():
    whole = Dataset("made-up", split(8), split(5), tuple("abcdefgh"), "here")
    short = whole.take(3, 2)
    assert (repr(short), repr(short.test)) == (
        "<Dataset 'made-up': 3 training and 2 test pictures>",
        "<Split: 2 pictures>",
    )
    assert np.array_equal(short.train.X, whole.train.X[:3])
    assert short.train.y.tolist() == [0, 1, 2]
    assert np.shares_memory(short.train.X, whole.train.X)
    assert (short.name, short.classes, short.origin) == ("made-up", whole.classes, "here")
    assert repr(whole.take(100)) == repr(whole), "no more than there is"
    for bad in (0, -1, True, 2.0, "3", None):
        with pytest.raises(ValueError, match=r"must be a positive int, not "):
            split(4).take(bad)


@given(place=st.integers(0, 249), pixel=st.integers(0, 15))
def test_the_checksum_changes_with_each_label_and_each_pixel_of_every_hundredth_picture(place, pixel):
    def checksum(X, y):
        return Dataset("made-up", Split(X, y), WHOLE, tuple("ab"), "here").checksum()

    X, y = WHOLE.X.copy(), WHOLE.y.copy()
    before = checksum(X, y)
    assert before == checksum(X.copy(), y.astype(np.int64))
    y[place] = 1
    assert checksum(X, y) != before
    y[place] = 0
    X[place].reshape(-1)[pixel] = 1
    assert (checksum(X, y) != before) == (place % 100 == 0)


def test_a_data_set_refuses_splits_that_do_not_go_together():
    coloured = Split(np.zeros((1, 3, 28, 28), np.float32), np.zeros(1, np.int32))
    for test, classes, message in (
        (split(8), "abcdefg", r"labels must be whole numbers from 0 to 6, not 0 to 7"),
        (coloured, "abc", r"training are \(1, 28, 28\), .* both"),
    ):
        with pytest.raises(ValueError, match=message):
            Dataset("made-up", split(3), test, tuple(classes), "here")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64", "uint64"])
def test_labels_of_any_whole_kind_are_taken(dtype):
    y = np.array([0, 5, 100]).astype(dtype)
    found = Split(np.zeros((3, 1, 2, 2), np.float32), y)
    assert (found.y.dtype, found.y.tolist()) == (np.int32, [0, 5, 100])
    assert (found.y is y) == (dtype == "int32")


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((4, 28, 30), "uint8"), ((4, 28, 30, 3), "uint8"), ((4, 1, 28, 28), "float64"), ((4, 5, 6, 3), "float32")],
)
def test_the_cure_of_other_pictures_makes_them_right(shape, dtype):
    X = np.random.RandomState(0).randint(0, 256, shape).astype(dtype)
    if X.dtype == np.float32:
        X = X.transpose(0, 3, 1, 2)  # a view whose rows are not whole
    with pytest.raises(ValueError, match="X must be ") as refused:
        Split(X, np.zeros(4, np.int64))
    cured = eval(str(refused.value).rpartition(": ")[2], {"numpy": np, "X": X})
    split = Split(cured, np.zeros(4, np.int64))
    assert split.X.shape[2:] == (X.shape[1:3] if X.shape[-1] == 3 or X.ndim == 3 else X.shape[2:])
    assert split.X.max() == pytest.approx(X.max() / (255 if dtype == "uint8" else 1))


@pytest.mark.parametrize(
    ("y", "cure"),
    [(np.eye(4, dtype="int32"), r"y.argmax\(axis=1\)"), (np.zeros(4), r"y.astype\('int32'\)")],
)
def test_other_labels_get_their_cure(y, cure):
    with pytest.raises(ValueError, match=f"y must be whole numbers of shape .* {cure}$"):
        Split(np.zeros((4, 1, 2, 2), np.float32), y)
