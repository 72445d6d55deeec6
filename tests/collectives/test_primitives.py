from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, inputs, on_devices

from mxdp.backend import mx, np
from mxdp.collectives import AllReduce, all_gather, allreduce, broadcast, reduce_scatter
from mxdp.plans.partition import bounds

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
few = settings(max_examples=30, phases=UNSHRUNK)


@few
@given(
    n=st.integers(1, 8),
    shape=shapes,
    dtype=st.sampled_from(["float16", "float32", "float64", "int32", "int64"]),
    mean=st.booleans(),
)
def test_reduce_scatter_gives_each_device_its_chunk_and_changes_nothing(n, shape, dtype, mean):
    arrays = inputs(n, shape, dtype)
    data = on_devices(arrays)
    mean = mean and dtype.startswith("float")
    chunks = reduce_scatter(data, "mean" if mean else "sum")
    total = sum(arrays).reshape(-1)
    if mean:
        total /= total.dtype.type(n)
    assert len(chunks) == n
    for rank, (chunk, (start, stop)) in enumerate(zip(chunks, bounds(total.size, n))):
        assert (chunk.ctx, chunk.dtype) == (mx.cpu(rank), onp.dtype(dtype))
        onp.testing.assert_array_equal(chunk.asnumpy(), total[start:stop])
    for x, array in zip(data, arrays):
        onp.testing.assert_array_equal(x.asnumpy(), array)


@few
@given(sizes=st.lists(st.integers(0, 6), min_size=1, max_size=8), dtype=st.sampled_from(["float32", "int64"]))
def test_all_gather_joins_chunks_of_any_size(sizes, dtype):
    arrays = [(10 * rank + onp.arange(size)).astype(dtype) for rank, size in enumerate(sizes)]
    data = on_devices(arrays)
    whole = all_gather(data)
    for rank, x in enumerate(whole):
        assert (x.ctx, x.dtype) == (mx.cpu(rank), onp.dtype(dtype))
        onp.testing.assert_array_equal(x.asnumpy(), onp.concatenate(arrays))
    for x, array in zip(data, arrays):
        onp.testing.assert_array_equal(x.asnumpy(), array)


@few
@given(n=st.integers(1, 8), shape=shapes, source=st.integers(0, 7))
def test_broadcast_overwrites_all_others_in_place(n, shape, source):
    source %= n
    arrays = inputs(n, shape)
    data = on_devices(arrays)
    assert broadcast(data, source) is None
    for x in data:
        onp.testing.assert_array_equal(x.asnumpy(), arrays[source])


@pytest.mark.parametrize("function", [allreduce, AllReduce, reduce_scatter, all_gather, broadcast])
def test_what_does_not_fit_is_named(function):
    name = function.__name__.lower()
    with pytest.raises(ValueError, match=f"{name} needs at least one array, and the list is empty"):
        function([])
    with pytest.raises(ValueError, match=f"{name} needs arrays of one dtype, not float32, int32"):
        function([np.zeros(3), np.zeros(3, dtype="int32")])
    message = rf"^{name} needs arrays on different devices, not on cpu\(0\), cpu\(0\): mxdp\.devices\(2\) gives"
    with pytest.raises(ValueError, match=message):
        function([np.zeros(3), np.ones(3)])


def test_broadcast_needs_a_source_that_is_there():
    with pytest.raises(ValueError, match="no device 2 among 2: source is 0 to 1"):
        broadcast(on_devices(inputs(2, (3,))), source=2)
