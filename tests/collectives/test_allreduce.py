"""Integer-valued inputs that depend on rank and index, so that sums are exact and a swapped chunk shows."""

from __future__ import annotations

import numpy as onp
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np
from mxdp.collectives import ALGORITHMS, allreduce
from mxdp.collectives.allreduce import execute
from mxdp.plans.schedules import ring

DTYPES = ["float16", "float32", "float64", "int32", "int64"]
each_algorithm = pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))


def inputs(n, shape, dtype="float32"):
    """One host array for each rank: (rank + 1) * (index mod 7) + rank; sums over 8 ranks stay exact in float16."""
    index = onp.arange(int(onp.prod(shape))) % 7
    return [((rank + 1) * index + rank).astype(dtype).reshape(shape) for rank in range(n)]


def on_devices(arrays):
    return [np.array(array, dtype=array.dtype, ctx=mx.cpu(rank)) for rank, array in enumerate(arrays)]


def wrong(reduce, n=3, shape=(10,)):
    """How many numbers differ from the sum after ``reduce`` has worked on the arrays in place."""
    arrays = inputs(n, shape)
    data = on_devices(arrays)
    reduce(data)
    return sum(int((x.asnumpy() != sum(arrays)).sum()) for x in data)


@each_algorithm
@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("dtype", DTYPES)
def test_sums_exactly_at_every_awkward_length(algorithm, n, dtype):
    for length in sorted({0, 1, n - 1, n, n + 1, 3 * n + 2}):
        arrays = inputs(n, (length,), dtype)
        data = on_devices(arrays)
        before = list(data)
        assert allreduce(data, algorithm) is None
        for rank, x in enumerate(data):
            assert x is before[rank]
            assert x.ctx == mx.cpu(rank)
            assert x.dtype == arrays[0].dtype
            onp.testing.assert_array_equal(x.asnumpy(), sum(arrays[1:], arrays[0]))


@each_algorithm
@settings(max_examples=30, deadline=None)
@given(n=st.integers(1, 5), shape=st.lists(st.integers(0, 5), max_size=4).map(tuple), dtype=st.sampled_from(DTYPES))
def test_any_shape(algorithm, n, shape, dtype):
    arrays = inputs(n, shape, dtype)
    data = on_devices(arrays)
    allreduce(data, algorithm)
    for x in data:
        assert x.shape == shape
        onp.testing.assert_array_equal(x.asnumpy(), sum(arrays[1:], arrays[0]))


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
def test_twice_is_twice(algorithm):
    arrays = inputs(3, (7,))
    data = on_devices(arrays)
    allreduce(data, algorithm)
    allreduce(data, algorithm)
    for x in data:
        onp.testing.assert_array_equal(x.asnumpy(), 3 * sum(arrays))


def rebinds(data):
    total = sum(x.copyto(data[0].ctx) for x in data)
    for rank, x in enumerate(data):
        data[rank] = total.copyto(x.ctx)


def takes_the_mean(data):
    allreduce(data)
    for x in data:
        x /= len(data)


def leaves_a_step_out(data):
    schedule = ring(len(data))
    pieces = [list(np.split(x, (4, 7))) for x in data]
    for step in schedule.steps[:-1]:
        execute(type(schedule)("ring", 3, 3, (step,)), pieces, {})
    for x, parts in zip(data, pieces):
        x[:] = np.concatenate(parts)


def test_the_oracle_catches_broken_variants():
    assert wrong(allreduce) == 0
    assert wrong(takes_the_mean) > 0
    assert wrong(leaves_a_step_out) > 0
    kept = on_devices(inputs(3, (10,)))
    rebinds(list(kept))
    assert (kept[0].asnumpy() != sum(inputs(3, (10,)))).any()


@each_algorithm
@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ([], "list is empty"),
        ([onp.zeros(3), onp.zeros(4)], r"one shape, not \(3,\), \(4,\)"),
        ([onp.zeros((2, 3)), onp.zeros((3, 2))], r"one shape, not \(2, 3\), \(3, 2\)"),
        ([onp.zeros(3, "float32"), onp.zeros(3, "int32")], "one dtype, not float32, int32"),
    ],
)
def test_what_does_not_fit_is_named(algorithm, arrays, message):
    data = [np.array(array, dtype=array.dtype) for array in arrays]
    with pytest.raises(ValueError, match=message):
        allreduce(data, algorithm)


def test_an_unknown_algorithm_is_named():
    with pytest.raises(ValueError, match="'rnig'; there are: doubling, naive, ring"):
        allreduce([np.zeros(3)], "rnig")
