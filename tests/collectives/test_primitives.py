from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, inputs, on_devices

from mxdp.backend import mx, np
from mxdp.collectives import all_gather, broadcast, reduce_scatter
from mxdp.plans.partition import bounds

shapes = st.lists(st.integers(0, 5), max_size=3).map(tuple)
few = settings(max_examples=30, phases=UNSHRUNK)


@few
@given(n=st.integers(1, 8), shape=shapes, dtype=st.sampled_from(["float16", "float32", "float64", "int32", "int64"]))
def test_reduce_scatter_gives_each_device_its_chunk_and_changes_nothing(n, shape, dtype):
    arrays = inputs(n, shape, dtype)
    data = on_devices(arrays)
    chunks = reduce_scatter(data)
    total = sum(arrays[1:], arrays[0]).reshape(-1)
    assert len(chunks) == n
    for rank, (chunk, (start, stop)) in enumerate(zip(chunks, bounds(total.size, n))):
        assert (chunk.ctx, chunk.dtype) == (mx.cpu(rank), onp.dtype(dtype))
        onp.testing.assert_array_equal(chunk.asnumpy(), total[start:stop])
    for x, array in zip(data, arrays):
        onp.testing.assert_array_equal(x.asnumpy(), array)


def test_reduce_scatter_of_means():
    """Four arrays; in one case two devices get an empty chunk."""
    short = reduce_scatter(on_devices(inputs(4, (2,))), op="mean")
    onp.testing.assert_array_equal(onp.concatenate([c.asnumpy() for c in short]), sum(inputs(4, (2,))) / 4)
    chunks = reduce_scatter(on_devices(inputs(4, (9,))), op="mean")
    onp.testing.assert_array_equal(onp.concatenate([c.asnumpy() for c in chunks]), sum(inputs(4, (9,))) / 4)


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


@pytest.mark.parametrize("function", [reduce_scatter, all_gather, broadcast])
def test_what_does_not_fit_is_named(function):
    with pytest.raises(ValueError, match=f"{function.__name__} needs at least one array"):
        function([])
    with pytest.raises(ValueError, match=f"{function.__name__} needs arrays of one dtype, not float32, int32"):
        function([np.zeros(3), np.zeros(3, dtype="int32")])


@pytest.mark.parametrize("function", [reduce_scatter, all_gather, broadcast])
def test_two_arrays_on_one_device_are_refused(function):
    data = [np.zeros(3, ctx=mx.cpu(rank)) for rank in (1, 0, 1)]
    message = rf"^{function.__name__} needs arrays on different devices, not on cpu\(1\), cpu\(0\), cpu\(1\): "
    with pytest.raises(ValueError, match=message + r"mxdp\.devices\(3\) gives"):
        function(data)


def test_broadcast_needs_a_source_that_is_there():
    with pytest.raises(ValueError, match="no device 2 among 2: source is 0 to 1"):
        broadcast(on_devices(inputs(2, (3,))), source=2)
