"""What would decide an undecided claim: the rounds that are named decide most of them, half of these rounds do not."""

from __future__ import annotations

import copy
import re
from collections import Counter

import numpy as np
import pytest

from mxdp.experiments.harness.claims import Claim, judged
from mxdp.experiments.harness.experiment import Experiment
from mxdp.experiments.harness.measurement import NO_ANSWER
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.report import words
from mxdp.experiments.report.words import explanation, today

CLOSE = ["Too close to the bound to be worth deciding."]


def row(values, label="a", **more):
    return Row(label, samples=[1.0] * len(values), rounds={"x": [*values]}, **more)


def said(rows, bound=1.0, least=False, noise=None, busy=None):
    """What is said of the claim on ``rows``, of a run that took ten minutes."""
    claim = judged("x", Claim("A claim.", "ours", bound, least), rows, words.noise_factor(noise))
    verdict = {"busy": busy, "noise": noise}
    half = len(rows) // 2
    result = {"rows": rows[half:], "references": rows[:half], "verdict": verdict}
    return claim["holds"], words.undecided({**result, "elapsed_seconds": 600.0}, claim)


def more(sentences):
    """How many more rounds, or processes, are named; None if it is too close."""
    if sentences == CLOSE:
        return None
    (sentence,) = sentences
    return int(re.search(r"About (\d+) more ", sentence).group(1))


def outliers(rng, count):
    return rng.normal(1.0, 0.1, count) + 1.0 * (rng.random(count) < 0.15)


SHAPES = {
    "normal": lambda rng, count: rng.normal(1.0, 0.2, count),
    "skewed": lambda rng, count: np.exp(rng.normal(0.0, 0.2, count)),
    "outliers": outliers,
}
RUNS = 60


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("done", [6, 12])
@pytest.mark.parametrize("off", [-0.2, -0.12, 0.12])
def test_most_claims_are_decided_by_the_rounds_that_are_named(shape, done, off):
    """``off``: the true median less the bound. By chance, the first rounds may show one that is too close."""
    rng, found = np.random.default_rng(0), Counter()
    while found["undecided"] < RUNS:
        values = SHAPES[shape](rng, done) + off
        holds, sentences = said([row(values)])
        if holds is None:
            found["undecided"] += 1
            if named := more(sentences):
                found["named"] += 1
                found["decided"] += said([row([*values, *SHAPES[shape](rng, named) + off])])[0] is (off < 0)
    assert found["named"] > 0.6 * RUNS
    assert found["decided"] > 0.7 * found["named"]


