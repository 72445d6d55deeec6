from __future__ import annotations

import numpy as onp
import pytest

from mxdp import train_batch
from mxdp.backend import devices
from mxdp.experiments.measure.oracle import TOLERANCE, check_step, count_wrong, whole_numbers


def test_equal_numbers_are_not_wrong():
    assert count_wrong(onp.arange(6.0), onp.arange(6.0), tolerance=0.0) == (6, 0)
    assert count_wrong([], []) == (0, 0)


@pytest.mark.parametrize(("error", "wrong"), [(0.01, 0), (0.03, 1)])
def test_the_tolerance_is_relative_to_the_largest_number(error, wrong):
    """In numbers: all that was seen is within 1e-5, and a tolerance that is much larger would hide errors."""
    expected = onp.array([1000.0, 0.0, -1.0])
    actual = expected + onp.array([0.0, error, 0.0])
    assert count_wrong(actual, expected) == (3, wrong)
    assert count_wrong(actual / 1000, expected / 1000, scale=1.0) == (3, wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("tolerance", [0.0, TOLERANCE])
def test_what_is_not_finite_is_wrong_on_either_side(value, tolerance):
    assert count_wrong([1.0, value], [1.0, 2.0], tolerance) == (2, 1)
    assert count_wrong([1.0, 2.0], [1.0, value], tolerance) == (2, 1)
    assert count_wrong([1.0, value], [1.0, value], tolerance) == (2, 1)
    assert count_wrong([7.0, 2.0], [1.0, value], tolerance) == (2, 2)


def test_another_shape_is_all_wrong():
    assert count_wrong(onp.zeros((2, 3)), onp.zeros((3, 2))) == (6, 6)


def test_one_wrong_number_in_one_replica_is_counted():
    def spoilt(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            device_params[1][-1][0] += 1

    checked, wrong = check_step(devices(2, "cpu"), 6, step=spoilt, steps=1)
    # Once as a parameter that differs from the serial run's, once as bits that differ from the first replica's.
    assert (checked, wrong) == (129068 * 6, 2)


@pytest.mark.parametrize("replica", [1, 2])
def test_one_bit_of_any_replica_is_counted(replica):
    def spoilt(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            device_params[replica][0][0, 0, 0, 0] *= 1 + 2**-23

    # Within the tolerance of the serial run's number, but not the first replica's bits.
    assert check_step(devices(3, "cpu"), 6, step=spoilt, steps=1)[1] == 1


@pytest.mark.parametrize(("last", "caught"), [(3, True), (4, False)])
def test_every_step_is_compared(last, caught):
    calls = []

    def late(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        calls.append(len(some))
        if len(calls) == last:
            device_params[0][0] += 1

    # One device, so that its own steps come after those of the serial run.
    checked, wrong = check_step(devices(1, "cpu"), 6, step=late, steps=3)
    assert calls == [1] * 3
    assert (checked, wrong > 0) == (2 * 129068, caught)


def test_an_error_in_the_first_layer_shows_in_the_others():
    """With the book's small weights it would not: 428 numbers would be wrong instead of 109,278."""

    def frozen(X, y, device_params, some, lr):
        first = [[param.copy() for param in replica[:2]] for replica in device_params]
        train_batch(X, y, device_params, some, lr)
        for replica, kept in zip(device_params, first):
            for param, before in zip(replica, kept):
                param[:] = before

    checked, wrong = check_step(devices(2, "cpu"), 6, step=frozen)
    assert wrong > checked / 20


def test_whole_numbers_depend_on_rank_index_and_seed():
    numbers = whole_numbers(0, 10_000, seed=0)
    assert numbers.dtype == "float32"
    assert (numbers.min(), numbers.max()) == (1, 4095)
    assert (numbers == numbers.round()).all()
    for other in (whole_numbers(1, 10_000, seed=0), whole_numbers(0, 10_000, seed=1), onp.roll(numbers, 1)):
        assert (numbers != other).mean() > 0.99
    assert (numbers == whole_numbers(0, 10_000, seed=0)).all()


def test_whole_numbers_can_be_many():
    numbers = whole_numbers(2, 200_000, seed=0)
    assert numbers.shape == (200_000,)
    assert (numbers[65521:131042] == numbers[:65521]).all()
    assert (numbers[100_000:150_000] != numbers[:50_000]).mean() > 0.99
