"""What an oracle counts, what ``check_step`` compares, and that both would find it."""

import math

import numpy as onp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp import train_batch
from mxdp.backend import devices
from mxdp.experiments.data_parallel.lenet_steps import check_step
from mxdp.experiments.oracle import (
    TOLERANCE,
    changed,
    count,
    count_wrong,
    random_batch,
    same_bits,
    tolerances_of,
    whole_numbers,
)

NAN, INF = float("nan"), float("inf")


NUMBER = st.sampled_from([0.0, 1.0, -3.0, 1000.0, NAN, INF, -INF])


@given(
    st.lists(st.tuples(NUMBER, st.sampled_from([0.0, 0.5, 0.99, 1.01, 3.0, NAN, INF])), max_size=6),
    st.sampled_from([0.0, 1e-3, TOLERANCE]),
    st.sampled_from([None, 1.0, 50.0]),
)
def test_a_number_is_right_within_the_tolerance_of_the_largest_and_if_both_are_finite(pairs, tolerance, scale):
    """``pairs``: what is expected, and how many tolerances the number is off. Double precision, for exact limits."""
    expected = onp.array([number for number, _ in pairs])
    known = [abs(number) for number, _ in pairs if math.isfinite(number)]
    limit = tolerance * (max(known, default=0.0) if scale is None else scale)
    with onp.errstate(invalid="ignore"):
        actual = expected + [off * (limit or 1e-9) for _, off in pairs]
    wrong = [not (math.isfinite(number) and off * (limit or 1e-9) <= 0.999 * limit) and not (
        math.isfinite(number) and off == 0.0) for number, off in pairs]  # fmt: skip
    assert count_wrong(actual, expected, tolerance, scale) == (len(pairs), sum(wrong))
    assert count_wrong(expected, actual, tolerance, scale or 1.0)[0] == len(pairs)
    if len(pairs) > 1:
        for shape in ((len(pairs), 1), (1, len(pairs)), (len(pairs) - 1,), ()):
            assert count_wrong(onp.zeros(shape), expected, tolerance) == (len(pairs), len(pairs))


def test_the_tolerance_is_what_was_seen_and_no_more():
    """All that was seen is within 1e-5, and a tolerance that is much larger would hide errors."""
    expected = onp.array([1000.0, 0.0, -1.0])
    for error, wrong in ((0.01, 0), (0.03, 1)):
        assert count_wrong(expected + onp.array([0.0, error, 0.0]), expected) == (3, wrong)


@given(st.floats(-3, 3), st.sampled_from([1e-9, 1e-4, 1.0, 100.0]))
def test_a_change_is_checked_but_for_its_rounding(part, size):
    """Of a change that is small beside its parameter, and of a large one."""
    before, change = onp.array([1.0, -2.0]), onp.array([0.7, 0.9]) * size
    limit = TOLERANCE * change[1] + 2**-22 * 2.0
    off = [abs(part - 1) * own for own in change]
    if min(abs(error - limit) for error in off) > 1e-3 * limit:
        found = count(iter([changed(before + part * change, before, change)]))
        assert found == (2, sum(error > limit for error in off))


def test_two_arrays_are_compared_bit_by_bit():
    one = onp.array([0.0, 1.0, NAN, 2.0], "float32")
    other = onp.array([-0.0, onp.nextafter(onp.float32(1), onp.float32(2)), NAN, 2.0], "float32")
    assert count([same_bits(one, other), same_bits(one, one)]) == (8, 2)


@given(st.integers(1, 40), st.integers(0, 2**31), st.sampled_from([(), ((3, 4),), ((3, 4), 3)]))
def test_random_batches_are_new_with_each_seed_and_have_all_classes(samples, seed, more):
    (X, y), (other, _) = (random_batch(samples, number, *more) for number in (seed, seed + 1))
    assert (X.shape, X.dtype, y.shape, y.dtype) == (
        (samples, *(more or ((1, 28, 28),))[0]),
        "float32",
        (samples,),
        "int32",
    )
    assert (other != X).mean() > 0.9
    assert set(random_batch(400, seed, *more)[1]) == set(range(more[1] if len(more) > 1 else 10))


def test_all_that_is_compared_is_counted():
    assert count(iter([([1.0, 2.0], [1.0, 3.0], 0.0), ([1.0], [9.0], 1.0), ([5.0], [6.0], 0.1, 10.0)])) == (4, 1)


def test_whole_numbers_depend_on_rank_index_and_seed():
    numbers = whole_numbers(0, 200_000, seed=0)
    assert (numbers.dtype, numbers.shape, numbers.min(), numbers.max()) == ("float32", (200_000,), 1, 4095)
    assert (numbers == numbers.round()).all()
    others = [whole_numbers(1, 200_000, seed=0), whole_numbers(0, 200_000, seed=1)]
    for other in (*others, onp.roll(numbers, 1), onp.roll(numbers, 50_000)):
        assert (numbers != other).mean() > 0.99
    assert (numbers == whole_numbers(0, 200_000, seed=0)).all()
    assert (numbers[65521:131042] == numbers[:65521]).all()


@pytest.mark.parametrize(
    ("samples", "first", "second"), [(1, 2e-5, 2e-5), (64, 9.9182e-5, 3.4332e-5), (256, 1.98364e-4, 6.8665e-5)]
)
def test_only_the_biases_of_convolutions_have_a_tolerance_that_grows_with_the_batch(samples, first, second):
    expected = [2e-5, first, 2e-5, second, 2e-5, 2e-5, 2e-5, 2e-5]
    assert tolerances_of(samples) == pytest.approx(expected, rel=1e-4)


# A serial run

LENET = 129068


def spoilt(replica, change):
    """A step that then does ``change`` to the parameters of that replica, but not to the serial run's."""

    def step(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            change(device_params[replica])

    return step


def change_a_bit(params):
    params[0][0, 0, 0, 0] *= 1 + 2**-23


def test_a_wrong_bit_in_the_last_replica_is_counted():
    """It is within the tolerance, but not the first replica's."""
    step = spoilt(2, change_a_bit)
    assert count(check_step(devices(3, "cpu"), 6, step=step, steps=1)) == (LENET * 2 * (3 + 2), 1)


@pytest.mark.parametrize(("last", "wrong"), [(1, 180), (3, 180), (4, 0)])
def test_every_step_is_compared(last, wrong):
    calls = []

    def late(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        calls.append(len(some))
        if len(calls) == last:
            device_params[0][0] += 1

    assert count(check_step(devices(1, "cpu"), 6, step=late, steps=3)) == (3 * 2 * LENET, wrong)
    assert calls == [1] * 3


def test_a_relu_at_its_kink_is_no_error():
    """After a step parameters differ in their last bits: a sum near 0 may have another sign than the serial run's."""

    def shaken(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        for params in device_params:
            for param in params:
                param += 1e-8

    for seed in (0, 6, 18):  # in the last two, parts of 61 samples met a kink
        assert count(check_step(devices(2, "cpu"), 61, seed, step=shaken))[1] == 0
