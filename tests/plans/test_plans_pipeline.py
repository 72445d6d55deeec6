from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.pipeline import (
    FORWARD,
    PIPELINES,
    bubble,
    cycles,
    gpipe,
    inference,
    kept,
    needs,
    one_f_one_b,
    order,
    pipeline,
)

sizes = dict(stages=st.integers(1, 8), micro_batches=st.integers(1, 12))


@given(schedule=st.sampled_from(sorted(PIPELINES)), **sizes)
def test_every_stage_does_every_pass_once_and_idles_as_the_formula_says(schedule, stages, micro_batches):
    plan = pipeline(schedule, stages, micro_batches)
    assert {plan: 1}[pipeline(schedule, stages, micro_batches)]  # nobody changes it
    assert (plan.name, plan.stages, plan.micro_batches) == (schedule, stages, micro_batches)
    everything = sorted(f"{kind}{number}" for kind in "FB" for number in range(micro_batches))
    assert all(sorted(map(str, tasks)) == everything for tasks in plan.tasks)
    rows = cycles(plan)
    empty = sum(task is None for row in rows for task in row)
    assert len(rows) == 2 * (micro_batches + stages - 1)
    assert empty / (len(rows) * stages) == pytest.approx(bubble(stages, micro_batches))


def broken_dependencies(plan):
    """Tasks that come before a task that they need, in the staircase or in the order of pushes."""
    cycle = {(stage, task): number for number, row in enumerate(cycles(plan)) for stage, task in enumerate(row) if task}
    pushed = {place: number for number, place in enumerate(order(plan))}
    broken = []
    for stage, tasks in enumerate(plan.tasks):
        for before, task in zip((None, *tasks), tasks):
            needed = needs(plan, stage, task) + ([(stage, before)] if before else [])
            broken += [(stage, task) for need in needed for at in (cycle, pushed) if not at[need] < at[stage, task]]
    return broken


@settings(max_examples=40)
@given(**sizes)
def test_every_dependency_is_kept(stages, micro_batches):
    for plan in (gpipe(stages, micro_batches), one_f_one_b(stages, micro_batches), inference(stages, micro_batches)):
        assert broken_dependencies(plan) == []
        assert len(order(plan)) == sum(map(len, plan.tasks)) == len(set(order(plan)))


def most_alive(plan):
    """As ``kept``, but counted in the staircase: micro-batches that are between F and B at the end of a cycle."""
    alive, most = [set() for _ in range(plan.stages)], [0] * plan.stages
    for row in cycles(plan):
        for stage, task in enumerate(row):
            if task:
                (alive[stage].add if task.kind == FORWARD else alive[stage].remove)(task.micro_batch)
            most[stage] = max(most[stage], len(alive[stage]))
    return most


@given(**sizes)
def test_1f1b_keeps_no_more_than_it_says_and_gpipe_keeps_all(stages, micro_batches):
    one, all_ = one_f_one_b(stages, micro_batches), gpipe(stages, micro_batches)
    assert kept(one) == most_alive(one) == [min(micro_batches, stages - stage) for stage in range(stages)]
    assert kept(all_) == most_alive(all_) == [micro_batches] * stages


def test_a_plan_that_waits_for_itself_is_found_out():
    plan = gpipe(2, 2)
    first, second = plan.tasks
    with pytest.raises(ValueError, match="gpipe never ends: after cycle 0 every stage waits for another"):
        cycles(replace(plan, tasks=(first[::-1], second)))


@pytest.mark.parametrize("make", [gpipe, one_f_one_b, inference])
def test_there_is_no_pipeline_of_nothing_and_none_of_an_unknown_name(make):
    for stages, micro_batches in ((0, 1), (1, 0), (-1, 2)):
        with pytest.raises(ValueError, match=f"not {stages} stages and {micro_batches} micro-batches"):
            make(stages, micro_batches)
    with pytest.raises(
        ValueError, match="no schedule is called 'gpip'; did you mean 'gpipe'\\? There are: 1f1b, gpipe"
    ):
        pipeline("gpip", 2, 2)
