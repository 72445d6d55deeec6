from __future__ import annotations

import numpy as onp
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np, upload
from mxdp.engine import CompletionEvent
from mxdp.scratch import split_and_load

DTYPES = ["float16", "float32", "float64", "int32", "int64", "uint8"]


def cpus(n):
    return [mx.cpu(i) for i in range(n)]


@settings(max_examples=60)
@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=6),
    samples=st.integers(1, 50),
    from_host=st.booleans(),
    dtype=st.sampled_from(DTYPES),
    weighted=st.booleans(),
)
def test_shards_put_together_are_the_batch_and_in_proportion_to_weights(weights, samples, from_host, dtype, weighted):
    """They are copies. Fewer samples than devices: one each."""
    n = len(weights)
    batch = onp.arange(samples * 3).reshape(-1, 3).astype(dtype)
    given_ = batch.copy() if from_host else np.array(batch, dtype=dtype)
    shards = split_and_load(given_, cpus(n), weights if weighted else None)
    given_[:] = 7
    assert {str(onp.dtype(shard.dtype)) for shard in shards} == {dtype}
    assert [shard.ctx for shard in shards] == cpus(min(n, samples))
    onp.testing.assert_array_equal(onp.concatenate([shard.asnumpy() for shard in shards]), batch)
    lengths = [len(shard) for shard in shards]
    assert min(lengths) >= 1
    shares = [samples * weight / sum(weights) for weight in weights]
    if not weighted:
        assert lengths == sorted(lengths, reverse=True)
        assert lengths[0] - lengths[-1] <= 1
    elif min(shares) >= 1:
        assert max(abs(length - share) for length, share in zip(lengths, shares)) <= 1 + 1e-9


@settings(max_examples=60)
@given(
    st.sampled_from([*DTYPES, ">f4", "<f4", ">i8", ">f2"]),
    st.lists(st.integers(0, 4), max_size=4),
    st.sampled_from([1, 2, -1, -3]),
)
def test_upload_copies_any_array(dtype, shape, stride):
    """Also of another byte order, and a view with strides."""
    host = onp.arange(onp.prod(shape)).reshape(shape).astype(dtype)
    host = host[..., ::stride] if shape else host
    expected = host.copy()
    array = upload(host, mx.cpu(1))
    host[...] = 0
    assert (array.ctx, array.shape, onp.dtype(array.dtype).name) == (mx.cpu(1), host.shape, host.dtype.name)
    onp.testing.assert_array_equal(array.asnumpy(), expected)


def test_uploads_do_not_wait_for_a_busy_device():
    """A queue of 60 products; a mark behind the 30th tells whether an upload has waited for them."""
    x = np.ones((700, 700))
    products = [np.dot(x, x) for _ in range(60)]
    half_way = CompletionEvent([products[30]])
    arrays = [upload(onp.ones(3, "float32"), device) for device in cpus(2)]
    assert half_way.at is None
    assert all((array.asnumpy() == 1).all() for array in arrays)
    assert half_way.wait() > 0
