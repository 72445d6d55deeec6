from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx
from mxdp.experiments.automatic_parallelism.task_graph import Task
from mxdp.experiments.automatic_parallelism.work.branches import Net, serial, whole_numbers
from mxdp.experiments.automatic_parallelism.work.task_runs import run

TASKS = [
    Task("a", 0),
    Task("copy for b", 0, ("a",)),
    Task("b", 1, ("copy for b",)),
    Task("copy for c", 1, ("b",)),
    Task("c", 0, ("a", "copy for c")),
]


def test_serial_is_products_and_sums():
    x, weights = whole_numbers(TASKS, seed=1, rows=4, k=3)
    done = serial(TASKS, weights, x)
    a = x.astype(int) @ weights["a"].astype(int)
    b = a @ weights["b"].astype(int)
    assert (done["copy for b"] == a).all()
    assert (done["c"] == (a + b) @ weights["c"].astype(int)).all()


@pytest.mark.parametrize("devices", [[mx.cpu(0)], [mx.cpu(1), mx.cpu(2)]])
def test_the_net_gives_the_same_on_the_devices_of_its_lanes(devices):
    x, weights = whole_numbers(TASKS, seed=2, rows=5, k=4)
    done = run([TASKS], Net(TASKS, weights, x, devices).work)
    for name, expected in serial(TASKS, weights, x).items():
        assert (done[name][0].asnumpy() == expected).all()
    where = {name: results[0].ctx for name, results in done.items()}
    assert where["a"] == where["copy for c"] == where["c"] == devices[0]
    assert where["b"] == where["copy for b"] == devices[-1]


def test_weights_move_columns_and_change_signs():
    x, weights = whole_numbers(TASKS, seed=0)
    for weight in weights.values():
        assert (onp.abs(weight).sum(axis=0) == 1).all()
        assert (onp.abs(weight).sum(axis=1) == 1).all()
    assert not onp.array_equal(weights["a"], weights["b"])
    assert onp.abs(x).max() <= 99
