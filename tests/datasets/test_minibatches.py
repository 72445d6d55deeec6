"""Splits, batches of them, and the data sets that need no download."""

from __future__ import annotations

import hashlib
import itertools
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import datasets

from mxdp import sections
from mxdp.datasets.digits import load_digits
from mxdp.datasets.minibatches import Stream, minibatches, permutation, sequential
from mxdp.datasets.records import Dataset, Split
from mxdp.datasets.synthetic import load_synthetic
from mxdp.errors import DataError


def numbered(n: int) -> Split:
    """Sample i has the label i % 10 and i in its first pixel, so that pictures and labels can be matched."""
    X = np.zeros((n, 1, 2, 2), np.float32)
    X[:, 0, 0, 0] = np.arange(n)
    return Split(X, np.arange(n, dtype=np.int32) % 10)


def labels(batches):
    """The numbers of each batch's samples, after checking that the labels are those of the pictures."""
    lists = []
    for X, y in batches:
        assert X.shape == (len(y), 1, 2, 2)
        assert (X.dtype, y.dtype) == (np.float32, np.int32)
        assert X.flags.c_contiguous
        lists.append(X[:, 0, 0, 0].astype(int).tolist())
        assert [number % 10 for number in lists[-1]] == y.tolist()
    return lists


seeds = st.integers(0, 2**32 - 1)
epochs = st.integers(0, 50)


@given(n=st.integers(0, 300), seed=seeds, epoch=epochs)
def test_a_permutation_has_each_index_once_is_repeatable_and_may_be_changed(n, seed, epoch):
    order = permutation(n, seed, epoch)
    expected = order.tolist()
    assert sorted(expected) == list(range(n))
    assert order.dtype == np.int64
    order[:] = 0
    assert permutation(n, seed, epoch).tolist() == expected


def test_the_order_is_the_same_on_every_numpy_and_seeds_and_epochs_are_whole_numbers():
    assert len({tuple(permutation(50, seed, epoch)) for seed in range(5) for epoch in range(5)}) == 25
    assert permutation(10, 1, 2).tolist() == [6, 5, 4, 2, 1, 9, 0, 3, 8, 7]
    assert len(permutation(5, 2**32 - 1, 2**32 - 1)) == 5
    for bad in (-1, 2**32, 1.0, True, None):
        with pytest.raises(ValueError, match=r"^seed must be an int from 0 to 2\*\*32 - 1, not "):
            permutation(5, bad, 0)
        with pytest.raises(ValueError, match=r"^epoch must be "):
            permutation(5, 0, bad)


@given(n=st.integers(0, 40), batch_size=st.integers(1, 50).map(np.int64), seed=seeds, epoch=epochs)
def test_an_epoch_drops_nothing_its_last_batch_is_short_and_its_batches_may_be_changed(n, batch_size, seed, epoch):
    split = numbered(n)
    kept = list(minibatches(split, batch_size, seed, epoch))
    order = permutation(n, seed, epoch).tolist()
    expected = [order[start : start + batch_size] for start in range(0, n, batch_size)]
    assert labels(kept) == expected
    for X, y in kept:
        X[:] = y[:] = -1
    assert labels(minibatches(split, batch_size, seed, epoch)) == expected
    stored = list(sequential(split, batch_size))
    assert labels(stored) == [[*range(n)][start : start + batch_size] for start in range(0, n, batch_size)]
    assert all(np.shares_memory(X, split.X) and np.shares_memory(y, split.y) for X, y in stored)


@pytest.mark.parametrize("bad", [0, -1, 2.0, True, np.bool_(True), "4", None])
def test_bad_sizes_are_refused_at_the_call(bad):
    split = numbered(4)
    for what, make in (
        ("batch_size", lambda: minibatches(split, bad, 0, 0)),
        ("batch_size", lambda: sequential(split, bad)),
        ("batch_size", lambda: Stream(split, bad, 0)),
        ("samples", lambda: Stream(split, 2, 0).take(bad)),
        ("the number of samples to take", lambda: split.take(bad)),
        ("n_train", lambda: load_synthetic(0, bad, 5)),
        ("n_test", lambda: load_synthetic(0, 5, bad)),
    ):
        with pytest.raises(ValueError, match=f"^{what} must be a positive int, not "):
            make()


