"""All-reduces on whole numbers that depend on rank and index: sums are exact, and a swapped chunk is found."""

from __future__ import annotations

import numpy as onp
import pytest
from gate import Gate
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, inputs, on_devices, turning_at

from mxdp.backend import mx, np
from mxdp.collectives import ALGORITHMS, AllReduce, allreduce

each_algorithm = pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), "auto"])


@each_algorithm
@settings(max_examples=15, phases=UNSHRUNK)
@given(
    n=st.integers(1, 8),
    shape=st.one_of(st.integers(0, 27).map(lambda size: (size,)), st.lists(st.integers(0, 4), max_size=4).map(tuple)),
    dtype=st.sampled_from(["float16", "float32", "float64", "int32", "int64"]),
    op=st.sampled_from(["sum", "mean"]),
    prepared=st.booleans(),
)
def test_all_hold_the_exact_sum_of_the_current_values_each_time(algorithm, n, shape, dtype, op, prepared):
    if dtype.startswith("int"):
        op = "sum"
    first = inputs(n, shape, dtype)
    data = on_devices(first)
    before = list(data)
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


@pytest.mark.parametrize(
    ("dtype", "chosen"),
    [
        ("float32", ["shared-memory", "doubling"]),
        ("float64", ["shared-memory", "shared-memory"]),
    ],
)
def test_auto_chooses_by_the_machine_that_is_given_and_by_the_bytes_of_the_dtype(dtype, chosen):
    data = [np.zeros((1000,), dtype=dtype, ctx=mx.cpu(rank)) for rank in range(4)]
    assert [AllReduce(data, "auto", machine=turning_at(nbytes)).algorithm for nbytes in (3000, 6000)] == chosen


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
def test_what_does_not_fit_is_named(arrays, options, message):
    data = [np.array(array, dtype=array.dtype) for array in arrays]
    with pytest.raises(ValueError, match=message):
        allreduce(data, **options)
