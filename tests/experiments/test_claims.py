from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from mxdp.experiments.harness.allocation import Allocation, best, spread
from mxdp.experiments.harness.claims import LOOK_ERRORS, Claim, is_open, judged, noise_factor, overall
from mxdp.experiments.harness.rows import CONFIDENCE, Estimate, Row, interval, unpaired_ratio

RUNS = 10_000
SHAPES = {
    "normal": (lambda rng, shape: rng.normal(1.0, 0.1, shape), 1.0),
    "skewed": (lambda rng, shape: np.exp(rng.normal(0.0, 0.5, shape)), 1.0),
    "outliers": (lambda rng, shape: rng.normal(1.0, 0.01, shape) + 5.0 * (rng.random(shape) < 0.15), None),
}


@pytest.mark.parametrize(
    ("noise", "factor"),
    [
        ((1.1, 0.9, 1.3), 1.0),
        ((1.1, 1.0, 1.3), 1.0),
        ((0.9, 0.8, 1.0), 1.0),
        ((1.25, 1.1, 1.3), 1.25),
        ((0.8, 0.7, 0.9), 1.25),
    ],
)
def test_noise_that_may_be_none_widens_nothing(noise, factor):
    assert noise_factor(dict(zip(("median", "low", "high"), noise))) == factor
    assert noise_factor(None) == 1.0


def ends(samples, error, narrowed=1.0):
    """Both ends of the interval of each line of ``samples``; ``narrowed`` brings them nearer to the median."""
    n = samples.shape[1]
    low, high = interval(range(n), error)
    ordered = np.sort(samples, axis=1)
    middle = np.median(samples, axis=1)
    return [middle + narrowed * (ordered[:, end] - middle) for end in (low, high)]


def misses(samples, true, sizes_and_errors, narrowed=1.0):
    """In how many lines the interval misses ``true`` at any of the looks, as a share."""
    missed = np.zeros(len(samples), bool)
    for n, error in sizes_and_errors:
        low, high = ends(samples[:, :n], error, narrowed)
        missed |= (true < low) | (true > high)
    return missed.mean()


RATIO = 1.7
SPREADS = {
    "normal": lambda rng, shape: np.exp(rng.normal(0, 0.05, shape)),
    "skewed": lambda rng, shape: 1 + 0.06 * rng.exponential(1, shape),
    "outliers": lambda rng, shape: np.exp(rng.normal(0, 0.02, shape)) * (1 + 3 * (rng.random(shape) < 0.1)),
}
"""How processes differ, and how the rounds of one do."""
LOOKS = [
    [(6, 1 - CONFIDENCE)],
    [(15, 1 - CONFIDENCE)],
    [(30, 1 - CONFIDENCE)],
    [*zip((6, 12), LOOK_ERRORS)],
    [*zip((6, 12, 18), LOOK_ERRORS)],
]
"""Sizes at which the intervals leave out as much as they may, so that narrower ones are noticed."""
OTHERS = [[(11, 1 - CONFIDENCE)], [*zip((10, 20, 30), LOOK_ERRORS)]]


def process_medians(rng, runs, processes, rounds, between, within):
    """Of the ratios of two cases' times, round by round: the median of each process. A machine that becomes slower,
    and swings, does so for both. Each case has processes of its own; the true ratio is :data:`RATIO`."""
    shape = (runs, processes, rounds)
    swings = np.exp(np.cumsum(rng.normal(0, 0.2, (runs, processes * rounds)), axis=1)).reshape(shape)
    machine = swings * np.linspace(1, 1.5, processes * rounds).reshape(shape[1:])
    one, other = (machine * SPREADS[between](rng, (runs, processes, 1)) * SPREADS[within](rng, shape) for _ in range(2))
    return np.median(RATIO * one / other, axis=2)


def most(runs):
    """5 %, and twice the error of the count."""
    return 0.05 + 2 * math.sqrt(0.05 * 0.95 / runs)


@pytest.mark.parametrize("between", SPREADS)
@pytest.mark.parametrize("within", SPREADS)
@pytest.mark.parametrize("rounds", [1, 3])
def test_intervals_keep_their_promise(between, within, rounds):
    """However early the looking ends; and they would not if they were 20 % narrower."""
    rng = np.random.default_rng(0)
    for looks in LOOKS + OTHERS:
        medians = process_medians(rng, RUNS, looks[-1][0], rounds, between, within)
        assert misses(medians, RATIO, looks) <= most(RUNS)
        assert looks in OTHERS or misses(medians, RATIO, looks, narrowed=0.8) > most(RUNS)


