from __future__ import annotations

import pytest

from mxdp.experiments.automatic_parallelism import task_graph
from mxdp.plans.cost.simulate import Job, simulate


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
