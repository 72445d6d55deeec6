"""Numbers of several processes: their arithmetic, their intervals, and how often these are wrong."""

import math
import operator
import re
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.experiments.lab import Number, Row, by_process, contenders, factor, fastest, mean
from mxdp.experiments.lab.rows import by_name, interval, middle
from mxdp.experiments.lab.told import Claim

VALUE = st.one_of(st.none(), st.just(math.nan), st.just(math.inf), st.integers(-8, 8).map(lambda whole: whole / 2))
PAIRS = st.lists(st.tuples(VALUE, VALUE), max_size=5)


def finite(value):
    return None if value is None or not math.isfinite(value) else value


@pytest.mark.parametrize("n", [*range(16), 30, 90])
def test_an_interval_is_the_narrowest_that_misses_in_at_most_5_percent(n):
    found = interval(range(n))
    misses = [2 * sum(math.comb(n, k) for k in range(rank)) / 2**n for rank in range(1, n // 2 + 1)]
    fit = [rank for rank, miss in enumerate(misses, 1) if miss <= 0.05]
    assert found == ((fit[-1] - 1, n - fit[-1]) if fit else (None, None))
    assert (found[0] is None) == (n < 6)


@given(PAIRS, st.sampled_from(["add", "sub", "mul", "truediv"]), st.integers(-3, 3))
def test_numbers_are_computed_process_by_process(pairs, name, plain):
    """Where one has no value, and where it would be divided by 0, the result has none."""
    do = getattr(operator, name)
    one, other = (Number([pair[at] for pair in pairs], label=label) for at, label in enumerate("ab"))

    def expected(values):
        results = []
        for a, b in values:
            a, b = finite(a), finite(b)
            missing = None in (a, b) or (name == "truediv" and not b)
            results.append(None if missing else do(a, b))
        return results

    assert (do(one, other).values, do(one, other).label) == (expected(pairs), "a")
    assert do(one, plain).values == expected([(a, plain) for a, _ in pairs])
    assert (do(plain, one).values, do(plain, one).label) == (expected([(plain, a) for a, _ in pairs]), "a")
    known = [(finite(a), finite(b)) for a, b in pairs]
    assert mean([one, other]).values == [None if None in both else statistics.fmean(both) for both in known]
    assert by_process(max, one, other, plain).values == [None if None in both else max(*both, plain) for both in known]
    found = [finite(a) for a, _ in pairs if finite(a) is not None]
    assert one.values == [finite(a) for a, _ in pairs]
    assert one.last == (finite(pairs[-1][0]) if pairs else None)
    assert one.different == sorted(set(found))
    assert one.median == statistics.median(found) if found else math.isnan(one.median)
    if name == "truediv" and plain:
        off = Number([value and abs(value) for value in one.values])
        assert factor(off).values == [max(value, 1 / value) if value else None for value in off.values]


@given(st.lists(st.lists(st.integers(0, 5), min_size=3, max_size=3), min_size=1, max_size=9), st.integers(1, 9))
def test_from_six_runs_on_an_interval_is_one_of_runs_and_a_run_that_repeats_another_is_none(runs, bound):
    values = [float(value) for run in runs for value in run]
    number = Number(values, [at for at, run in enumerate(runs) for _ in run])
    medians = [float(statistics.median(run)) for run in runs]
    assert number.units == (medians if len(runs) >= 6 else values)
    new = list({tuple(sorted(run)): run for run in runs}.values())
    units = [statistics.median(run) for run in new] if len(new) >= 6 else [value for run in new for value in run]
    low, high = interval(units) if len(set(values)) >= 6 else (None, None)
    assert (number.low, number.high) == (low, high)
    assert number.seeds == (new[0] if len(new) == 1 < len(runs) else [])
    several = sorted(set(values))
    around = several if len(several) <= 3 else [several[0], several[-1]]
    if low is not None or len(several) == 1:
        around = [low, high] if low is not None else []
    said = [f"{value:.1f}" for value in (number.median, *around)]
    assert re.findall(r"[\d.]+", f"{number:.1f}") == said
    at_most = None if low is None or low <= bound < high else high <= bound
    at_least = None if low is None or low < bound <= high else low >= bound
    assert [number.at_most(bound), number.at_least(bound)] == [at_most, at_least]
    for least, judged, exact in ((False, at_most, several[-1] <= bound), (True, at_least, several[0] >= bound)):
        assert Claim("", "", bound, least, False, [number]).holds is judged
        assert Claim("", "", bound, least, True, [number]).holds is exact


def test_a_ratio_that_its_medians_do_not_give_says_so():
    """The medians are 2.07 and 3.06, but the ratio is 0.75 in the middle process."""
    one, two = Number([1.5, 2.07, 3.1]), Number([3.06, 2.76, 3.4])
    ratio = one / two
    assert f"{one.median:.2f} / {two.median:.2f} = {ratio.median:.2f}" == "2.07 / 3.06 = 0.75"
    row = Row("", False, {})
    row.ratio = 1 / ratio
    assert [number.adds_up for number in (ratio, row.ratio)] == [False, False]
    assert [number.adds_up for number in (one / (one * 2), one - one, Number([]))] == [True] * 3
    for off, right in ((1.04, True), (1.06, False)):
        ratio.of_medians = ratio.median * off
        assert ratio.adds_up == right


@given(st.lists(st.lists(st.integers(1, 9), min_size=6, max_size=6), min_size=1, max_size=4))
def test_contenders_are_all_that_may_be_the_fastest(times):
    rows = [Row(str(at), False, {"seconds": Number(own, label=str(at))}) for at, own in enumerate(times)]
    best = fastest(rows)
    assert best.seconds.median == min(map(statistics.median, times))
    ratios = [[own / other for own, other in zip(row.seconds.values, best.seconds.values)] for row in rows]
    near = [row for row, ratio in zip(rows, ratios) if row is best or len(set(ratio)) < 6 or min(ratio) <= 1]
    assert contenders(rows) == near


def test_of_what_some_processes_have_a_number_is_the_middle_and_a_word_the_last():
    records = [
        {"x": 1, "right": True, "parts": {"a": 1, "b": 2}, "mixed": {"a": 1}, "word": "first"},
        {"x": None, "right": False, "parts": {"b": 3.5}, "mixed": {"a": "w"}, "word": "last", "none": None},
        {"x": 5},
        {"x": 6, "mixed": {"b": "v"}, "parts": {"b": 9}},
    ]
    expected = {"x": 5, "right": False, "parts": {"a": 1, "b": 3.5}, "mixed": {"b": "v"}, "word": "last"}
    assert by_name(records, middle) == {**expected, "none": None}


@given(st.lists(st.sampled_from([True, False, None]), max_size=4), st.booleans(), st.booleans())
def test_all_rows_decide_that_a_claim_holds_and_one_that_it_does_not(sides, least, exact):
    noise = [0.0, 0.01, 0.02, 0.03, 0.04, 0.05]
    right, wrong = (3.0, 1.0) if least else (1.0, 3.0)
    of_side = {True: [right + one for one in noise], False: [wrong + one for one in noise], None: [None] * 6}
    claim = Claim("", "", 2, least, exact, [Number(of_side[side]) for side in sides])
    expected = False if False in sides else True if sides and None not in sides else None
    assert claim.holds is expected
