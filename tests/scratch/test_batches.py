from __future__ import annotations

import threading

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np, upload
from mxdp.scratch import split_and_load

DTYPES = ["float16", "float32", "float64", "int32", "int64", "uint8"]


def cpus(n):
    return [mx.cpu(i) for i in range(n)]


@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 6), extra=st.integers(0, 20), from_host=st.booleans(), dtype=st.sampled_from(DTYPES))
def test_shards_put_together_are_the_batch(n, extra, from_host, dtype):
    batch = onp.arange((n + extra) * 3).reshape(-1, 3).astype(dtype)
    shards = split_and_load(batch if from_host else np.array(batch, dtype=dtype), cpus(n))
    assert {str(onp.dtype(shard.dtype)) for shard in shards} == {dtype}
    assert [shard.ctx for shard in shards] == cpus(n)
    assert max(map(len, shards)) - min(map(len, shards)) <= 1
    onp.testing.assert_array_equal(onp.concatenate([shard.asnumpy() for shard in shards]), batch)


@settings(max_examples=40, deadline=None)
@given(
    weights=st.lists(st.floats(0.01, 100), min_size=1, max_size=5), extra=st.integers(0, 50), from_host=st.booleans()
)
def test_shards_are_in_proportion_to_weights_and_none_is_empty(weights, extra, from_host):
    n = len(weights)
    batch = onp.arange((n + extra) * 2, dtype="float32").reshape(-1, 2)
    shards = split_and_load(batch if from_host else np.array(batch), cpus(n), weights)
    onp.testing.assert_array_equal(onp.concatenate([shard.asnumpy() for shard in shards]), batch)
    shares = [len(batch) * weight / sum(weights) for weight in weights]
    assert min(map(len, shards)) >= 1
    if min(shares) >= 1:
        assert max(abs(len(shard) - share) for shard, share in zip(shards, shares)) <= 1 + 1e-9


@pytest.mark.parametrize("from_host", [True, False])
def test_shards_are_copies(from_host):
    batch = onp.ones((4, 2), "float32")
    batch = batch if from_host else np.array(batch)
    shards = split_and_load(batch, cpus(2))
    batch[:] = 7
    assert all((shard.asnumpy() == 1).all() for shard in shards)


HOSTS = [onp.arange(onp.prod(shape)).reshape(shape) for shape in [(), (0,), (3,), (2, 3, 4), (5, 0)]]
HOSTS = [host.astype(dtype) for host in HOSTS for dtype in [*DTYPES, ">f4", "<f4", ">i8", ">f2"]]
HOSTS.append(onp.arange(24.0, dtype="float32").reshape(4, 6)[::2, ::-3])


@pytest.mark.parametrize("host", HOSTS, ids=lambda host: f"{host.dtype.str} {host.shape}")
def test_upload_copies_any_array(host):
    """Also of another byte order, and a view with strides."""
    array = upload(host, mx.cpu(1))
    assert (array.ctx, array.shape, onp.dtype(array.dtype).name) == (mx.cpu(1), host.shape, host.dtype.name)
    onp.testing.assert_array_equal(array.asnumpy(), host)


def test_uploads_do_not_wait_for_a_busy_device():
    """A queue of 60 products; a mark behind the 30th tells whether an upload has waited for them."""
    half_way = threading.Event()

    class Mark(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            half_way.set()
            self.assign(out_data[0], req[0], in_data[0])

    @mx.operator.register("mark_half_way")
    class MarkProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Mark()

    x = mx.nd.ones((700, 700))
    products = [mx.nd.dot(x, x) for _ in range(60)]
    marked = mx.nd.Custom(products[30][0], op_type="mark_half_way")
    arrays = [upload(onp.ones(3, "float32"), device) for device in cpus(2)]
    assert not half_way.is_set()
    assert all((array.asnumpy() == 1).all() for array in arrays)
    marked.wait_to_read()
    assert half_way.is_set()