@pytest.mark.parametrize(("between", "within"), [("normal", "normal"), ("skewed", "outliers"), ("outliers", "skewed")])
def test_intervals_keep_their_promise_where_a_pilot_plans_the_processes(between, within):
    """The plan depends on what the pilot's numbers were, and these count, too."""
    rng, missed, runs = np.random.default_rng(1), Counter(), 1500
    for _ in range(runs):
        one, other = (SPREADS[between](rng, (6, 1)) * SPREADS[within](rng, (6, 3)) for _ in range(2))
        pilot = RATIO * one / other
        split = best([spread([*pilot])], Allocation(6, 3), start=4, round_=2, seconds=150)
        more = process_medians(rng, 1, split.processes - 6, split.rounds, between, within)[0]
        medians = np.concatenate([np.median(pilot, axis=1), more])[None]
        for narrowed in (1.0, 0.8):
            missed[narrowed] += misses(medians, RATIO, [(split.processes, 0.05)], narrowed)
    assert missed[1.0] / runs <= most(runs)
    assert missed[0.8] / runs > most(runs)


def test_one_process_gives_no_interval_however_many_rounds_it_has():
    """Its rounds are alike: as if each were a process of its own, an interval of 18 would miss in 4 of 10 runs."""
    rng = np.random.default_rng(2)
    rounds = np.exp(rng.normal(0, 0.045, (RUNS, 1)) + rng.normal(0, 0.06, (RUNS, 18)))
    assert 0.3 < misses(rounds, 1.0, [(18, 0.05)]) < 0.5
    assert Row("", samples=list(rounds[0]), rounds={"repeat": [0] * 18}).estimate().low is None


def bimodal(side):
    """Half of the times are close to the median, which is 1, on one side of it; half are far away on the other."""

    def draw(rng, shape):
        return np.where(rng.random(shape) < 0.5, 1 - side * rng.random(shape) / 1000, 1 + side * rng.uniform(0.5, 0.8))

    return draw, 1.0


UNPAIRED = {
    **SHAPES,
    "steady": (lambda rng, shape: rng.normal(1.0, 1e-9, shape), 1.0),
    "far above": bimodal(1),
    "far below": bimodal(-1),
}


def ratio_misses(above, below, looks, others=None):
    """In how many of ``RUNS`` pairs of runs :func:`unpaired_ratio` misses at any of the looks, as a share."""
    rng = np.random.default_rng(3)
    samples, medians = [], []
    for (draw, true), last in zip((above, below), (looks[-1][0], (others or looks)[-1][0])):
        medians.append(true or float(np.median(draw(rng, 2_000_000))))
        samples.append(draw(rng, (RUNS, last)))
    missed = np.zeros(RUNS, bool)
    for (n, error), (m, other) in zip(looks, others or looks):
        (low, high), (least, most) = ends(samples[0][:, :n], error), ends(samples[1][:, :m], other)
        true = medians[0] / medians[1]
        missed |= (low / most > true) | (high / least < true)
    return missed.mean()


@pytest.mark.parametrize("above", UNPAIRED)
@pytest.mark.parametrize("below", UNPAIRED)
def test_intervals_cover_the_ratio_of_two_runs_whatever_their_shapes(above, below):
    shapes = UNPAIRED[above], UNPAIRED[below]
    assert ratio_misses(*shapes, [(6, 0.05)]) <= 0.05
    assert ratio_misses(*shapes, [(9, 0.05)], [(25, 0.05)]) <= 0.05
    assert ratio_misses(*shapes, [*zip((6, 12, 18), LOOK_ERRORS)]) <= 0.05


def test_a_ratio_of_two_runs_that_is_too_narrow_is_caught():
    assert ratio_misses(UNPAIRED["steady"], UNPAIRED["normal"], [(9, 0.2)]) > 0.05


def test_a_ratio_of_two_runs_uses_the_ends_of_both():
    assert unpaired_ratio(Estimate(6.0, 4.0, 8.0), Estimate(2.0, 1.0, 4.0)) == (3.0, 1.0, 8.0)
    for other in (Estimate(2.0, None, None), Estimate(2.0, 0.0, 4.0)):
        assert unpaired_ratio(Estimate(6.0, 4.0, 8.0), other) == (3.0, None, None)
    assert unpaired_ratio(Estimate(6.0, None, None), Estimate(2.0, 1.0, 4.0)) == (3.0, None, None)
    assert math.isnan(unpaired_ratio(Estimate(6.0, 4.0, 8.0), Estimate(0.0, 0.0, 0.0)).median)


def test_five_rounds_cannot_give_it():
    assert interval([1, 2, 3, 4, 5]) is None
    assert interval([3, 1, 2, 6, 5, 4]) == (1, 6)
    assert interval(range(12)) == (2, 9)
    assert interval(range(12), LOOK_ERRORS[1]) == (1, 10)


def row(values, label="a", **more):
    return Row(label, samples=[1.0] * len(values), rounds={"x": list(values), **more})


