from __future__ import annotations

import pytest

from mxdp.backend import mx, np, npx
from mxdp.experiments.automatic_parallelism import task_graph
from mxdp.experiments.automatic_parallelism.task_graph import length, one_by_one, with_times
from mxdp.experiments.lab import Number
from mxdp.plans.cost.simulate import Job, simulate

FORK = [
    Job("a", 0, cost=2.0),
    Job("b", 1, ("a",), 3.0),
    Job("c", 0, ("a",), 1.0),
    Job("d", 0, ("b", "c"), 1.0),
]


def numbers(**values):
    """One for each task. Only the medians count."""
    return {name: Number([value - 0.5, value, value + 1]) for name, value in values.items()}


def test_lanes_work_side_by_side_unless_they_wait_or_share_a_core():
    spans = simulate([FORK], cores=2)
    assert spans == {"a": (0, 2), "b": (2, 5), "c": (2, 3), "d": (5, 6)}
    waits, shared = simulate(one_by_one(FORK), cores=2), simulate([FORK], cores=1)
    assert (length(waits), length(shared), shared["c"]) == (7, 7, (2, 4))


X, Y, Z, LATE = Job("x", 0), Job("y", 0), Job("z", 0), Job("late", 0, ("x",))
SLOW, OTHER = Job("x", 0, cost=2.0), Job("y", 1)


@pytest.mark.parametrize(
    ("groups", "cores", "workers", "ends"),
    [
        # What became ready first runs first, and of these what was pushed first.
        ([[X, LATE, Y, Z]], 4, 1, dict(x=1, y=2, z=3, late=4)),
        # Two workers let a lane do two things, if there are cores for them.
        ([[X, Y, Z]], 4, 2, dict(x=1, y=1, z=2)),
        ([[X, Y, Z]], 1, 2, dict(x=2, y=2, z=3)),
        # Groups come one after the other.
        ([[SLOW], [OTHER]], 2, 1, dict(x=2, y=3)),
    ],
)
def test_when_tasks_end(groups, cores, workers, ends):
    assert {name: end for name, (_, end) in simulate(groups, cores, workers).items()} == pytest.approx(ends)


@pytest.mark.parametrize("groups", [[[Job("a", 0, ("missing",))]], [[Job("a", 0, ("b",))], [Job("b", 0)]]])
def test_a_task_whose_needs_do_not_come_is_named(groups):
    with pytest.raises(ValueError, match="'a' needs"):
        simulate(groups, cores=2)


def test_measured_tasks_keep_everything_but_their_cost():
    done = with_times(FORK[:2], numbers(a=0.5, b=0.25))
    assert done == [Job("a", 0, cost=0.5), Job("b", 1, ("a",), 0.25)]


TASKS = [Job("one", 0), Job("two", 1, ("one",)), Job("three", 0, ("one", "two"))]
FUNCTIONS = {
    "one": lambda: (np.ones((2,)),),
    "two": lambda one: (one[0].copyto(mx.cpu(1)) * 2,),
    "three": lambda one, two: (one[0] + two[0].copyto(mx.cpu(0)), two[0]),
}


def test_results_go_to_those_that_need_them():
    done = task_graph.run_tasks([TASKS], FUNCTIONS)
    found = [[array.asnumpy().tolist() for array in done[name]] for name in ("two", "three")]
    assert found == [[[2, 2]], [[3, 3], [2, 2]]]


def test_there_is_a_wait_between_groups_and_none_at_the_end(monkeypatch):
    happened = []
    monkeypatch.setattr(npx, "waitall", lambda: happened.append("wait"))
    functions = {name: lambda *needs, name=name: happened.append(name) for name in FUNCTIONS}
    task_graph.run_tasks([TASKS[:1], TASKS[1:]], functions)
    assert happened == ["one", "wait", "two", "three"]


def test_every_task_is_timed_alone(monkeypatch):
    """By ``timed``, which waits at both ends."""
    times = iter([0.5, 2.0, 0.25])
    monkeypatch.setattr(task_graph, "timed", lambda push: (push(), next(times))[1])
    assert task_graph.alone(TASKS, FUNCTIONS) == {"one": 0.5, "two": 2.0, "three": 0.25}
