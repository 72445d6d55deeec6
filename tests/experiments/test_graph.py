from __future__ import annotations

import numpy as onp
import pytest
from littles import little

from mxdp.backend import mx
from mxdp.experiments.automatic_parallelism import graph, task_graph
from mxdp.experiments.automatic_parallelism.graph import TASKS, WAYS, modelled
from mxdp.experiments.automatic_parallelism.task_graph import run_tasks
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.rows import Number
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.plans.cost.simulate import Job, simulate
from mxdp.tracing import Timeline

SETTINGS = little(Question(graph), kind="cpu", size=8)
CASES = {case.way: case for case in graph.cases(SETTINGS)}
SMALL = [
    Job("a", 0),
    Job("copy for b", 0, ("a",)),
    Job("b", 1, ("copy for b",)),
    Job("copy for c", 1, ("b",)),
    Job("c", 0, ("a", "copy for c")),
]


def test_the_model_says_what_the_file_says():
    free = {way: round(modelled(way, 2)) for way in WAYS}
    assert free == {"one": 9, "waits": 15, "by hand": 9, "engine": 9, "long last": 13, "2 workers": 11}
    # No order is faster: the stem, seven on one device, the join.
    assert sum(task.lane == 1 for task in TASKS if not task.name.startswith("copy")) + 2 == 9
    slow = {task.name: Number([2 * task.cost]) for task in reversed(TASKS)}
    assert modelled("engine", 2, slow) == pytest.approx(2 * modelled("engine", 2))


@pytest.mark.parametrize("devices", [[mx.cpu(0)], [mx.cpu(1), mx.cpu(2)]])
def test_the_net_gives_the_same_on_the_devices_of_its_lanes(devices):
    x, weights = graph.exact_weights(SMALL, seed=2, rows=5, k=4)
    done = run_tasks([SMALL], graph.net(SMALL, weights, x, devices))
    for name, expected in graph.serial_results(SMALL, weights, x).items():
        assert (done[name][0].asnumpy() == expected).all()
    where = {name: results[0].ctx for name, results in done.items()}
    assert where["a"] == where["copy for c"] == where["c"] == devices[0]
    assert where["b"] == where["copy for b"] == devices[-1]


def test_weights_move_columns_and_change_signs():
    x, weights = graph.exact_weights(SMALL, seed=0)
    for weight in weights.values():
        assert (onp.abs(weight).sum(axis=0) == 1).all()
        assert (onp.abs(weight).sum(axis=1) == 1).all()
    assert not onp.array_equal(weights["a"], weights["b"])
    assert onp.abs(x).max() <= 99


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


@pytest.mark.parametrize(("way", "waits"), [("by hand", 5), ("engine", 1), ("long last", 1), ("one", None)])
def test_a_pass_is_recorded(way, waits):
    ready = graph.set_up(CASES[way], SETTINGS)
    assert (ready.record is not None) is (waits is not None)
    if waits:
        events = Timeline.from_json(recorded(ready.record, [mx.cpu(0), mx.cpu(1)])["timeline"]).events
        assert sum(event.name == "FullyConnected" for event in events) == 15
        assert sum(event.name == "MXNDArrayWaitAll" for event in events) == waits


@pytest.mark.parametrize("groups", [[[Job("a", 0, ("missing",))]], [[Job("a", 0, ("b",))], [Job("b", 0)]]])
def test_a_task_whose_needs_do_not_come_is_named(groups):
    with pytest.raises(ValueError, match="'a' needs"):
        simulate(groups, cores=2)


def test_every_task_is_timed_alone(monkeypatch):
    """By ``timed``, which waits at both ends."""
    times, pushed = iter([0.5, 2.0]), []
    monkeypatch.setattr(task_graph, "timed", lambda push: (push(), next(times))[1])
    functions = {"one": lambda: 1, "two": pushed.append}
    assert task_graph.alone([Job("one", 0), Job("two", 1, ("one",))], functions) == {"one": 0.5, "two": 2.0}
    assert pushed == [1]
