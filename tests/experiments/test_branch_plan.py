from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism.branch_plan import TASKS, WAYS, modelled


@pytest.mark.parametrize("way", WAYS)
def test_every_way_has_every_task_once_after_what_it_needs(way):
    known = []
    for group in WAYS[way]:
        for task in group:
            assert set(task.needs) <= set(known)
            known.append(task.name)
    assert sorted(known) == sorted(task.name for task in TASKS)


def test_the_model_says_what_the_file_says():
    products = [task for task in TASKS if not task.name.startswith("copy")]
    assert len(products) == 15
    free = {way: modelled(way, 2, TASKS) for way in WAYS}
    assert round(free["by hand"]) == round(free["engine"]) == 9
    assert round(free["long last"]) == 13
    assert round(free["waits"]) == 15
    assert free["2 workers"] < free["long last"]
    # No order is faster: the stem, seven on one device, the join.
    assert sum(task.lane == 1 for task in products) + 2 == 9


def test_costs_may_be_others():
    slow = [type(task)(task.name, task.lane, task.needs, 2 * task.cost) for task in reversed(TASKS)]
    assert modelled("engine", 2, slow) == pytest.approx(2 * modelled("engine", 2, TASKS))
