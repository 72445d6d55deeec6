from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np
from mxdp.batches import split_and_load, split_batch


def cpus(n):
    return [mx.cpu(i) for i in range(n)]


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 6), extra=st.integers(0, 20), from_host=st.booleans())
def test_shards_put_together_are_the_batch(n, extra, from_host):
    batch = onp.arange((n + extra) * 3, dtype="float32").reshape(-1, 3)
    shards = split_and_load(batch if from_host else np.array(batch), cpus(n))
    assert [shard.ctx for shard in shards] == cpus(n)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    onp.testing.assert_array_equal(onp.concatenate([shard.asnumpy() for shard in shards]), batch)


@pytest.mark.parametrize("dtype", ["float32", "int32", "uint8", "float64"])
@pytest.mark.parametrize("from_host", [True, False])
def test_dtype_stays(dtype, from_host):
    batch = onp.arange(5).astype(dtype)
    shards = split_and_load(batch if from_host else np.array(batch, dtype=dtype), cpus(2))
    assert {str(onp.dtype(shard.dtype)) for shard in shards} == {dtype}


@pytest.mark.parametrize("from_host", [True, False])
def test_shards_are_copies(from_host):
    batch = onp.ones((4, 2), "float32")
    batch = batch if from_host else np.array(batch)
    shards = split_and_load(batch, cpus(2))
    batch[:] = 7
    assert all((shard.asnumpy() == 1).all() for shard in shards)


def test_fewer_samples_than_devices():
    with pytest.raises(ValueError, match="batch of 2 over 3 devices"):
        split_and_load(onp.zeros((2, 5)), cpus(3))
    with pytest.raises(ValueError, match="batch of 0 over 1 devices"):
        split_and_load(onp.zeros((0, 5)), cpus(1))


def test_no_devices():
    with pytest.raises(ValueError, match="list of devices is empty"):
        split_and_load(onp.zeros((2, 5)), [])


def test_pictures_and_labels_stay_together():
    X, y = onp.arange(7, dtype="float32").reshape(7, 1), onp.arange(7, dtype="int32")
    for X_shard, y_shard in zip(*split_batch(X, y, cpus(3))):
        assert X_shard.ctx == y_shard.ctx
        onp.testing.assert_array_equal(X_shard.asnumpy()[:, 0], y_shard.asnumpy())


def test_different_lengths_are_named():
    with pytest.raises(ValueError, match="X has 4 samples and y has 5 labels"):
        split_batch(onp.zeros((4, 2)), onp.zeros(5), cpus(2))
