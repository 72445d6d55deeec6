"""All-reduces on whole numbers that depend on rank and index: sums are exact, and a swapped chunk is found."""

from __future__ import annotations

import numpy as onp
import pytest
from gate import Gate
from hypothesis import given, settings
from hypothesis import strategies as st
from whole_numbers import UNSHRUNK, inputs, on_devices

from mxdp.backend import mx, np
from mxdp.collectives import ALGORITHMS, AllReduce, allreduce
from mxdp.plans.cost.machine import Machine, Rate

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


def turns_at(nbytes):
    """A machine on which "auto" takes doubling, with few messages, up to this many bytes, and then shared memory."""
    curve = ((1.0, 0.3625 / nbytes),)
    rate = Rate(1.0, curve, curve)
    return Machine(push=0.0, copy=rate, add=rate, add_more=0.0, cores=4)


@pytest.mark.parametrize(
    ("dtype", "chosen"),
    [
        ("float16", ["doubling", "doubling"]),
        ("float32", ["shared-memory", "doubling"]),
        ("float64", ["shared-memory", "shared-memory"]),
    ],
)
def test_auto_chooses_by_the_machine_that_is_given_and_by_the_bytes_of_the_dtype(dtype, chosen):
    data = [np.zeros((1000,), dtype=dtype, ctx=mx.cpu(rank)) for rank in range(4)]
    assert [AllReduce(data, "auto", machine=turns_at(nbytes)).algorithm for nbytes in (3000, 6000)] == chosen


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
    ("arrays", "message"),
    [
        ([], "list is empty"),
        ([onp.zeros(3), onp.zeros(4)], r"one shape, not \(3,\), \(4,\)"),
        ([onp.zeros((2, 3)), onp.zeros((3, 2))], r"one shape, not \(2, 3\), \(3, 2\)"),
        ([onp.zeros(3, "float32"), onp.zeros(3, "int32")], "one dtype, not float32, int32"),
        ([onp.zeros(3, "bool")], "numbers to sum, not bool"),
    ],
)
def test_what_does_not_fit_is_named(arrays, message):
    data = [np.array(array, dtype=array.dtype) for array in arrays]
    with pytest.raises(ValueError, match=message):
        allreduce(data)


@pytest.mark.parametrize("function", [allreduce, AllReduce])
def test_two_arrays_on_one_device_are_refused(function):
    """Without two GPUs, the book's ``try_gpu(0)`` and ``try_gpu(1)`` are both ``cpu(0)``."""
    with pytest.raises(ValueError, match=r"^allreduce needs arrays on different devices, not on cpu\(0\), cpu\(0\): "):
        function([np.zeros(3), np.ones(3)])


def test_an_unknown_algorithm_is_named():
    with pytest.raises(ValueError, match=r"'rnig'; did you mean 'ring'.* auto, bidirectional-ring, direct, doubling, "):
        allreduce([np.zeros(3)], "rnig")


def test_an_unknown_op_and_a_mean_of_integers_are_refused():
    with pytest.raises(ValueError, match="op is 'sum' or 'mean', not 'max'"):
        allreduce([np.zeros(3)], op="max")
    with pytest.raises(ValueError, match="the mean of int32 would be truncated"):
        allreduce([np.zeros(3, dtype="int32")], op="mean")
