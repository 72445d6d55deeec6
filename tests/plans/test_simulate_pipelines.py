from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.pipeline import PIPELINES, cycles, gpipe, inference, pipeline


@given(schedule=st.sampled_from(sorted(PIPELINES)), stages=st.integers(1, 6), micro_batches=st.integers(1, 7))
def test_equal_tasks_make_the_staircase(schedule, stages, micro_batches):
    plan = pipeline(schedule, stages, micro_batches)
    spans = pipeline_spans(plan, [1] * stages, [1] * stages)
    expected = {
        (stage, task): number for number, row in enumerate(cycles(plan)) for stage, task in enumerate(row) if task
    }
    assert {place: start for place, (start, _) in spans.items()} == pytest.approx(expected)
    assert all(stop - start == pytest.approx(1) for start, stop in spans.values())


def test_messages_cost_their_sender():
    # Forward once (1 + 0.5), then 2 behind it; back 1 + 0.5, then 1.
    spans = pipeline_spans(gpipe(2, 1), [1, 2], [1, 1], [0.5])
    assert [stop for _, stop in spans.values()] == pytest.approx([1.5, 3.5, 5, 6])


def test_python_pushes_one_task_after_another():
    assert last_end(pipeline_spans(gpipe(1, 1), [1], [1], push=2)) == pytest.approx(5)
    # Later tasks are pushed before they are needed, and Python has a core of its own.
    assert last_end(pipeline_spans(gpipe(1, 2), [9], [9], push=2)) == pytest.approx(2 + 4 * 9)
    assert last_end(pipeline_spans(gpipe(1, 2), [9], [9], push=2, cores=1)) == pytest.approx(4 * 2 + 4 * 9)


@pytest.mark.parametrize(
    ("plan", "times", "problem"),
    [
        (gpipe(2, 1), ([1], [1, 1]), "got 1 forward and 2 backward"),
        (gpipe(2, 1), ([1, 1],), "got 2 forward and 0 backward"),
        (inference(2, 1), ([1, 1], [1, 1]), "got 2 forward and 2 backward"),
        (gpipe(3, 1), ([1] * 3, [1] * 3, [1]), "3 stages have 2 borders between them, not 1"),
    ],
)
def test_missing_times_are_named(plan, times, problem):
    with pytest.raises(ValueError, match=problem):
        pipeline_spans(plan, *times)