@pytest.mark.parametrize(("done", "beyond"), [(6, 1), (12, 3), (12, 4), (30, 10), (30, 12)])
def test_if_the_spread_stays_four_of_five_are_decided_and_half_the_rounds_decide_fewer(done, beyond):
    rng, bad = np.random.default_rng(0), beyond / done
    rounds = done + more(said([row([0.5] * (done - beyond) + [1.5] * beyond)])[1])
    decided = [
        np.mean([said([row(0.5 + 1.0 * (rng.random(count) < bad))])[0] is True for _ in range(300)])
        for count in (rounds // 2, rounds)
    ]
    assert decided[0] < 0.7
    assert 0.75 < decided[1] < 0.92


def test_what_would_decide_it_is_said_of_undecided_claims_alone():
    assert said([row([0.5] * 6)]) == (True, [])
    assert said([row([1.5] * 6)]) == (False, [])
    assert said([]) == (None, [])


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_process_counts_once_and_the_time_is_that_of_the_run(rounds):
    measured = row([value for value in [0.5] * 9 + [1.5] * 3 for _ in range(rounds)])
    measured.rounds["repeat"] = [number // rounds for number in range(12 * rounds)]
    sentence = "About 18 more processes (15 min) would decide it, if the median stays."
    assert said([measured]) == (None, [sentence])


def test_a_claim_of_at_least_is_the_mirrored_one():
    below, above = [0.6, 0.7, 0.8, 0.9, 1.2, 0.5], [1.4, 1.3, 1.2, 1.1, 0.8, 1.5]
    assert said([row(below)]) == said([row(above)], least=True)
    assert said([row(above)]) == said([row(below)], least=True)
    assert more(said([row(below)])[1]) == more(said([row(above)])[1]) == 11


@pytest.mark.parametrize(
    "values",
    [
        [0.97] * 9 + [1.03] * 3,  # the interval is within 5 % on both sides
        [0.5, 1.5] * 20,  # as many above as below
        [0.9] * 16 + [1.2] * 14,  # hardly more
    ],
)
def test_what_is_too_close_is_not_worth_deciding(values):
    assert said([row(values)]) == (None, CLOSE)


def test_an_interval_that_reaches_far_over_the_bound_is_worth_deciding():
    assert more(said([row([0.97] * 9 + [1.3] * 3)])[1]) == 18


def test_all_rows_must_hold_so_the_slowest_counts_and_one_that_fails_decides():
    quick, slow = row([0.5] * 10 + [1.5] * 3, "quick"), row([0.5] * 9 + [1.5] * 4, "slow")
    wrong = row([1.5] * 10 + [0.5] * 3, "wrong")
    alone = [more(said([each])[1]) for each in (quick, slow, wrong)]
    assert alone[0] < alone[1]
    assert more(said([quick, slow])[1]) == more(said([slow, quick])[1]) == alone[1]
    decided = more(said([slow, wrong])[1])
    assert decided == more(said([wrong, slow])[1])
    assert alone[2] < decided < alone[1]  # the interval of one of two rows is wider
    doubtful = row([1.5] * 9 + [0.5] * 4, "doubtful")
    assert more(said([doubtful, slow, wrong])[1]) < alone[1]
    mirrored = [row([2.0 - value for value in each.rounds["x"]], each.label) for each in (slow, wrong)]
    assert more(said(mirrored, least=True)[1]) == decided


def test_noise_asks_for_more_rounds():
    noise = {"median": 1.2, "low": 1.1, "high": 1.3}
    below, above = [0.5] * 9 + [0.9] * 3, [1.5] * 9 + [1.1] * 3
    assert [said([row(values)])[0] for values in (below, above)] == [True, False]
    assert [more(said([row(values)], noise=noise)[1]) for values in (below, above)] == [18, 18]
    assert more(said([row([0.5] * 9 + [1.5] * 3)])[1]) == 18
    assert said([row([0.5] * 6 + [0.9] * 3 + [1.5] * 3)], noise=noise) == (None, CLOSE)


class Today(Experiment):
    """Judges the first row by what ``finish`` makes of its seconds, and every row by what was measured."""

    question, how_to_read = "How much?", "Read it."
    claims = {  # noqa: RUF012
        "twice": Claim("Today's.", "us", 2.0),
        "as_measured": Claim("Today's, too.", "us", 1.0),
    }

    def finish(self, rows, references, settings):
        rows[0].keep("twice", [2 * each for each in rows[0].samples])

    def answer(self, rows, references, settings):
        return f"Today it is {rows[0].metrics['twice']:g}."

    def explanation(self, rows, references, settings):
        return "Today's reason."


@pytest.fixture
def old():
    """Of other words and bounds; its ``finish`` kept "twice" in the second row."""
    rows = [Row(label, samples=[0.9] * 6, rounds={"as_measured": [0.5] * 6}) for label in "ab"]
    rows[1].keep("twice", [7.0] * 6)
    judged = {"sentence": "Old.", "source": "", "least": False, "exact": False, "holds": False, "measured": []}
    claims = [{**judged, "name": name, "bound": 9.0} for name in ("twice", "gone")]
    said = {"text": "Old.", "explanation": "Old.", "skipped": ["Skipped: x."], "busy": None, "noise": None}
    verdict = {**said, "holds": False, "claims": claims}
    return {"question": "Old?", "verdict": verdict, "rows": rows, "references": [], "settings": {}}


def test_a_file_is_shown_in_the_words_of_today_and_judged_by_its_bounds(old):
    """What was measured, and what was skipped then, stays."""
    before = copy.deepcopy(old)
    shown = today(old, Today())
    assert (shown["question"], shown["verdict"]["text"]) == ("How much?", "Today it is 1.8.")
    assert explanation(shown) == "Today's reason. Skipped: x."
    twice, measured = shown["verdict"]["claims"]
    assert (twice["sentence"], twice["bound"], twice["holds"]) == ("Today's.", 2.0, True)
    assert [each["label"] for each in twice["measured"]] == ["a"], "not the row in which it was kept once"
    assert (measured["holds"], [each["median"] for each in measured["measured"]]) == (True, [0.5, 0.5])
    assert shown["verdict"]["holds"] is True
    assert [vars(row) for row in old["rows"]] == [vars(row) for row in before["rows"]], "the file's own rows"
    assert old["verdict"] == before["verdict"]


def test_a_busy_or_noisy_machine_stays_so_when_judged_again(old):
    old["verdict"]["busy"] = 0.3
    assert [claim["holds"] for claim in today(old, Today())["verdict"]["claims"]] == [None, None]
    old["verdict"].update(busy=None, noise={"label": "a", "median": 1.5, "low": 1.4, "high": 1.6})
    assert [claim["holds"] for claim in today(old, Today())["verdict"]["claims"]] == [None, True]


@pytest.mark.parametrize("name", ["finish", "answer"])
def test_what_today_can_not_judge_stays_as_it_was(old, monkeypatch, name):
    monkeypatch.setattr(Today, name, lambda *_: {}["of another code"])
    shown = today(old, Today())
    assert (shown["question"], shown["verdict"], shown["rows"]) == ("How much?", old["verdict"], old["rows"])


def test_without_an_experiment_or_an_answer_nothing_is_judged(old):
    assert today(old, None) is old
    old["verdict"]["text"] = NO_ANSWER
    assert today(old, Today())["verdict"] is old["verdict"]


def test_a_busy_machine_must_be_quiet_first():
    assert said([row([0.5, 1.5] * 6, busy=0.3)], busy=0.3)[1] == ["This machine was busy; measure it on a quiet one."]


def test_one_round_says_nothing_of_the_spread_and_two_say_how_many_are_needed_at_least():
    assert said([row([0.5])])[1] == ["It needs at least six processes."]
    assert more(said([row([0.5] * 2)])[1]) == 4
