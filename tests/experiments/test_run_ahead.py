from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism.run_ahead import CLAIM, OWN_CHILD, POLICIES, RunAhead
from mxdp.experiments.automatic_parallelism.work.waiting import WAITS, policy
from mxdp.tracing import Timeline

SETTINGS = dict(
    devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, batch_size=8, samples=24, size=16, products=2, additions=10
)
CASES = {case.label: case for case in RunAhead().cases(SETTINGS)}


def verdict(bounded=1.0, peak=40, waited=3.0, front=1.0, back=2.0):
    def row(case, seconds, **metrics):
        return {"case": case, "seconds": {"median": seconds, "samples": [seconds]}, "metrics": metrics}

    times = {"never": 1.0, "each epoch": 1.1, "each step": 1.2, "2 ahead": 1.3, "2 ahead, stamps": bounded}
    rows = [row({"wait": name}, times[name], steps=4, ahead=3, peak_bytes=peak * 1e6) for name in POLICIES]
    rows[0]["metrics"]["peak_bytes"] = 60e6
    rows += [row({"products": name}, number) for number, name in zip((1.0, 0.9, 0.1), WAITS)]
    rows.append(row({"each": False}, 2.0, front_us=front, back_us=back))
    rows.append(row({"each": True}, waited))
    RunAhead().finish(rows, [], SETTINGS)
    return rows, RunAhead().verdict(rows, [], SETTINGS)


def test_each_way_to_train_has_a_child_of_its_own_and_the_rest_share_one():
    environments = [case.environment.get(OWN_CHILD) for case in CASES.values()]
    assert environments == [*POLICIES, None, None, None, None, None]


def test_its_ways_are_those_that_there_are():
    assert all(policy(name, 3) for name in POLICIES)
    assert [case.settings["products"] for case in CASES.values() if "products" in case.settings] == list(WAITS)


@pytest.mark.parametrize("label", CASES)
def test_every_case_meets_its_oracle(label):
    oracle = RunAhead().oracle(CASES[label], SETTINGS)
    assert oracle.checked > 0
    assert oracle.wrong == 0


@pytest.mark.parametrize("label", ["never", "the first: a stamp", "10, a wait for each"])
def test_rounds_come_with_the_devices_that_they_use(label):
    rounds = RunAhead().run(CASES[label], SETTINGS)
    assert next(rounds).devices == ["cpu(0)", "cpu(1)"][: CASES[label].devices]
    assert next(rounds).seconds > 0


@pytest.mark.parametrize(("way", "waits"), [("never", 1), ("wait each step", 5), ("wait each epoch", None)])
def test_a_few_steps_are_recorded_after_the_last_round(way, waits):
    rounds = RunAhead().run(CASES[way], SETTINGS)
    next(rounds)
    assert "timeline" not in next(rounds).metrics
    metrics = next(rounds).metrics
    assert ("timeline" in metrics) is (waits is not None)
    if waits:
        events = Timeline.from_json(metrics["timeline"]).events
        assert sum(event.name == "MXNDArrayWaitAll" for event in events) == waits
        assert {event.kind for event in events if event.name == "mxdp job"} == {"engine"}


def test_rows_are_compared_with_the_first_of_their_kind():
    rows, _ = verdict()
    of_first = [row["metrics"]["of_first"] for row in rows]
    assert of_first == [1.0, 1.1, 1.2, 1.3, 1.0, 1.0, 0.9, 0.1, 1.0, 1.5]
    assert rows[1]["metrics"]["ms_a_step"] == pytest.approx(275)
    assert rows[-1]["metrics"]["us_an_op"] == pytest.approx(3e5)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [({}, True), ({"bounded": CLAIM}, True), ({"bounded": CLAIM + 0.01}, False), ({"peak": 61}, False),
     ({"waited": 1.9}, False)],
)  # fmt: skip
def test_two_steps_ahead_must_be_as_fast_with_less_memory_and_waiting_must_cost(changes, holds):
    found = verdict(**changes)[1]
    assert found.holds is holds
    assert "0.90 of waitall's time by wait_to_read, and 0.10 by a stamp" in found.text


@pytest.mark.parametrize(
    ("front", "back", "said"), [(1.0, 2.0, "the back end is the slower one"), (2.0, 1.0, "Python is the slower one")]
)
def test_the_books_condition_is_judged(front, back, said):
    text = verdict(front=front, back=back)[1].text
    assert said in text
    assert ("is not met" in text) is (front > back)


def test_the_prediction_counts_batches():
    assert "keeps up to 5 batches of 0.0 MB, each epoch 2, a bound of two steps 3" in RunAhead().predict(SETTINGS, 2)
