from __future__ import annotations

import numpy as np
import pytest

from mxdp.datasets.records import Dataset, Split


def split(n: int) -> Split:
    return Split(np.arange(n * 784, dtype=np.float32).reshape(n, 1, 28, 28), np.arange(n, dtype=np.int32))


def test_take_gives_views_from_the_front():
    whole = Dataset("made-up", split(8), split(5), tuple("abcdefgh"), "here")

    short = whole.take(3, 2)

    assert (len(short.train), len(short.test)) == (3, 2)
    assert np.array_equal(short.train.X, whole.train.X[:3])
    assert short.train.y.tolist() == [0, 1, 2]
    assert np.shares_memory(short.train.X, whole.train.X)
    assert (short.name, short.classes, short.origin) == ("made-up", whole.classes, "here")
    everything = whole.take(100)
    assert (len(everything.train), len(everything.test)) == (8, 5), "no more than there is"


def test_they_show_themselves_in_a_line():
    whole = Dataset("made-up", split(8), split(5), tuple("abcdefgh"), "here")
    assert repr(whole) == "<Dataset 'made-up': 8 training and 5 test pictures>"
    assert repr(whole.train) == "<Split: 8 pictures>"


@pytest.mark.parametrize("bad", [0, -1, True, 2.0, "3", None])
def test_take_refuses_what_is_not_a_positive_int(bad):
    with pytest.raises(ValueError, match=r"must be a positive int, not "):
        split(4).take(bad)


@pytest.mark.parametrize(
    ("test", "classes", "message"),
    [
        (split(8), 7, r"labels must be whole numbers from 0 to 6, not 0 to 7"),
        (Split(np.zeros((1, 3, 28, 28), np.float32), np.zeros(1, np.int32)), 8, r"training are \(1, 28, 28\), .* both"),
    ],
)
def test_a_data_set_refuses_splits_that_do_not_go_together(test, classes, message):
    with pytest.raises(ValueError, match=message):
        Dataset("made-up", split(3), test, tuple(map(str, range(classes))), "here")
