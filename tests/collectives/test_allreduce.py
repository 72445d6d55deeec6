"""All-reduces and their halves on whole numbers by rank and index: a sum is exact, and a swapped chunk is found."""

from unittest.mock import patch

import numpy as onp
import pytest
from gate import Gate
from hypothesis import example, given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, inputs, on_devices

from mxdp.backend import mx, np
from mxdp.collectives import ALGORITHMS, AllReduce, all_gather, allreduce, broadcast, in_place, reduce_scatter
from mxdp.plans.partition import bounds

each_algorithm = pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), "auto"])


@each_algorithm
@settings(max_examples=15, phases=UNSHRUNK)
@given(
    n=st.integers(1, 8),
    shape=st.one_of(st.integers(0, 300).map(lambda size: (size,)), st.lists(st.integers(0, 4), max_size=4).map(tuple)),
    dtype=st.sampled_from(["float16", "float32", "float64", "int32", "int64"]),
    op=st.sampled_from(["sum", "mean"]),
    prepared=st.booleans(),
    large=st.sampled_from([1, 2 << 20]),
)
@example(n=3, shape=(300,), dtype="float32", op="sum", prepared=True, large=1)
@example(n=8, shape=(2, 13), dtype="float16", op="mean", prepared=True, large=1)
def test_all_hold_the_exact_sum_of_the_current_values_each_time(algorithm, n, shape, dtype, op, prepared, large):
    """Vectors of ``large`` bytes are summed in place, in pieces of 64 bytes."""
    if dtype.startswith("int"):
        op = "sum"
    first = inputs(n, shape, dtype)
    data = on_devices(first)
    before = list(data)
    with patch("mxdp.plans.collective.operations.IN_PLACE_BYTES", large), patch.object(in_place, "PIECE_BYTES", 64):
        again = AllReduce(data, algorithm, op) if prepared else lambda: allreduce(data, algorithm, op)
    if prepared:
        assert again.algorithm in (ALGORITHMS if algorithm == "auto" else [algorithm])
    for arrays in (first, first[::-1], [array + 1 for array in first]):
        for x, array in zip(data, arrays):
            x[()] = np.array(array, dtype=dtype)
        assert again() is None
        total = onp.asarray(sum(arrays), dtype)
        if op == "mean":
            total = onp.asarray(total / total.dtype.type(n))
        for rank, x in enumerate(data):
            assert x is before[rank]
            assert (x.ctx, x.shape, x.dtype) == (mx.cpu(rank), shape, total.dtype)
            onp.testing.assert_array_equal(x.asnumpy(), total)


@each_algorithm
def test_replicas_have_the_same_bits_even_where_sums_round(algorithm):
    random = onp.random.RandomState(0)
    data = on_devices([random.normal(size=1001).astype("float32") for _ in range(5)])
    allreduce(data, algorithm)
    assert len({x.asnumpy().tobytes() for x in data}) == 1


@each_algorithm
def test_views_are_written_through(algorithm):
    arrays = inputs(2, (6,))
    whole = on_devices(arrays)
    allreduce([x[2:5] for x in whole], algorithm)
    for x, array in zip(whole, arrays):
        onp.testing.assert_array_equal(x.asnumpy()[2:5], sum(arrays)[2:5])
        onp.testing.assert_array_equal(x.asnumpy()[[0, 1, 5]], array[[0, 1, 5]])


@each_algorithm
def test_it_does_not_wait(algorithm):
    """Each device's work waits for a gate, which is opened behind the call."""
    arrays = inputs(3, (10,))
    data = on_devices(arrays)
    gates = [Gate(x) for x in data]
    allreduce(data, algorithm)
    for gate in gates:
        gate.open()
    for x in data:
        onp.testing.assert_array_equal(x.asnumpy(), sum(arrays))


@pytest.mark.parametrize(
    ("arrays", "options", "message"),
    [
        ([onp.zeros((2, 3)), onp.zeros((3, 2))], {}, r"one shape, not \(2, 3\), \(3, 2\)"),
        ([onp.zeros(3, "bool")], {}, "numbers to sum, not bool"),
        ([onp.zeros(3)], {"algorithm": "rnig"}, "'rnig'; did you mean 'ring'.* auto, bidirectional-ring, direct, "),
        ([onp.zeros(3)], {"op": "max"}, "op is 'sum' or 'mean', not 'max'"),
        ([onp.zeros(3, "int32")], {"op": "mean"}, "the mean of int32 would be truncated"),
    ],
)
def test_what_an_allreduce_can_not_sum_is_named(arrays, options, message):
    data = [np.array(array, dtype=array.dtype) for array in arrays]
    with pytest.raises(ValueError, match=message):
        allreduce(data, **options)


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
