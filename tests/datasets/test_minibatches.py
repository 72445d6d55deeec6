from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp import sections
from mxdp.datasets.minibatches import Stream, minibatches, permutation, sequential
from mxdp.datasets.records import Split

BAD_SIZES = [0, -1, 2.0, 1.5, True, False, np.bool_(True), "4", None]


def numbered(n: int) -> Split:
    """Sample i has the label i % 10 and i in its first pixel, so that pictures and labels can be matched."""
    X = np.zeros((n, 1, 28, 28), np.float32)
    X[:, 0, 0, 0] = np.arange(n)
    return Split(X, np.arange(n, dtype=np.int32) % 10)


def labels(batches):
    """The numbers of each batch's samples, after checking that the labels are those of the pictures."""
    lists = []
    for X, y in batches:
        assert X.shape == (len(y), 1, 28, 28)
        assert X.dtype == np.float32
        assert y.dtype == np.int32
        assert X.flags.c_contiguous
        numbers = X[:, 0, 0, 0].astype(int)
        assert (numbers % 10).tolist() == y.tolist()
        lists.append(numbers.tolist())
    return lists


def flat(lists):
    return list(itertools.chain.from_iterable(lists))


seeds = st.integers(0, 2**32 - 1)


@given(n=st.integers(0, 300), seed=seeds, epoch=st.integers(0, 50))
def test_a_permutation_has_each_index_once_and_is_repeatable(n, seed, epoch):
    order = permutation(n, seed, epoch)

    assert sorted(order.tolist()) == list(range(n))
    assert order.dtype == np.int64
    assert np.array_equal(order, permutation(n, seed, epoch))


def test_seed_and_epoch_are_two_things():
    orders = {tuple(permutation(50, seed, epoch)) for seed in range(5) for epoch in range(5)}

    assert len(orders) == 25


def test_the_order_is_the_same_on_every_numpy():
    assert permutation(10, 1, 2).tolist() == [6, 5, 4, 2, 1, 9, 0, 3, 8, 7]


@pytest.mark.parametrize("bad", [-1, 2**32, 1.0, True, None])
def test_permutation_refuses_bad_seeds_and_epochs(bad):
    with pytest.raises(ValueError, match=r"^seed must be an int from 0 to 2\*\*32 - 1, not "):
        permutation(5, bad, 0)
    with pytest.raises(ValueError, match=r"^epoch must be "):
        permutation(5, 0, bad)


@given(n=st.integers(0, 40), batch_size=st.integers(1, 50), seed=seeds)
def test_an_epoch_drops_nothing_and_its_last_batch_is_short(n, batch_size, seed):
    batches = labels(list(minibatches(numbered(n), batch_size, seed, epoch=3)))  # they may be kept

    assert flat(batches) == permutation(n, seed, 3).tolist()
    assert [len(batch) for batch in batches] == [batch_size] * (n // batch_size) + [n % batch_size] * (
        n % batch_size > 0
    )


@given(n=st.integers(0, 40), batch_size=st.integers(1, 50))
def test_sequential_is_the_stored_order(n, batch_size):
    batches = labels(sequential(numbered(n), batch_size))

    assert flat(batches) == list(range(n))
    assert all(len(batch) == batch_size for batch in batches[:-1])


def test_sequential_copies_nothing():
    split = numbered(5)

    for X, y in sequential(split, 2):
        assert np.shares_memory(X, split.X)
        assert np.shares_memory(y, split.y)


@pytest.mark.parametrize("bad", BAD_SIZES)
def test_bad_sizes_are_refused_at_the_call(bad):
    for make in (
        lambda: minibatches(numbered(4), bad, 0, 0),
        lambda: sequential(numbered(4), bad),
        lambda: Stream(numbered(4), bad, 0),
        lambda: Stream(numbered(4), 2, 0).take(bad),
    ):
        with pytest.raises(ValueError, match=r"^(batch_size|samples) must be a positive int, not "):
            make()


def test_a_numpy_int_is_a_batch_size():
    assert [len(batch) for batch in labels(minibatches(numbered(5), np.int64(3), 0, 0))] == [3, 2]


@settings(deadline=None, max_examples=40)
@given(
    n=st.integers(1, 20),
    batch_size=st.integers(1, 25),
    seed=seeds,
    rounds=st.lists(st.integers(1, 60), min_size=1, max_size=6),
)
def test_a_stream_delivers_epoch_after_epoch_whatever_the_rounds(n, batch_size, seed, rounds):
    stream = Stream(numbered(n), batch_size, seed)
    delivered = []
    for samples in rounds:
        batches = labels(stream.take(samples))
        assert sum(map(len, batches)) == samples
        assert max(map(len, batches)) <= batch_size
        for batch in batches:
            # An epoch's end never lies inside a batch.
            assert len(delivered) // n == (len(delivered) + len(batch) - 1) // n
            delivered += batch

    total = sum(rounds)
    expected = [index for epoch in range(total // n + 1) for index in permutation(n, seed, epoch).tolist()]
    assert delivered == expected[:total]
    assert stream.epoch * n + stream.position == total


def test_rounds_of_whole_epochs_have_the_batches_of_minibatches():
    split = numbered(7)
    stream = Stream(split, 3, seed=9)

    for epochs in ([0], [1, 2]):
        expected = flat(labels(minibatches(split, 3, 9, epoch)) for epoch in epochs)
        assert labels(stream.take(7 * len(epochs))) == expected


def test_a_caller_that_stops_early_loses_nothing():
    order = permutation(7, 0, 0).tolist()
    stream = Stream(numbered(7), 3, seed=0)

    next(stream.take(7))

    assert (stream.epoch, stream.position) == (0, 3)
    assert labels(stream.take(4)) == [order[3:6], order[6:]]


@pytest.mark.parametrize("taken", [3, 4, 7, 9, 14, 20])
def test_a_stream_that_starts_at_anothers_place_continues_it(taken):
    stream = Stream(numbered(7), 3, seed=5)
    list(stream.take(taken))
    other = Stream(numbered(7), 3, seed=5, epoch=stream.epoch, position=stream.position)
    for (X, y), (its_X, its_y) in zip(stream.take(30), other.take(30)):
        np.testing.assert_array_equal(X, its_X)
        np.testing.assert_array_equal(y, its_y)


@pytest.mark.parametrize(
    ("samples", "position", "message"),
    [(0, 0, "the split is empty"), (7, -1, "not in an epoch of 7"), (7, 8, "8 is not")],
)
def test_a_stream_starts_inside_an_epoch(samples, position, message):
    with pytest.raises(ValueError, match=message):
        Stream(numbered(samples), 3, seed=0, position=position)


def test_the_making_of_a_batch_is_a_section_of_a_timeline():
    recorded = sections.start()
    try:
        labels([*minibatches(numbered(5), 2, 0, 0), *Stream(numbered(5), 4, 0).take(5)])
    finally:
        sections.stop()
    assert [name for name, *_ in recorded.marked] == ["input"] * (3 + 2)
