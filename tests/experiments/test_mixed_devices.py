from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx
from mxdp.errors import BackendError
from mxdp.experiments.automatic_parallelism import mixed_devices
from mxdp.experiments.automatic_parallelism.mixed_devices import MixedDevices, plan
from mxdp.experiments.automatic_parallelism.task_graph import length, one_by_one
from mxdp.experiments.automatic_parallelism.work import mixed_devices as work
from mxdp.experiments.automatic_parallelism.work.mixed_devices import (
    RECORDED_STEPS,
    lanes,
    mlp,
    random_floats,
    whole_numbers_run,
)
from mxdp.experiments.automatic_parallelism.work.task_runs import run
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.timelines import recorded
from mxdp.plans.cost.simulate import simulate
from mxdp.tracing import Timeline

SETTINGS = dict(devices=[3], kind="cpu", seed=0, rounds=2, timeout=60.0, batch_size=16, size=8, steps=2)
CASES = {case.settings["run"]: case for case in MixedDevices().cases(SETTINGS)}


def row(run, devices, seconds, each):
    tasks = {task.name: each for task in plan(devices - 1, SETTINGS["steps"])}
    ends = {name: each * number for number, name in enumerate(tasks, 1)}
    return Row(
        label=run,
        case={"run": run, "devices": [f"cpu({number})" for number in range(devices)]},
        samples=[seconds] * 6,
        metrics={"tasks": tasks if run == "waits" else ends},
    )


def held(rows):
    return [claims.judged(name, claim, rows)["holds"] for name, claim in MixedDevices.claims.items()]


def test_one_device_and_each_number_of_devices_with_waits_and_without():
    cases = MixedDevices().cases({**SETTINGS, "devices": [3, 4]})
    assert [(case.devices, case.settings["run"]) for case in cases] == [
        (1, "one"), (3, "waits"), (3, "free"), (4, "waits"), (4, "free"),
    ]  # fmt: skip


@pytest.mark.parametrize("run", CASES)
def test_the_oracle_compares_gradients_and_every_copy_of_the_weights(run):
    workers = max(1, CASES[run].devices - 1)
    assert count(work.oracle(CASES[run], SETTINGS)) == (2 * (17 * 9 + 5 * 17) * (2 + workers), 0)


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
    monkeypatch.setattr(work, name, broken)
    checked, wrong = count(work.oracle(CASES[run], SETTINGS))
    assert 0 < wrong <= checked


@pytest.mark.parametrize("run", CASES)
def test_a_round_times_the_steps_and_every_task(run):
    done = one_round(work.set_up(CASES[run], SETTINGS))
    assert done.seconds > 0
    assert set(done.metrics["tasks"]) == {task.name for task in plan(CASES[run].devices - 1, SETTINGS["steps"])}


@pytest.mark.parametrize(("run", "waits"), [("free", 1), ("waits", 17 * RECORDED_STEPS), ("one", None)])
def test_a_few_steps_are_recorded(run, waits):
    ready = work.set_up(CASES[run], {**SETTINGS, "steps": 4})
    assert (ready.record is not None) is (waits is not None)
    if waits:
        timeline = Timeline.from_json(recorded(ready.record(), ready.devices)["timeline"])
        updates = [event for event in timeline.lanes["cpu(0)"] if "subtract" in event.name]
        assert len(updates) == RECORDED_STEPS * 2  # two layers
        assert sum(event.name == "MXNDArrayWaitAll" for event in timeline.events) == waits


def test_rows_get_times_ratios_and_what_the_model_says(monkeypatch):
    monkeypatch.setattr(mixed_devices.process, "cores", lambda: 4)
    rows = [row("one", 1, 2.0, 0.1), row("waits", 3, 4.0, 0.1), row("free", 3, 1.0, 0.1)]
    MixedDevices().finish(rows, [], SETTINGS)
    free = rows[2].metrics
    assert (free["ms_a_step"], free["free_of_one"], free["of_waits"]) == (500, 0.5, 0.25)
    assert [row.metrics["of_one"] for row in rows[:2]] == [1.0, 2.0]
    # 34 tasks of 0.1 s, two steps: side by side they take less than one after the other, and not less than half.
    assert 34 * 0.1 / 2 / 3 * 1e3 < free["model_ms"] < 34 * 0.1 / 2 * 1e3
    assert rows[0].metrics["both_busy"] == 0
    assert "both_busy" not in rows[1].metrics
    assert held(rows) == [True, True]


def test_one_device_can_not_tell():
    rows = [row("one", 1, 1.0, 0.1)]
    MixedDevices().finish(rows, [], SETTINGS)
    assert held(rows) == [None, None]
    assert "Nothing to compare" in MixedDevices().answer(rows, [], SETTINGS)


def needs(tasks):
    return {task.name: set(task.needs) for task in tasks}


