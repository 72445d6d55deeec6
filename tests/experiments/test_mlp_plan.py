from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism.mlp_plan import plan
from mxdp.experiments.automatic_parallelism.task_graph import length, one_by_one
from mxdp.plans.cost.simulate import simulate


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
