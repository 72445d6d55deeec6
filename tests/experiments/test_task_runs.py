from __future__ import annotations

import sys

from mxdp.backend import mx, np, npx
from mxdp.experiments.automatic_parallelism.task_graph import GraphTask
from mxdp.experiments.automatic_parallelism.work.task_runs import alone, ends, run

TASKS = [GraphTask("one", 0), GraphTask("two", 1, ("one",)), GraphTask("three", 0, ("one", "two"))]
FUNCTIONS = {
    "one": lambda: (np.ones((2,)),),
    "two": lambda one: (one[0].copyto(mx.cpu(1)) * 2,),
    "three": lambda one, two: (one[0] + two[0].copyto(mx.cpu(0)), two[0]),
}


def test_results_go_to_those_that_need_them():
    done = run([TASKS], FUNCTIONS)
    assert [[array.asnumpy().tolist() for array in done[name]] for name in ("two", "three")] == [
        [[2, 2]],
        [[3, 3], [2, 2]],
    ]


def test_there_is_a_wait_between_groups_and_none_at_the_end(monkeypatch):
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("wait"))
    run([TASKS[:1], TASKS[1:]], FUNCTIONS, lambda task, results: happened.append(task.name))
    assert happened == ["one", "wait", "two", "three"]


def test_every_task_is_timed_alone():
    seconds = alone(TASKS, FUNCTIONS)
    assert list(seconds) == ["one", "two", "three"]
    assert all(each > 0 for each in seconds.values())


def test_ends_are_in_order_and_python_switches_as_before():
    interval = sys.getswitchinterval()
    found = ends([TASKS[:1], TASKS[1:]], FUNCTIONS)
    # There is a wait after the first. Of the others, either may be noted a moment late.
    assert 0 < found["one"] < min(found["two"], found["three"])
    assert sys.getswitchinterval() == interval
