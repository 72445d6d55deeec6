from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism import graph
from mxdp.experiments.automatic_parallelism.branch_plan import TASKS, WAYS
from mxdp.experiments.automatic_parallelism.graph import CLAIM, LABELS, SIDE_BY_SIDE, Graph
from mxdp.experiments.automatic_parallelism.work import branches
from mxdp.tracing import Timeline

SETTINGS = dict(devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, size=8)
CASES = {case.settings["way"]: case for case in Graph().cases(SETTINGS)}


def verdict(by_hand=10.0, engine=10.0, one=15.0):
    times = {"one": one, "waits": 16.0, "by hand": by_hand, "engine": engine, "long last": 13.0, "2 workers": 11.0}
    rows = [
        {
            "case": {"way": way},
            "seconds": {"median": seconds, "samples": [seconds]},
            "metrics": {"tasks": {task.name: task.cost for task in TASKS}},
        }
        for way, seconds in times.items()
    ]
    Graph().finish(rows, [], SETTINGS)
    return rows, Graph().verdict(rows, [], SETTINGS)


def test_two_workers_are_another_environment():
    assert CASES["2 workers"].environment == {"MXNET_CPU_WORKER_NTHREADS": "2"}
    assert all(case.environment == {} for way, case in CASES.items() if way != "2 workers")
    assert set(CASES) == {"one", *LABELS}


@pytest.mark.parametrize("way", WAYS)
def test_the_oracle_compares_every_task(way):
    oracle = Graph().oracle(CASES[way], SETTINGS)
    assert (oracle.checked, oracle.wrong) == (len(TASKS) * 67 * 31, 0)


def adds_only_the_first(weight, *inputs):
    return product(weight, inputs[0])


def copies_too_early(device, array):
    return ((array[0] * 0).as_in_ctx(device),)


product = branches._product


@pytest.mark.parametrize(("name", "broken"), [("_product", adds_only_the_first), ("_copy", copies_too_early)])
def test_the_oracle_catches(monkeypatch, name, broken):
    monkeypatch.setattr(branches, name, broken)
    oracle = Graph().oracle(CASES["engine"], SETTINGS)
    assert 0 < oracle.wrong < oracle.checked


def test_the_oracle_catches_weights_that_changed_places(monkeypatch):
    def swapped(tasks, weights, x, devices):
        return branches_net(tasks, {**weights, "long 3": weights["long 4"], "long 4": weights["long 3"]}, x, devices)

    branches_net = branches.Net
    monkeypatch.setattr(branches, "Net", swapped)
    assert Graph().oracle(CASES["by hand"], SETTINGS).wrong > 0


@pytest.mark.parametrize(("way", "waits"), [("by hand", 5), ("engine", 1), ("long last", 1), ("one", None)])
def test_a_pass_is_recorded_after_the_last_round(way, waits):
    rounds = Graph().run(CASES[way], SETTINGS)
    next(rounds)
    assert "timeline" not in next(rounds).metrics
    metrics = next(rounds).metrics
    assert "tasks" in metrics
    assert ("timeline" in metrics) is (waits is not None)
    if waits:
        events = Timeline.from_json(metrics["timeline"]).events
        assert sum(event.name == "FullyConnected" for event in events) == 15
        assert sum(event.name == "MXNDArrayWaitAll" for event in events) == waits


def test_rows_are_compared_with_by_hand_and_with_the_model(monkeypatch):
    monkeypatch.setattr(graph.process, "cores", lambda: 2)
    rows, found = verdict()
    by_way = {row["case"]["way"]: row["metrics"] for row in rows}
    assert by_way["long last"]["of_by_hand"] == 1.3
    assert by_way["by hand"]["model_ms"] == pytest.approx(9.04e3, rel=0.01)
    assert "model_ms" not in by_way["one"]
    assert "1.30 times (1.10 with two workers a device)" in found.text


@pytest.mark.parametrize(("engine", "holds"), [(9.0, True), (10 * CLAIM, True), (10 * CLAIM + 0.1, False)])
def test_the_engine_must_be_as_good_as_by_hand(engine, holds):
    assert verdict(engine=engine)[1].holds is holds


def test_the_verdict_says_what_the_timelines_show():
    rows, found = verdict()
    assert "Recorded" not in found.text
    for row in rows:
        row["metrics"]["together"] = {"by hand": 0.5, "engine": 0.75}.get(row["case"]["way"])
    text = Graph().verdict(rows, [], SETTINGS).text
    assert "Recorded, both devices work for 50% of a pass by hand and 75% of one by the engine." in text


def test_where_nothing_runs_side_by_side_there_is_no_order_to_choose():
    found = verdict(by_hand=15 * SIDE_BY_SIDE + 0.1, engine=13.0)[1]
    assert found.holds is False
    assert "no order to choose" in found.text


def test_one_device_can_not_tell():
    assert [case.devices for case in Graph().cases({**SETTINGS, "devices": [1]})] == [1]
    row = {"case": {"way": "one"}, "seconds": {"median": 1.0, "samples": [1.0]}, "metrics": {}}
    Graph().finish([row], [], SETTINGS)
    assert Graph().verdict([row], [], SETTINGS).holds is None
