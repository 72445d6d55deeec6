from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx
from mxdp.errors import BackendError
from mxdp.experiments.automatic_parallelism.mlp_plan import plan
from mxdp.experiments.automatic_parallelism.work import mlp_tasks
from mxdp.experiments.automatic_parallelism.work.mlp_tasks import lanes, mlp_work, random_floats, whole_numbers_run
from mxdp.experiments.automatic_parallelism.work.task_runs import run


def test_lanes_are_cpu_devices_where_there_are_no_gpus():
    assert lanes(3, 3, "auto") == [mx.cpu(0), mx.cpu(1), mx.cpu(2)]
    assert lanes(1, 3, "cpu") == [mx.cpu(0)]
    with pytest.raises(BackendError, match="2 GPUs were asked for"):
        lanes(3, 3, "gpu")


def test_with_gpus_the_keeper_is_the_cpu_and_a_single_device_is_a_gpu(monkeypatch):
    monkeypatch.setattr(mlp_tasks, "devices", lambda n, kind: [mx.gpu(number) for number in range(n)])
    assert lanes(3, 3, "auto") == [mx.cpu(0), mx.gpu(0), mx.gpu(1)]
    assert lanes(2, 3, "auto") == [mx.cpu(0), mx.gpu(0)]
    assert lanes(1, 3, "auto") == [mx.gpu(0)]


@pytest.mark.parametrize("workers", [0, 1, 2, 3])
def test_one_step_is_the_gradient_of_half_the_squared_error(workers):
    (((X, Y),), (W1, W2)) = random_floats(seed=3, batch=7, size=6, steps=1)
    found = [mx.cpu(number) for number in range(1 + workers)]
    done = run([plan(workers, 1)], mlp_work(found, [(X, Y)], [W1, W2], lr=0.5))
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
    monkeypatch.setattr(mlp_tasks, "EXACT", 8)
    with pytest.raises(ArithmeticError, match="not exact in float32"):
        whole_numbers_run(0)


def test_random_numbers_have_the_shapes_of_a_network():
    batches, weights = random_floats(seed=0, batch=5, size=8, steps=3)
    assert [[array.shape for array in batch] for batch in batches] == [[(5, 4), (5, 4)]] * 3
    assert [weight.shape for weight in weights] == [(8, 4), (4, 8)]
