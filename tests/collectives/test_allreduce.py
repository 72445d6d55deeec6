"""All-reduces on whole numbers that depend on rank and index: sums are exact, and a swapped chunk is found."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as onp
import pytest

from mxdp.backend import mx, np, npx
from mxdp.collectives import ALGORITHMS, AllReduce, allreduce
from mxdp.collectives.program import Program, as_vector, chunk_views
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import Machine, Rate

OTHER_DTYPES = ["float16", "float64", "int32", "int64"]
each_algorithm = pytest.mark.parametrize("algorithm", [*sorted(ALGORITHMS), "auto"])


def inputs(n, shape, dtype="float32"):
    """One host array for each rank: (rank + 1) * (index mod 7) + rank; sums over 8 ranks stay exact in float16."""
    index = onp.arange(int(onp.prod(shape))) % 7
    return [((rank + 1) * index + rank).astype(dtype).reshape(shape) for rank in range(n)]


def on_devices(arrays):
    return [np.array(array, dtype=array.dtype, ctx=mx.cpu(rank)) for rank, array in enumerate(arrays)]


def wrong(reduce, n=3, shape=(10,)):
    """The number of elements that differ from the sum after ``reduce`` in place."""
    arrays = inputs(n, shape)
    data = on_devices(arrays)
    reduce(data)
    return sum(int((x.asnumpy() != sum(arrays)).sum()) for x in data)


@each_algorithm
@pytest.mark.parametrize(
    ("n", "dtype"), [*((n, "float32") for n in range(1, 9)), *((n, dtype) for n in (3, 8) for dtype in OTHER_DTYPES)]
)
def test_sums_exactly_at_every_awkward_length_and_shape(algorithm, n, dtype):
    lengths = [(length,) for length in sorted({0, 1, n - 1, n, n + 1, 3 * n + 2})]
    for shape in [*lengths, (), (2, 0), (2, 3, 5)]:
        arrays = inputs(n, shape, dtype)
        data = on_devices(arrays)
        before = list(data)
        assert allreduce(data, algorithm) is None
        for rank, x in enumerate(data):
            assert x is before[rank]
            assert x.ctx == mx.cpu(rank)
            assert (x.shape, x.dtype) == (shape, arrays[0].dtype)
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
def test_the_oracle_catches_a_mean_and_a_rebinding(algorithm):
    assert wrong(lambda data: allreduce(data, algorithm)) == 0
    assert wrong(lambda data: allreduce(data, algorithm, op="mean")) > 0
    assert wrong(lambda data: allreduce([x.copy() for x in data], algorithm)) > 0


def carry_out(schedule, data):
    Program(schedule, [chunk_views(schedule, as_vector(x)) for x in data])()


def leaves_out(step):
    def broken(schedule):
        return replace(schedule, steps=schedule.steps[:step] + schedule.steps[step + 1 :])

    return broken


def sends_the_next_chunk(schedule):
    """One send of the first step is off by one chunk, or by one device if there is only one chunk."""
    (first, *others), *steps = schedule.steps
    if schedule.chunks > 1:
        off = replace(first, chunk=(first.chunk + 1) % schedule.chunks)
    else:
        off = replace(first, source=(first.source + 1) % schedule.devices)
    return replace(schedule, steps=((off, *others), *steps))


def overwrites_instead_of_adding(schedule):
    (first, *others), *steps = schedule.steps
    return replace(schedule, steps=((replace(first, action="copy"), *others), *steps))


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("broken", [leaves_out(0), leaves_out(-2), sends_the_next_chunk, overwrites_instead_of_adding])
def test_the_oracle_catches_a_broken_plan(algorithm, broken):
    schedule = plan(algorithm, 3, [10])
    assert wrong(lambda data: carry_out(schedule, data)) == 0
    assert wrong(lambda data: carry_out(broken(schedule), data)) > 0


@each_algorithm
@pytest.mark.parametrize("n", [1, 2, 3, 5])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_the_mean_is_the_sum_divided_once(algorithm, n, dtype):
    arrays = inputs(n, (2, 5), dtype)
    data = on_devices(arrays)
    allreduce(data, algorithm, op="mean")
    for x in data:
        onp.testing.assert_array_equal(x.asnumpy(), sum(arrays[1:], arrays[0]) / onp.dtype(dtype).type(n))


@each_algorithm
def test_prepared_once_it_sums_the_current_values_each_time(algorithm):
    arrays = inputs(4, (3, 3))
    data = on_devices(arrays)
    again = AllReduce(data, algorithm)
    if algorithm == "auto":
        assert again.algorithm in ALGORITHMS
    else:
        assert again.algorithm == algorithm
    for _ in range(3):
        for x, array in zip(data, arrays):
            x[:] = np.array(array)
        again()
        for x in data:
            onp.testing.assert_array_equal(x.asnumpy(), sum(arrays))


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


def test_it_does_not_wait():
    """Behind 20 products of 700 x 700 on each device, the call returns before the work is done."""
    data = on_devices(inputs(2, (700, 700)))
    allreduce(data)
    npx.waitall()
    slow = [x * 0 for x in data]
    for _ in range(20):
        slow = [np.dot(x, x) for x in slow]
    for x, zeros in zip(data, slow):
        x += zeros
    started = time.perf_counter()
    allreduce(data)
    pushed = time.perf_counter() - started
    npx.waitall()
    assert pushed < (time.perf_counter() - started) / 2


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
