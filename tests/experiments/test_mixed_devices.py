from __future__ import annotations

import numpy as onp
import pytest
from littles import little

from mxdp.backend import mx
from mxdp.errors import BackendError
from mxdp.experiments.automatic_parallelism import mixed_devices
from mxdp.experiments.automatic_parallelism.mixed_devices import (
    RECORDED_STEPS,
    step_tasks,
    task_functions,
    whole_numbers_run,
)
from mxdp.experiments.automatic_parallelism.task_graph import run_tasks
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.tracing import Timeline

SETTINGS = little(Question(mixed_devices), kind="cpu", batch_size=16, size=8)
CASES = {case.run: case for case in mixed_devices.cases(SETTINGS)}


def test_with_waits_a_round_times_every_task():
    case = CASES["waits"]
    seconds, more = mixed_devices.set_up(case, SETTINGS).round()
    assert seconds == pytest.approx(sum(more["tasks"].values()))
    assert set(more["tasks"]) == {task.name for task in step_tasks(case.devices - 1, SETTINGS.steps)}


def stale_weights(weight, lr, gradient, before=()):
    return (weight - lr * gradient[0],)


def forget_worker(index):
    return lambda *parts: (sum(part[0] for number, part in enumerate(parts) if number != index),)


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_update", stale_weights),
        *(("_sum", forget_worker(index)) for index in (0, 1)),
    ],
)
def test_the_oracle_catches(monkeypatch, name, broken):
    monkeypatch.setattr(mixed_devices, name, broken)
    checked, wrong = count(mixed_devices.oracle(CASES["free"], SETTINGS))
    assert 0 < wrong <= checked


@pytest.mark.parametrize(("run", "waits"), [("free", 1), ("waits", 17 * RECORDED_STEPS), ("one", None)])
def test_a_few_steps_are_recorded(run, waits):
    ready = mixed_devices.set_up(CASES[run], little(Question(mixed_devices), **{**SETTINGS, "steps": 4}))
    assert (ready.record is not None) is (waits is not None)
    if waits:
        timeline = Timeline.from_json(recorded(ready.record, ready.devices)["timeline"])
        updates = [event for event in timeline.lanes["cpu(0)"] if "subtract" in event.name]
        assert len(updates) == RECORDED_STEPS * 2  # two layers
        assert sum(event.name == "MXNDArrayWaitAll" for event in timeline.events) == waits


def test_the_next_steps_first_layer_waits_for_its_own_weights_alone():
    found = {task.name: set(task.needs) for task in step_tasks(workers=2, steps=2)}
    assert found["fc1 forward 1 @0"] == {"batch 1", "fc1 copy 0"}
    assert found["batch 1"] == set()


def lanes(count, kind):
    return mixed_devices.lanes(Case("", count), little(Question(mixed_devices), kind=kind))


def test_lanes_are_cpu_devices_or_gpus_behind_the_cpu_and_a_single_device_is_a_worker(monkeypatch):
    assert lanes(3, "auto") == [mx.cpu(0), mx.cpu(1), mx.cpu(2)]
    assert lanes(1, "cpu") == [mx.cpu(0)]
    with pytest.raises(BackendError, match="2 GPUs were asked for"):
        lanes(3, "gpu")
    monkeypatch.setattr(mixed_devices, "devices", lambda n, kind: [mx.gpu(number) for number in range(n)])
    assert lanes(3, "auto") == [mx.cpu(0), mx.gpu(0), mx.gpu(1)]
    assert lanes(2, "auto") == [mx.cpu(0), mx.gpu(0)]
    assert lanes(1, "auto") == [mx.gpu(0)]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_one_step_is_the_gradient_of_half_the_squared_error(workers):
    settings = little(Question(mixed_devices), seed=3, batch_size=7, size=6, steps=1)
    (((X, Y),), (W1, W2)) = mixed_devices.random_floats(settings)
    assert [array.shape for array in (X, Y, W1, W2)] == [(7, 3), (7, 3), (6, 3), (3, 6)]
    found = [mx.cpu(number) for number in range(1 + workers)]
    done = run_tasks([step_tasks(workers, 1)], task_functions(found, [(X, Y)], [W1, W2], lr=0.5))
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


def test_the_whole_numbers_stay_small_and_move_or_are_refused(monkeypatch):
    for seed in range(20):
        batches, weights, done = whole_numbers_run(seed)
        assert len(batches) == len(done) == 2
        assert all(onp.abs(layers[0][0]).max() > 0 for layers in done)
        assert not onp.array_equal(done[1][0][1], weights[0])
        assert max(onp.abs(label).max() for _, label in batches) < 2**24
    monkeypatch.setattr(mixed_devices, "EXACT", 8)
    with pytest.raises(ArithmeticError, match="not exact in float32"):
        whole_numbers_run(0)
