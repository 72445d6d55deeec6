"""Numbers of several processes: their arithmetic, their intervals, and how often these are wrong."""

from __future__ import annotations

import math
import statistics

import numpy as onp
import pytest

from mxdp.experiments.lab import Number, Row, by_process, contenders, fastest, mean
from mxdp.experiments.lab.rows import interval
from mxdp.experiments.lab.told import Claim


@pytest.mark.parametrize("n", [*range(16), 30, 90])
def test_an_interval_is_the_narrowest_that_misses_in_at_most_5_percent(n):
    found = interval(range(n))
    misses = [2 * sum(math.comb(n, k) for k in range(rank)) / 2**n for rank in range(1, n // 2 + 1)]
    fit = [rank for rank, miss in enumerate(misses, 1) if miss <= 0.05]
    assert found == ((fit[-1] - 1, n - fit[-1]) if fit else (None, None))
    assert (found[0] is None) == (n < 6)


def test_numbers_are_computed_process_by_process():
    a, b = Number([6.0, None, 8.0], label="a"), Number([3.0, 1.0, 0.0], label="b")
    assert (a / b).values == [2.0, None, None]
    assert (a + b).values == [9.0, None, 8.0]
    assert (1 - b / 2).values == [-0.5, 0.5, 1.0]
    assert (12 / a).values == [2.0, None, 1.5]
    assert (2 * a).values == (a * 2).values
    assert (a / b).label == (1 / a).label == "a"
    assert mean([a, b]).values == [4.5, None, 4.0]
    assert (by_process(max, a, b).values, by_process(min, a, b).values) == ([6.0, None, 8.0], [3.0, None, 0.0])
    assert Number([1.0, math.nan, math.inf]).values == [1.0, None, None]
    assert math.isnan(Number([]).median)


def test_from_six_runs_on_an_interval_is_one_of_runs():
    values, runs = [float(n) for n in range(18)], [n // 3 for n in range(18)]
    assert Number(values, runs).units == [1.0, 4.0, 7.0, 10.0, 13.0, 16.0]
    assert Number(values[:15], runs[:15]).units == values[:15]
    assert (Number(values, runs) / 2).units == [0.5, 2.0, 3.5, 5.0, 6.5, 8.0]
    holes = [None if run == 5 else value for value, run in zip(values, runs)]
    assert len(Number(holes, runs).units) == 15


THREE, SIX = [0.1, 0.3, 0.2], [0.1, 0.3, 0.2, 0.6, 0.5, 0.4]


@pytest.mark.parametrize(
    ("runs", "ends", "shown"),
    [
        ([THREE] * 6, None, "0.20 (0.10, 0.20, 0.30)"),
        ([THREE] * 2, None, "0.20 (0.10, 0.20, 0.30)"),
        ([THREE, THREE[::-1], [0.3, 0.1, 0.2]] * 2, None, "0.20 (0.10, 0.20, 0.30)"),
        ([THREE] * 5 + [[0.1, 0.3, 0.21]], None, "0.20 (range 0.10 to 0.30)"),
        ([THREE] * 5 + [[0.4, 0.6, 0.5]], (0.1, 0.6), "0.20 (0.10 to 0.60)"),
        ([SIX] * 6, (0.1, 0.6), "0.35 (0.10 to 0.60)"),
        ([[1.0] * 3] * 6, None, "1.00"),
        ([[1.0, 2.0, 3.0, 4.0, 5.0]], None, "3.00 (range 1.00 to 5.00)"),
    ],
)
def test_an_interval_needs_six_different_values_however_often_runs_repeat_them(runs, ends, shown):
    number = Number([value for run in runs for value in run], [k for k, run in enumerate(runs) for _ in run])
    assert (number.low, number.high) == (ends or (None, None))
    assert f"{number:.2f}" == shown
    if not ends:
        assert [number.at_most(bound) for bound in (9, -9)] == [None, None]


def test_a_ratio_that_its_medians_do_not_give_says_so():
    """The medians are 2.07 and 3.06, but the ratio is 0.75 in the middle process."""
    one, two = Number([1.5, 2.07, 3.1]), Number([3.06, 2.76, 3.4])
    ratio = one / two
    assert f"{one.median:.2f} / {two.median:.2f} = {ratio.median:.2f}" == "2.07 / 3.06 = 0.75"
    assert not ratio.adds_up
    row = Row("", False, {})
    row.ratio = 1 / ratio
    assert not row.ratio.adds_up
    assert (one / (one * 2)).adds_up
    assert (one - one).adds_up
    assert Number([]).adds_up


@pytest.mark.parametrize(
    ("values", "most", "least"),
    [
        ([1.0, 1.1, 1.9, 2.1, 2.9, 3.0], [None, True, False], [None, False, True]),
        ([1, 2, 3], [None] * 3, [None] * 3),
    ],
)
def test_a_bound_is_kept_by_the_whole_interval_or_by_none_of_it(values, most, least):
    number = Number(values)
    assert [number.at_most(bound) for bound in (2, 3, 0.5)] == most
    assert [number.at_least(bound) for bound in (2, 3.5, 1)] == least


def test_contenders_are_all_that_may_be_the_fastest():
    steady, close, slow = (
        Row(label, False, {"seconds": Number(values, label=label)})
        for label, values in (
            ("steady", [2.0, 2.01, 2.02, 2.03, 2.04, 2.05]),
            ("close", [1.9, 2.11, 1.92, 2.13, 1.94, 2.15]),
            ("slow", [3.0, 3.1, 3.2, 3.3, 3.4, 3.5]),
        )
    )
    assert fastest([slow, close, steady]) in (steady, close)
    assert {row.label for row in contenders([slow, close, steady])} == {"steady", "close"}


# How often a verdict is wrong: six runs of three processes, as the reference has, of a ratio whose truth is known.

RUNS, PROCESSES, TRIALS = 6, 3, 3000


def times(random, shape, drift=0.0, skew=False):
    """Times around 1: each run, process and round is off by its own factor; a process may be slow for its life."""

    def off(spread, *size):
        noise = random.normal(size=size)
        return onp.exp(spread * (onp.exp(noise / 2) - math.exp(1 / 8) if skew else noise))  # fmt: skip

    trials, cases = shape
    run, process = off(0.03, trials, cases, RUNS, 1), off(0.045, trials, cases, RUNS, PROCESSES)
    slower = 1 + drift * onp.linspace(0, 1, RUNS * PROCESSES).reshape(RUNS, PROCESSES)  # the machine warms up
    return run * process * off(0.06, trials, cases, RUNS, PROCESSES) * slower


def numbers(values):
    runs = onp.repeat(onp.arange(RUNS), PROCESSES)
    return [[Number(case.ravel(), runs) for case in trial] for trial in values]


@pytest.mark.parametrize("kind", [{}, {"skew": True}, {"drift": 0.2}], ids=["even", "skewed", "drifting"])
def test_six_runs_cover_the_truth_and_a_verdict_is_rarely_wrong(kind):
    random = onp.random.RandomState(49)
    ratios = [b / a for a, b in numbers(times(random, (TRIALS, 2), **kind))]
    covered = [ratio.low <= 1 <= ratio.high for ratio in ratios]
    assert sum(covered) / TRIALS >= 0.94
    for bound in (1.0, 1.02, 1.05):
        claims = [Claim("", "", bound, False, False, [ratio]) for ratio in ratios]
        assert sum(claim.holds is False for claim in claims) / TRIALS <= 0.05
        opposite = [Claim("", "", bound, True, False, [ratio * (bound - 0.02)]) for ratio in ratios]
        assert sum(claim.holds is True for claim in opposite) / TRIALS <= 0.05
    judged = [Claim("", "", 1.3, False, False, [ratio]).holds for ratio in ratios]
    assert judged.count(True) / TRIALS > 0.95  # and what is clear is decided


def test_a_choice_that_another_way_beats_rarely_holds():
    """`At most 1.05 times as long as any other way`, where one of four is truly 1.2 times as fast."""
    random = onp.random.RandomState(50)
    wrong = 0
    for chosen, *others in numbers(
        times(random, (TRIALS, 4)) * onp.array([1.0, 1 / 1.2, 1.0, 1.1])[None, :, None, None]
    ):
        wrong += Claim("", "", 1.05, False, False, [chosen / other for other in others]).holds is True
    assert wrong / TRIALS <= 0.05


def test_an_exact_number_is_judged_by_each_value():
    assert Claim("", "", 1, False, True, [Number([1, 1, 1])]).holds is True
    assert Claim("", "", 1, False, True, [Number([1, 1, 2])]).holds is False
    assert Claim("", "", 1, True, True, [Number([1, 0, 1])]).holds is False
    assert Claim("", "", 1, False, True, [Number([None])]).holds is None
    assert Claim("", "", 1, False, True, []).holds is None


def test_all_rows_decide_that_a_claim_holds_and_one_that_it_does_not():
    noise = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]
    low, high = (Number([middle + one for one in noise]) for middle in (1.0, 3.0))
    open_ = Number([1.0, 3.0, 1.1, 2.9, 1.2, 2.8])
    for own, holds in (([low, low], True), ([low, open_], None), ([low, open_, high], False), ([open_], None)):
        assert Claim("", "", 2, False, False, own).holds is holds
    assert statistics.median(open_.units) == 2.0
    assert Claim("", "", 2, False, False, [Number([1.0] * 6)]).holds is None  # one value, six times
