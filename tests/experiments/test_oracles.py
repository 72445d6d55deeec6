from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import devices
from mxdp.experiments.oracles import TOLERANCE, check_step, count_wrong, whole_numbers


def test_equal_numbers_are_not_wrong():
    assert count_wrong(onp.arange(6.0), onp.arange(6.0), tolerance=0.0) == (6, 0)
    assert count_wrong([], []) == (0, 0)


@pytest.mark.parametrize(("error", "wrong"), [(0.5, 0), (2.0, 1)])
def test_the_tolerance_is_relative_to_the_largest_number(error, wrong):
    expected = onp.array([1000.0, 0.0, -1.0])
    actual = expected + onp.array([0.0, error * 1000 * TOLERANCE, 0.0])
    assert count_wrong(actual, expected) == (3, wrong)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_wrong(value):
    assert count_wrong([1.0, value], [1.0, 2.0]) == (2, 1)


def test_another_shape_is_all_wrong():
    assert count_wrong(onp.zeros((2, 3)), onp.zeros((3, 2))) == (6, 6)


def test_one_wrong_number_in_one_replica_is_counted():
    from mxdp import train_batch

    def spoilt(X, y, device_params, some, lr):
        train_batch(X, y, device_params, some, lr)
        if len(some) > 1:
            device_params[1][-1][0] += 1

    checked, wrong = check_step(devices(2, "cpu"), 6, step=spoilt, steps=1)
    # Once as a parameter that differs from the serial run's, once as bits that differ from the first replica's.
    assert (checked, wrong) == (129068 * 6, 2)


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
