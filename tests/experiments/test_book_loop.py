from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import gluon, mx
from mxdp.datasets import load
from mxdp.experiments import book_loop
from mxdp.scratch import get_params, init_lenet


def test_the_books_loader_delivers_them_all_and_is_left_as_it_was():
    data, before = load("digits").take(50, 20), gluon.data.vision.FashionMNIST
    batches = list(book_loop.data_loader(data.train, data.test, 20))
    assert gluon.data.vision.FashionMNIST is before
    assert [len(y) for _, y in batches] == [20, 20, 10]
    assert batches[0][0].shape == (20, 1, 28, 28)
    labels = onp.concatenate([y.asnumpy() for _, y in batches])
    assert sorted(labels) == sorted(data.train.y)
    loaded = onp.concatenate([X.asnumpy() for X, _ in batches])
    for axes in ((1, 2), (1, 3)):  # by row and by column: no picture is turned
        sums, expected = (onp.sort(X.sum(axis=axes), axis=0) for X in (loaded, data.train.X))
        onp.testing.assert_allclose(sums, expected, atol=28 / 510)


def test_an_epoch_moves_the_parameters_and_a_last_batch_that_devices_cannot_share_is_left_out():
    devices = [mx.cpu(0), mx.cpu(1)]
    replicas = [get_params(book_loop.book_layout(init_lenet(0)), device) for device in devices]
    odd = load("digits").take(25, 20)
    even = book_loop.splittable(odd, 2)
    assert (len(even.train), len(even.test)) == (24, 20)
    book_loop.train_epoch(book_loop.data_loader(even.train, even.test, 20), replicas, devices, 0.1)
    assert (replicas[0][-1].asnumpy() != 0).all()
    onp.testing.assert_array_equal(replicas[0][-1].asnumpy(), replicas[1][-1].asnumpy())
    with pytest.raises(ValueError, match="cannot be evenly split into 2"):
        book_loop.train_epoch(book_loop.data_loader(odd.train, odd.test, 20), replicas, devices, 0.1)
