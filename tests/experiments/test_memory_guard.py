from __future__ import annotations

import json

import pytest

from mxdp.experiments.automatic_parallelism.big_results import BigResults
from mxdp.experiments.automatic_parallelism.memory_guard import OFF, MemoryGuard
from mxdp.tracing import Timeline

SETTINGS = dict(devices=[1], kind="cpu", seed=0, rounds=2, timeout=60.0, size=400, products=40, limit_bytes=10_000_000)
CASES = {case.settings["way"]: case for case in MemoryGuard().cases(SETTINGS)}
JOB = BigResults(400, 40)


def measured(way):
    rounds = MemoryGuard().run(CASES[way], SETTINGS)
    assert next(rounds).devices == ["cpu(0)"]
    next(rounds)
    return next(rounds)


def verdict(off=0.0, sliced_off=0.0, refused=0, at_once=0, limit=SETTINGS["limit_bytes"]):
    def row(way, at_once, measured, said=""):
        predicted = JOB.needed(at_once or 40)
        metrics = dict(predicted_bytes=predicted, measured_bytes=measured, at_once=at_once, said=said)
        return {"case": {"way": way}, "metrics": metrics}

    rows = [
        row("fits", 40, JOB.needed(40) * (1 + off)),
        row("refused", at_once, refused, "this job needs 30 MB and may take 10 MB."),
        row("sliced", 12, JOB.needed(12) * (1 + sliced_off)),
    ]
    references = [row("unguarded", 0, 12_000_000, "MXNetError: Failed to allocate CPU Memory")]
    MemoryGuard().finish(rows, references, SETTINGS)
    return rows, MemoryGuard().verdict(rows, references, {**SETTINGS, "limit_bytes": limit})


@pytest.mark.parametrize("way", CASES)
def test_the_oracle_compares_all_row_sums_and_the_guards_answer(way):
    oracle = MemoryGuard().oracle(CASES[way], SETTINGS)
    assert (oracle.checked, oracle.wrong) == (11 * 129 + 1, 0)


def leaves_one_out(self, device, seed, pieces):
    return run(self, device, seed, [*pieces[:-1], (pieces[-1][0] - 1, pieces[-1][1] - 1)])


run = BigResults.run


@pytest.mark.parametrize("way", ["sliced", "unguarded"])
def test_the_oracle_catches_a_slice_that_is_off_by_one(monkeypatch, way):
    monkeypatch.setattr(BigResults, "run", leaves_one_out)
    assert MemoryGuard().oracle(CASES[way], SETTINGS).wrong > 0


def test_the_oracle_catches_a_guard_that_lets_all_pass(monkeypatch):
    monkeypatch.setattr("mxdp.memory.check_fits", lambda needed, device, limit: None)
    wrong = {way: MemoryGuard().oracle(case, SETTINGS).wrong for way, case in CASES.items()}
    assert wrong == {"fits": 0, "refused": 1, "sliced": 1, "unguarded": 0}


def test_a_job_without_a_limit_runs_whole_and_takes_what_it_should():
    found = measured("fits").metrics
    assert (found["at_once"], found["said"], found["predicted_bytes"]) == (40, "", JOB.needed(40))
    assert abs(found["measured_bytes"] / JOB.needed(40) - 1) < 0.15


def test_refused_before_it_starts_it_takes_nothing_and_both_numbers_are_said():
    found = measured("refused").metrics
    assert (found["at_once"], found["predicted_bytes"]) == (0, JOB.needed(40))
    assert found["measured_bytes"] < 2 << 20
    assert found["said"].startswith("this job needs 30.0 MB and may take 10.0 MB of the ")


def test_in_slices_it_takes_that_much_less():
    found = measured("sliced").metrics
    assert found["at_once"] == 10
    assert found["predicted_bytes"] == JOB.needed(10) <= SETTINGS["limit_bytes"]
    # In a process that runs other tests the heap is full of holes; a child of its own comes within a few per cent.
    assert found["measured_bytes"] < JOB.needed(40) / 2


def test_the_slices_are_recorded_after_the_last_round():
    rounds = MemoryGuard().run(CASES["sliced"], SETTINGS)
    next(rounds)
    assert "timeline" not in next(rounds).metrics
    metrics = next(rounds).metrics
    events = Timeline.from_json(metrics["timeline"]).events
    assert sum(event.name == "FullyConnected" for event in events) == 40
    waits = [event.end for event in events if event.name == "MXNDArrayWaitAll"]
    products = [[event for event in events if event.name == "FullyConnected" and event.end <= end] for end in waits]
    assert [len(each) for each in products[:3]] == [metrics["at_once"] * n for n in (1, 2, 3)]
    assert "timeline" not in measured("fits").metrics


def test_with_nobody_asking_it_fails_under_a_limit_of_the_systems(monkeypatch):
    monkeypatch.setattr("mxdp.experiments.automatic_parallelism.memory_guard.SLACK", 4 << 20)
    # Much more than other tests can have left in this process's heap, which the limit does not count.
    settings = {**SETTINGS, "size": 2000, "products": 60}
    rounds = MemoryGuard().run(CASES["unguarded"], settings)
    next(rounds)
    found = next(rounds).metrics
    assert found["at_once"] == 0
    assert found["said"] == "MXNetError: Failed to allocate CPU Memory"
    assert found["measured_bytes"] < BigResults(2000, 60).needed(60) / 2
    assert json.dumps(found)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [
        ({}, True),
        ({"off": OFF - 0.01, "sliced_off": 0.01 - OFF}, True),
        ({"off": OFF + 0.01}, False),
        ({"sliced_off": -OFF - 0.01}, False),
        ({"sliced_off": 0.09, "limit": JOB.needed(12)}, False),
        ({"refused": 2_000_000}, False),
        ({"at_once": 40}, False),
    ],
)
def test_the_prediction_must_be_near_and_a_refused_job_take_nothing(changes, holds):
    rows, found = verdict(**changes)
    assert found.holds is holds
    assert "off" in rows[0]["metrics"]
    assert "this job needs 30 MB and may take 10 MB" in found.text
    assert "fails with 'MXNetError: Failed to allocate CPU Memory'" in found.text


def test_a_limit_that_not_even_one_result_fits_into_is_said():
    rows, _ = verdict()
    rows[2]["metrics"].update(at_once=0, said="one slice needs 4.0 MB at least")
    found = MemoryGuard().verdict(rows, [{"case": {"way": "unguarded"}, "metrics": {}}], SETTINGS)
    assert (found.holds, found.text) == (False, "It could not be run: one slice needs 4.0 MB at least")


def test_the_prediction_says_what_fits():
    assert "40 results of 0.7 MB and their factors: 30 MB. Of a limit of 10 MB, at most 13 at a time." in (
        MemoryGuard().predict(SETTINGS, 2)
    )
