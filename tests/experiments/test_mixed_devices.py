from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism import mixed_devices
from mxdp.experiments.automatic_parallelism.mixed_devices import CLAIM, RECORDED_STEPS, MixedDevices
from mxdp.experiments.automatic_parallelism.mlp_plan import plan
from mxdp.experiments.automatic_parallelism.work import mlp_tasks
from mxdp.tracing import Timeline

SETTINGS = dict(devices=[3], kind="cpu", seed=0, rounds=2, timeout=60.0, batch_size=16, size=8, steps=2)
CASES = {case.settings["run"]: case for case in MixedDevices().cases(SETTINGS)}


def row(run, devices, seconds, each):
    tasks = {task.name: each for task in plan(devices - 1, SETTINGS["steps"])}
    ends = {name: each * number for number, name in enumerate(tasks, 1)}
    return {
        "label": run,
        "case": {"run": run, "devices": [f"cpu({number})" for number in range(devices)]},
        "seconds": {"median": seconds, "samples": [seconds]},
        "metrics": {"tasks": tasks if run == "waits" else ends},
    }


def verdict(one, waits, free):
    rows = [row("one", 1, one, 0.1), row("waits", 3, waits, 0.1), row("free", 3, free, 0.1)]
    MixedDevices().finish(rows, [], SETTINGS)
    return rows, MixedDevices().verdict(rows, [], SETTINGS)


def test_one_device_and_each_number_of_devices_with_waits_and_without():
    cases = MixedDevices().cases({**SETTINGS, "devices": [3, 4]})
    assert [(case.devices, case.settings["run"]) for case in cases] == [
        (1, "one"), (3, "waits"), (3, "free"), (4, "waits"), (4, "free"),
    ]  # fmt: skip


@pytest.mark.parametrize("run", CASES)
def test_the_oracle_compares_gradients_and_every_copy_of_the_weights(run):
    oracle = MixedDevices().oracle(CASES[run], SETTINGS)
    workers = max(1, CASES[run].devices - 1)
    assert (oracle.checked, oracle.wrong) == (2 * (17 * 9 + 5 * 17) * (2 + workers), 0)


def stale_weights(weight, lr, gradient, before=()):
    return (weight - lr * gradient[0],)


def forgets_a_worker(*parts):
    return (parts[0][0],)


def the_same_share_for_all(X, Y, workers):
    return tuple(array[: len(X) // 2].as_in_ctx(worker) for worker in workers for array in (X, Y))


def copies_to_the_first(workers, weight):
    return (weight[0].as_in_ctx(workers[0]), *(weight[0].as_in_ctx(worker) * 0 for worker in workers[1:]))


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_update", stale_weights),
        ("_sum", forgets_a_worker),
        ("_split", the_same_share_for_all),
        ("_copy", copies_to_the_first),
    ],
)
@pytest.mark.parametrize("run", ["waits", "free"])
def test_the_oracle_catches(monkeypatch, run, name, broken):
    monkeypatch.setattr(mlp_tasks, name, broken)
    oracle = MixedDevices().oracle(CASES[run], SETTINGS)
    assert 0 < oracle.wrong <= oracle.checked


@pytest.mark.parametrize(("run", "waits"), [("free", 1), ("waits", None), ("one", 0)])
def test_a_few_steps_are_recorded_after_the_last_round(run, waits):
    rounds = MixedDevices().run(CASES[run], {**SETTINGS, "steps": 4})
    next(rounds)
    assert "timeline" not in next(rounds).metrics
    metrics = next(rounds).metrics
    assert "tasks" in metrics
    if run == "one":
        assert "timeline" not in metrics
        return
    timeline = Timeline.from_json(metrics["timeline"])
    updates = [event for event in timeline.lanes["cpu(0)"] if "subtract" in event.name]
    assert len(updates) == RECORDED_STEPS * 2  # two layers
    found = len([event for event in timeline.events if event.name == "MXNDArrayWaitAll"])
    assert found == (waits or len(plan(2, RECORDED_STEPS)))


def test_the_prediction_knows_the_cores():
    alone, many = (MixedDevices().predict(SETTINGS, cores) for cores in (1, 8))
    assert "1.00 on 1 core" in alone
    assert "1.00" not in many
    assert "Nothing to compare" in MixedDevices().predict({**SETTINGS, "devices": [1]}, 2)


def test_rows_get_times_ratios_and_what_the_model_says(monkeypatch):
    monkeypatch.setattr(mixed_devices.process, "cores", lambda: 4)
    rows, found = verdict(one=2.0, waits=4.0, free=1.0)
    free = rows[2]["metrics"]
    assert (free["ms_a_step"], free["of_one"], free["of_waits"]) == (500, 0.5, 0.25)
    # 34 tasks of 0.1 s, two steps: side by side they take less than one after the other, and not less than half.
    assert 34 * 0.1 / 2 / 3 * 1e3 < free["model_ms"] < 34 * 0.1 / 2 * 1e3
    assert rows[0]["metrics"]["both_busy"] == 0
    assert "both_busy" not in rows[1]["metrics"]
    assert found.holds
    assert "500.0 ms a step, 0.25 of the time with waits" in found.text


def test_the_verdict_says_what_the_timeline_shows():
    rows, found = verdict(one=2.0, waits=4.0, free=1.0)
    assert "of them are busy." in found.text
    rows[2]["metrics"]["together"] = 0.875
    assert "of them are busy (in the recorded steps 88%)." in MixedDevices().verdict(rows, [], SETTINGS).text


@pytest.mark.parametrize(
    ("one", "free", "holds"), [(5.0, 4 * CLAIM, True), (5.0, 4 * CLAIM + 0.1, False), (3.0, 3.1, False)]
)
def test_without_waits_must_be_faster_than_with_and_than_one_device(one, free, holds):
    assert verdict(one=one, waits=4.0, free=free)[1].holds is holds


def test_one_device_can_not_tell():
    rows = [row("one", 1, 1.0, 0.1)]
    MixedDevices().finish(rows, [], SETTINGS)
    assert MixedDevices().verdict(rows, [], SETTINGS).holds is None