def test_the_figure_has_seven_boxes_for_the_cpu_and_five_for_each_gpu():
    tasks = plan(workers=2, steps=1)
    assert [sum(task.lane == lane for task in tasks) for lane in range(3)] == [7, 5, 5]


def test_the_figures_arrows():
    found = needs(plan(workers=2, steps=2))
    assert found["fc1 forward 0 @1"] == {"batch 0"}
    assert found["fc2 backward 1 @0"] == {"loss 1 @0", "fc1 forward 1 @0", "fc2 copy 0"}
    assert found["fc2 sum 1"] == {"fc2 backward 1 @0", "fc2 backward 1 @1"}
    assert found["fc2 update 1"] == {"fc2 sum 1", "fc2 update 0"}
    # The next step's first layer waits for the first layer's weights alone.
    assert found["fc1 forward 1 @0"] == {"batch 1", "fc1 copy 0"}
    assert found["batch 1"] == set()


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_tasks_come_after_what_they_need(workers):
    known = set()
    for task in plan(workers, steps=3):
        assert set(task.needs) <= known
        known.add(task.name)
    assert len(known) == 3 * (7 + 5 * max(1, workers))


def test_without_workers_everything_is_on_one_lane():
    assert {task.lane for task in plan(0, 1)} == {0}


def test_workers_share_the_products_and_the_keeper_works_beside_them():
    two = plan(2, 1)
    assert length(simulate([two], cores=3)) < length(simulate(one_by_one(two), cores=3))
    assert length(simulate([two], cores=1)) == pytest.approx(length(simulate(one_by_one(two), cores=1)))
    assert sum(task.cost for task in plan(1, 1)) == pytest.approx(sum(task.cost for task in two))


def test_lanes_are_cpu_devices_where_there_are_no_gpus():
    assert lanes(3, 3, "auto") == [mx.cpu(0), mx.cpu(1), mx.cpu(2)]
    assert lanes(1, 3, "cpu") == [mx.cpu(0)]
    with pytest.raises(BackendError, match="2 GPUs were asked for"):
        lanes(3, 3, "gpu")


def test_with_gpus_the_keeper_is_the_cpu_and_a_single_device_is_a_gpu(monkeypatch):
    monkeypatch.setattr(work, "devices", lambda n, kind: [mx.gpu(number) for number in range(n)])
    assert lanes(3, 3, "auto") == [mx.cpu(0), mx.gpu(0), mx.gpu(1)]
    assert lanes(2, 3, "auto") == [mx.cpu(0), mx.gpu(0)]
    assert lanes(1, 3, "auto") == [mx.gpu(0)]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_one_step_is_the_gradient_of_half_the_squared_error(workers):
    (((X, Y),), (W1, W2)) = random_floats(seed=3, batch=7, size=6, steps=1)
    found = [mx.cpu(number) for number in range(1 + workers)]
    done = run([plan(workers, 1)], mlp(found, [(X, Y)], [W1, W2], lr=0.5))
    hidden = onp.maximum(X @ W1.T, 0)
    error = hidden @ W2.T - Y
    second, first = error.T @ hidden, ((error @ W2) * (hidden > 0)).T @ X
    onp.testing.assert_allclose(done["fc2 sum 0"][0].asnumpy(), second, rtol=1e-4, atol=1e-5)
    onp.testing.assert_allclose(done["fc1 sum 0"][0].asnumpy(), first, rtol=1e-4, atol=1e-5)
    for name, weight, gradient in (("fc1", W1, first), ("fc2", W2, second)):
        copies = done[f"{name} copy 0"]
        assert [copy.ctx for copy in copies] == (found[1:] or found)
        for copy in copies:
            onp.testing.assert_allclose(copy.asnumpy(), weight - 0.5 * gradient, rtol=1e-4, atol=1e-5)


def test_the_whole_numbers_stay_small_and_move():
    for seed in range(20):
        batches, weights, done = whole_numbers_run(seed)
        assert len(batches) == len(done) == 2
        assert all((onp.abs(step.gradients[0]).max() > 0) for step in done)
        assert not onp.array_equal(done[1].weights[0], weights[0])
        assert max(onp.abs(label).max() for _, label in batches) < 2**24


def test_numbers_that_are_not_exact_are_refused(monkeypatch):
    monkeypatch.setattr(work, "EXACT", 8)
    with pytest.raises(ArithmeticError, match="not exact in float32"):
        whole_numbers_run(0)


def test_random_numbers_have_the_shapes_of_a_network():
    batches, weights = random_floats(seed=0, batch=5, size=8, steps=3)
    assert [[array.shape for array in batch] for batch in batches] == [[(5, 4), (5, 4)]] * 3
    assert [weight.shape for weight in weights] == [(8, 4), (4, 8)]
