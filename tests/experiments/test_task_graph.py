from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism.task_graph import (
    GraphTask,
    from_ends,
    length,
    measured,
    one_by_one,
    side_by_side,
)
from mxdp.plans.cost.simulate import simulate

FORK = [
    GraphTask("a", 0, cost=2.0),
    GraphTask("b", 1, ("a",), 3.0),
    GraphTask("c", 0, ("a",), 1.0),
    GraphTask("d", 0, ("b", "c"), 1.0),
]


def test_two_lanes_work_side_by_side():
    assert simulate([FORK], cores=2) == {"a": (0, 2), "b": (2, 5), "c": (2, 3), "d": (5, 6)}


def test_with_a_wait_after_each_nothing_does():
    spans = simulate(one_by_one(FORK), cores=2)
    assert length(spans) == 7
    assert side_by_side(FORK, spans) == 0


def test_one_core_is_shared():
    spans = simulate([FORK], cores=1)
    assert spans["c"] == (2, 4)
    assert length(spans) == 7


def test_what_became_ready_first_runs_first_and_of_these_what_was_pushed_first():
    tasks = [GraphTask("x", 0), GraphTask("late", 0, ("x",)), GraphTask("y", 0), GraphTask("z", 0)]
    order = sorted(simulate([tasks], cores=4).items(), key=lambda item: item[1])
    assert [name for name, _ in order] == ["x", "y", "z", "late"]


def test_two_workers_let_a_lane_do_two_things():
    tasks = [GraphTask("x", 0), GraphTask("y", 0), GraphTask("z", 0)]
    assert length(simulate([tasks], cores=4, workers=2)) == 2
    assert length(simulate([tasks], cores=1, workers=2)) == pytest.approx(3)


def test_groups_come_one_after_the_other():
    x, y = GraphTask("x", 0, cost=2.0), GraphTask("y", 1, cost=1.0)
    assert simulate([[x], [y]], cores=2)["y"] == (2, 3)


@pytest.mark.parametrize(
    "groups", [[[GraphTask("a", 0, ("missing",))]], [[GraphTask("a", 0, ("b",))], [GraphTask("b", 0)]]]
)
def test_a_task_whose_needs_do_not_come_is_named(groups):
    with pytest.raises(ValueError, match="'a' needs"):
        simulate(groups, cores=2)


def test_spans_follow_from_the_ends_and_the_simulation_agrees():
    spans = simulate([FORK], cores=2)
    assert from_ends(FORK, {name: end for name, (_, end) in spans.items()}) == spans


def test_an_end_that_was_noted_late_is_put_right_by_those_that_needed_it():
    ends = {"a": 2.9, "b": 5.0, "c": 2.5, "d": 6.0}
    assert from_ends(FORK, ends) == {"a": (0, 2.5), "c": (2.5, 2.5), "b": (2.5, 5.0), "d": (5.0, 6.0)}


def test_a_lane_without_work_waits():
    tasks = [GraphTask("a", 0), GraphTask("b", 1, ("a",))]
    assert from_ends(tasks, {"a": 1.0, "b": 3.0}) == {"a": (0, 1), "b": (1, 3)}


def test_side_by_side_is_a_share_of_the_time():
    spans = simulate([FORK], cores=2)
    assert side_by_side(FORK, spans) == pytest.approx(1 / 6)
    assert side_by_side(FORK[:1], {"a": (1.0, 2.0)}) == 0


def test_measured_tasks_keep_everything_but_their_cost():
    done = measured(FORK[:2], {"a": 0.5, "b": 0.25})
    assert done == [GraphTask("a", 0, cost=0.5), GraphTask("b", 1, ("a",), 0.25)]
