from __future__ import annotations

import numpy as onp
import pytest

from mxdp.experiments.oracle import TOLERANCE, changed, count, count_wrong, tolerances_of, whole_numbers

NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("actual", "expected", "tolerance", "counts"),
    [
        (onp.arange(6.0), onp.arange(6.0), 0.0, (6, 0)),
        ([], [], TOLERANCE, (0, 0)),
        *[(onp.zeros(shape), onp.zeros((3, 2)), TOLERANCE, (6, 6)) for shape in ((2, 3), (3, 1), (1, 3, 2), (6,), ())],
        *[
            case
            for tolerance in (0.0, TOLERANCE)
            for value in (NAN, INF, -INF)
            for case in (
                ([1.0, value], [1.0, 2.0], tolerance, (2, 1)),
                ([1.0, 2.0], [1.0, value], tolerance, (2, 1)),
                ([1.0, value], [1.0, value], tolerance, (2, 1)),
                ([7.0, 2.0], [1.0, value], tolerance, (2, 2)),
            )
        ],
    ],
)
def test_numbers_that_are_equal_finite_and_of_one_shape_are_not_wrong(actual, expected, tolerance, counts):
    assert count_wrong(actual, expected, tolerance) == counts


@pytest.mark.parametrize(("error", "wrong"), [(0.01, 0), (0.03, 1)])
def test_the_tolerance_is_relative_to_the_largest_number(error, wrong):
    """In numbers: all that was seen is within 1e-5, and a tolerance that is much larger would hide errors."""
    expected = onp.array([1000.0, 0.0, -1.0])
    actual = expected + onp.array([0.0, error, 0.0])
    assert count_wrong(actual, expected) == (3, wrong)
    assert count_wrong(actual / 1000, expected / 1000, scale=1.0) == (3, wrong)
    assert count_wrong(actual / 1e6, expected / 1e6) == (3, wrong)


@pytest.mark.parametrize(("step", "wrong"), [(1.0, 0), (0.99, 2), (-1.0, 2), (0.0, 2), (float("nan"), 2)])
def test_a_small_change_of_a_large_parameter_is_checked_but_for_its_rounding(step, wrong):
    before, change = onp.array([1.0, -2.0], "float32"), onp.array([7e-5, 9e-5], "float32")
    assert count(iter([changed(before + onp.float32(step) * change, before, change)])) == (2, wrong)


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