@settings(max_examples=60)
@given(
    n=st.integers(1, 20),
    batch_size=st.integers(1, 25),
    seed=seeds,
    first=epochs,
    rounds=st.lists(st.integers(1, 60), min_size=1, max_size=6),
    stops=st.integers(0, 5),
)
def test_a_stream_delivers_epoch_after_epoch_whatever_the_rounds(n, batch_size, seed, first, rounds, stops):
    """Also if the caller takes no more of a round, and if another stream continues at its place."""
    split = numbered(n)
    stream = Stream(split, batch_size, seed, first)
    delivered = []
    for samples in rounds:
        taken = stream.take(samples)
        before = len(delivered)
        for X, y in itertools.islice(taken, stops or None):
            (batch,) = labels([(X, y)])
            # An epoch's end never lies inside a batch, and all batches are whole that neither end cuts.
            left = min(n - len(delivered) % n, before + samples - len(delivered))
            assert len(batch) == min(batch_size, left)
            X[:] = -1
            delivered += batch
        assert stops or len(delivered) == before + samples
        assert (stream.epoch - first) * n + stream.position == len(delivered)
        stream = Stream(split, batch_size, seed, stream.epoch, stream.position)
    epochs = range(first, stream.epoch + 1)
    assert delivered == [index for epoch in epochs for index in permutation(n, seed, epoch)][: len(delivered)]


def test_a_stream_starts_inside_an_epoch():
    for samples, position, message in (
        (0, 0, "the split is empty"),
        (7, -1, "not in an epoch of 7"),
        (7, 8, "8 is not"),
    ):
        with pytest.raises(ValueError, match=message):
            Stream(numbered(samples), 3, seed=0, position=position)


def test_the_making_of_a_batch_is_a_section_of_a_timeline():
    recorded = sections.start()
    try:
        labels([*minibatches(numbered(5), 2, 0, 0), *Stream(numbered(5), 4, 0).take(5)])
    finally:
        sections.stop()
    assert [name for name, *_ in recorded.marked] == ["input"] * (3 + 2)


def test_take_gives_views_from_the_front_and_they_show_themselves_in_a_line():
    whole = Dataset("made-up", numbered(8), numbered(5), tuple("abcdefgh"), "here")
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


@given(place=st.integers(0, 249), pixel=st.integers(0, 15))
def test_the_checksum_changes_with_each_label_and_each_pixel_of_every_hundredth_picture(place, pixel):
    def checksum(X, y):
        return Dataset("made-up", Split(X, y), whole, tuple("ab"), "here").checksum()

    whole = Split(np.zeros((250, 1, 4, 4), np.float32), np.zeros(250, np.int32))
    X, y = whole.X.copy(), whole.y.copy()
    before = checksum(X, y)
    assert before == checksum(X.copy(), y.astype(np.int64))
    y[place] = 1
    assert checksum(X, y) != before
    y[place] = 0
    X[place].reshape(-1)[pixel] = 1
    assert (checksum(X, y) != before) == (place % 100 == 0)


def test_a_data_set_refuses_splits_that_do_not_go_together():
    coloured = Split(np.zeros((1, 3, 28, 28), np.float32), np.zeros(1, np.int32))
    for labels in (0, 2):
        with pytest.raises(ValueError, match=f"there are 1 pictures in X and {labels} labels in y"):
            Split(coloured.X, np.zeros(labels, np.int32))
    for test, classes, message in (
        (numbered(8), "abcdefg", r"labels must be whole numbers from 0 to 6, not 0 to 7"),
        (coloured, "abc", r"training are \(1, 2, 2\), .* both"),
    ):
        with pytest.raises(ValueError, match=message):
            Dataset("made-up", numbered(3), test, tuple(classes), "here")


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
    ("y", "cure"), [(np.eye(4, dtype="int32"), r"y.argmax\(axis=1\)"), (np.zeros(4), r"y.astype\('int32'\)")]
)
def test_other_labels_get_their_cure(y, cure):
    with pytest.raises(ValueError, match=f"y must be whole numbers of shape .* {cure}$"):
        Split(np.zeros((4, 1, 2, 2), np.float32), y)


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
    for down, right in itertools.product(range(3), repeat=2):
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


def test_the_same_seed_gives_the_same_bytes_on_every_numpy():
    data = load_synthetic(seed=0, n_train=64, n_test=16)
    digest = hashlib.sha256(b"".join(part.tobytes() for part in (data.train.X, data.train.y, data.test.X, data.test.y)))
    assert digest.hexdigest() == "fb539c8a648f79a83d77ad4ed55cc7ca5af660ffe9754a87b72249ba88767172"
