from __future__ import annotations

import pytest

from mxdp.plans.cost.simulate import Job, simulate

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