def test_processes_count_once_each():
    # Six processes of two rounds: the interval is of their medians, the spread between them.
    values = [v + d for v in (1.0, 2.0, 3.0, 4.0, 5.0, 6.0) for d in (-0.1, 0.1)]
    found = row(values, repeat=[n // 2 for n in range(12)]).estimate("x")
    assert found == pytest.approx((3.5, 1.0, 6.0))
    three = row(values[:6], repeat=[0, 0, 1, 1, 2, 2]).estimate("x")
    assert (three.low, three.high) == (None, None)
    assert f"{three:.1f}" == "2.0"


def test_rounds_that_say_nothing_are_left_out():
    assert row([None, 1.0, math.nan, 3.0]).estimate("x").median == 2.0
    assert math.isnan(row([None]).estimate("x").median)


AT_MOST = Claim("At most 2.", "ours", 2.0)
AT_LEAST = Claim("At least 2.", "ours", 2.0, least=True)


@pytest.mark.parametrize(
    ("values", "at_most"),
    [
        ([1.0, 1.1, 1.2, 1.3, 1.4, 2.0], True),
        ([1.0, 1.0, 1.0, 1.0, 1.0, 2.1], None),
        ([2.1] * 6, False),
        ([1.0] * 5, None),
    ],
)
def test_a_claim_is_judged_by_the_interval(values, at_most):
    assert judged("x", AT_MOST, [row(values)])["holds"] is at_most
    mirrored = [4.0 - value for value in values]
    assert judged("x", AT_LEAST, [row(mirrored)])["holds"] is at_most


def test_all_rows_must_hold_and_one_that_fails_decides():
    good, bad, open_ = row([1.0] * 8), row([3.0] * 8, "b"), row([1.0, 3.0] * 4, "c")
    assert judged("x", AT_MOST, [good, good])["holds"] is True
    assert judged("x", AT_MOST, [good, open_])["holds"] is None
    assert judged("x", AT_MOST, [good, open_, bad])["holds"] is False
    measured = judged("x", AT_MOST, [good, bad, Row("d", samples=[1.0] * 8)])["measured"]
    assert [each["label"] for each in measured] == ["a", "b"]


def test_of_many_rows_one_may_be_on_the_wrong_side_by_chance():
    rows = [row([3.0] * 6)] + [row([1.0] * 6)] * 9  # six rounds can't give an interval for ten rows at once
    assert judged("x", AT_MOST, rows)["holds"] is None


def test_what_differs_from_itself_widens_the_intervals():
    assert judged("x", AT_MOST, [row([1.9] * 6)])["holds"] is True
    assert judged("x", AT_MOST, [row([1.9] * 6)], noise=1.1)["holds"] is None
    assert judged("x", AT_MOST, [row([2.1] * 6)], noise=1.1)["holds"] is None


@pytest.mark.parametrize(
    ("predicted", "apart"),
    [
        ([1.5, 2.5], 0.0),
        ([2.0, 4.0], 0.0),  # the ends touch
        ([2.2, 4.0], 0.1),  # above: 2.2 over 2
        ([0.5, 0.9], -0.1),  # below: 0.9 over 1
    ],
)
def test_a_prediction_is_off_by_the_distance_of_the_intervals(predicted, apart):
    given = Row("a", samples=[1.0, 2.0] * 3, rounds={"x": predicted * 3})
    assert given.off("x") == pytest.approx(apart)
    given.rounds["x"] = [1e3 * each for each in given.rounds["x"]]
    assert given.off("x", 1e-3) == pytest.approx(apart)
    assert given.off("y") is None
    given.rounds["x"] = given.rounds["x"][:5]  # too few for an interval
    assert given.off("x") is None


def test_a_count_has_no_noise():
    exact = Claim("At most 2.", "ours", 2.0, exact=True)
    assert [judged("x", exact, [row([n])])["holds"] for n in (2, 3)] == [True, False]
    assert [judged("x", exact, [row(both)])["holds"] for both in ([1, math.nan], [math.nan, 1])] == [False, False]
    mixed = judged("x", exact, [row([2, 2, 3])], noise=9.0)
    assert (mixed["holds"], mixed["measured"]) == (False, [{"label": "a", "median": 2.0, "low": 2.0, "high": 3.0}])


def test_together():
    def claim(holds, measured=True):
        return {"holds": holds, "measured": [{}] if measured else []}

    assert overall([]) is None
    assert overall([claim(None, measured=False)]) is None
    assert overall([claim(True), claim(None, measured=False)]) is True
    assert overall([claim(True), claim(None)]) is None
    assert overall([claim(None), claim(False)]) is False
    assert is_open([claim(True), claim(None)])
    assert not is_open([claim(True), claim(None, measured=False), claim(False)])
