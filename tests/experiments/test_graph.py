from __future__ import annotations

import numpy as onp
import pytest

from mxdp.backend import mx
from mxdp.experiments.automatic_parallelism.graph import LABELS, TASKS, WAYS, Graph, modelled
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask
from mxdp.experiments.automatic_parallelism.work import graph as work
from mxdp.experiments.automatic_parallelism.work.task_runs import run
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.child import one_round
from mxdp.experiments.measure.oracle import count
from mxdp.experiments.measure.timelines import recorded
from mxdp.tracing import Timeline

SETTINGS = dict(devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, size=8)
CASES = {case.settings["way"]: case for case in Graph().cases(SETTINGS)}
SMALL = [
    GraphTask("a", 0),
    GraphTask("copy for b", 0, ("a",)),
    GraphTask("b", 1, ("copy for b",)),
    GraphTask("copy for c", 1, ("b",)),
    GraphTask("c", 0, ("a", "copy for c")),
]


def finished(by_hand=10.0, engine=10.0, one=15.0):
    times = {"one": one, "waits": 16.0, "by hand": by_hand, "engine": engine, "long last": 13.0, "2 workers": 11.0}
    rows = [
        Row(
            label=way,
            case={"way": way},
            samples=[seconds * drift for drift in (1, 2, 3, 4, 5, 6)],
            metrics={"tasks": {task.name: task.cost for task in TASKS}},
        )
        for way, seconds in times.items()
    ]
    Graph().finish(rows, [], SETTINGS)
    return rows


def holds(rows):
    return {name: claims.judged(name, claim, rows)["holds"] for name, claim in Graph.claims.items()}


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


def test_serial_is_products_and_sums():
    x, weights = work.whole_numbers(SMALL, seed=1, rows=4, k=3)
    done = work.serial(SMALL, weights, x)
    a = x.astype(int) @ weights["a"].astype(int)
    b = a @ weights["b"].astype(int)
    assert (done["copy for b"] == a).all()
    assert (done["c"] == (a + b) @ weights["c"].astype(int)).all()


@pytest.mark.parametrize("devices", [[mx.cpu(0)], [mx.cpu(1), mx.cpu(2)]])
def test_the_net_gives_the_same_on_the_devices_of_its_lanes(devices):
    x, weights = work.whole_numbers(SMALL, seed=2, rows=5, k=4)
    done = run([SMALL], work.net(SMALL, weights, x, devices))
    for name, expected in work.serial(SMALL, weights, x).items():
        assert (done[name][0].asnumpy() == expected).all()
    where = {name: results[0].ctx for name, results in done.items()}
    assert where["a"] == where["copy for c"] == where["c"] == devices[0]
    assert where["b"] == where["copy for b"] == devices[-1]


def test_weights_move_columns_and_change_signs():
    x, weights = work.whole_numbers(SMALL, seed=0)
    for weight in weights.values():
        assert (onp.abs(weight).sum(axis=0) == 1).all()
        assert (onp.abs(weight).sum(axis=1) == 1).all()
    assert not onp.array_equal(weights["a"], weights["b"])
    assert onp.abs(x).max() <= 99


def test_two_workers_are_another_environment():
    assert CASES["2 workers"].environment == {"MXNET_CPU_WORKER_NTHREADS": "2"}
    assert all(case.environment == {} for way, case in CASES.items() if way != "2 workers")
    assert set(CASES) == {"one", *LABELS}


@pytest.mark.parametrize("way", WAYS)
def test_the_oracle_compares_every_task(way):
    assert count(work.oracle(CASES[way], SETTINGS)) == (len(TASKS) * 67 * 31, 0)


def adds_only_the_first(weight, *inputs):
    return product(weight, inputs[0])


def copies_too_early(device, array):
    return ((array[0] * 0).as_in_ctx(device),)


product = work._product


@pytest.mark.parametrize(("name", "broken"), [("_product", adds_only_the_first), ("_copy", copies_too_early)])
def test_the_oracle_catches(monkeypatch, name, broken):
    monkeypatch.setattr(work, name, broken)
    checked, wrong = count(work.oracle(CASES["engine"], SETTINGS))
    assert 0 < wrong < checked


def test_the_oracle_catches_weights_that_changed_places(monkeypatch):
    def swapped(tasks, weights, x, devices):
        return net(tasks, {**weights, "long 3": weights["long 4"], "long 4": weights["long 3"]}, x, devices)

    net = work.net
    monkeypatch.setattr(work, "net", swapped)
    assert count(work.oracle(CASES["by hand"], SETTINGS))[1] > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_round_times_the_pass_and_every_task(way):
    done = one_round(work.set_up(CASES[way], SETTINGS))
    assert done.seconds > 0
    assert set(done.metrics["tasks"]) == {task.name for task in TASKS}


@pytest.mark.parametrize(("way", "waits"), [("by hand", 5), ("engine", 1), ("long last", 1), ("one", None)])
def test_a_pass_is_recorded(way, waits):
    ready = work.set_up(CASES[way], SETTINGS)
    assert (ready.record is not None) is (waits is not None)
    if waits:
        events = Timeline.from_json(recorded(ready.record(), ready.devices)["timeline"]).events
        assert sum(event.name == "FullyConnected" for event in events) == 15
        assert sum(event.name == "MXNDArrayWaitAll" for event in events) == waits


def test_a_round_in_which_the_engine_was_slow_leaves_its_claim_open():
    rows = finished()
    rows[3].samples[2] *= 1.2
    Graph().finish(rows, [], SETTINGS)
    assert holds(rows) == {"engine": None, "side_by_side": True}


def test_where_nothing_runs_side_by_side_there_is_no_order_to_choose():
    rows = finished(by_hand=13.6, engine=13.0)
    assert holds(rows) == {"engine": True, "side_by_side": False}
    assert "there was no order to choose" in Graph().answer(rows, [], SETTINGS)


def test_one_device_can_not_tell():
    assert [case.devices for case in Graph().cases({**SETTINGS, "devices": [1]})] == [1]
    row = Row("one device", {"way": "one"}, [1.0] * 6)
    Graph().finish([row], [], SETTINGS)
    assert holds([row]) == {"engine": None, "side_by_side": None}
    assert "run it with --devices 2" in Graph().answer([row], [], SETTINGS)
