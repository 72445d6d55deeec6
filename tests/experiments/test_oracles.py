from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import devices
from mxdp.experiments.oracles import TOLERANCE, check_step, count_wrong


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
