from __future__ import annotations

import pytest
from littles import little

from mxdp.experiments.automatic_parallelism import graph
from mxdp.experiments.automatic_parallelism.graph import TASKS, WAYS, modelled
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.rows import Number
from mxdp.experiments.oracle import count

SETTINGS = little(Question(graph), kind="cpu", size=8)
CASES = {case.way: case for case in graph.cases(SETTINGS)}


def test_the_model_says_what_the_file_says():
    free = {way: round(modelled(way, 2)) for way in WAYS}
    assert free == {"one": 9, "waits": 15, "by hand": 9, "engine": 9, "long last": 13, "2 workers": 11}
    # No order is faster: the stem, seven on one device, the join.
    assert sum(task.lane == 1 for task in TASKS if not task.name.startswith("copy")) + 2 == 9
    slow = {task.name: Number([2 * task.cost]) for task in reversed(TASKS)}
    assert modelled("engine", 2, slow) == pytest.approx(2 * modelled("engine", 2))


product, net = graph._product, graph.net


@pytest.mark.parametrize(
    ("name", "broken"),
    [
        ("_product", lambda weight, *inputs: product(weight, inputs[0])),
        # Weights that changed places.
        ("net", lambda tasks, w, *more: net(tasks, {**w, "long 3": w["long 4"], "long 4": w["long 3"]}, *more)),
    ],
)
def test_the_oracle_catches(monkeypatch, name, broken):
    monkeypatch.setattr(graph, name, broken)
    checked, wrong = count(graph.oracle(CASES["engine"], SETTINGS))
    assert 0 < wrong < checked


def test_a_pass_without_a_wait_after_each_task_is_recorded_on_two_devices():
    recorded = {way for way, case in CASES.items() if way != "2 workers" and graph.set_up(case, SETTINGS).record}
    assert recorded == {"by hand", "engine", "long last"}
