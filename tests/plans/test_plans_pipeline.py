from __future__ import annotations

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.pipeline import FORWARD, PIPELINES, bubble, cycles, gpipe, inference, kept, needs, one_f_one_b, order
from mxdp.plans.pipeline import pipeline as planned

sizes = dict(stages=st.integers(1, 8), micro_batches=st.integers(1, 12))


@given(schedule=st.sampled_from(sorted(PIPELINES)), **sizes)
def test_every_stage_does_every_pass_once_and_idles_as_the_formula_says(schedule, stages, micro_batches):
    plan = planned(schedule, stages, micro_batches)
    assert (plan.name, plan.stages, plan.micro_batches) == (schedule, stages, micro_batches)
    everything = sorted(f"{kind}{number}" for kind in "FB" for number in range(micro_batches))
    assert all(sorted(map(str, tasks)) == everything for tasks in plan.tasks)
    rows = cycles(plan)
    empty = sum(task is None for row in rows for task in row)
    assert len(rows) == 2 * (micro_batches + stages - 1)
    assert empty / (len(rows) * stages) == pytest.approx(bubble(stages, micro_batches))


@settings(max_examples=40)
@given(make=st.sampled_from([gpipe, one_f_one_b, inference]), **sizes)
def test_every_dependency_is_kept_in_the_staircase_and_in_the_order_of_pushes(make, stages, micro_batches):
    plan = make(stages, micro_batches)
    cycle = {(stage, task): number for number, row in enumerate(cycles(plan)) for stage, task in enumerate(row) if task}
    pushed = {place: number for number, place in enumerate(order(plan))}
    assert len(order(plan)) == len(pushed) == sum(map(len, plan.tasks))
    for stage, tasks in enumerate(plan.tasks):
        for before, task in zip((None, *tasks), tasks):
            for need in needs(plan, stage, task) + ([(stage, before)] if before else []):
                assert cycle[need] < cycle[stage, task]
                assert pushed[need] < pushed[stage, task]


@given(**sizes)
def test_1f1b_keeps_no_more_than_it_says_and_gpipe_keeps_all(stages, micro_batches):
    """Micro-batches that are between F and B at the end of a cycle are counted in the staircase."""
    for plan, says in (
        (one_f_one_b(stages, micro_batches), [min(micro_batches, stages - stage) for stage in range(stages)]),
        (gpipe(stages, micro_batches), [micro_batches] * stages),
    ):
        for stage, column in enumerate(zip(*cycles(plan))):
            alive = accumulate({FORWARD: 1}.get(task.kind, -1) for task in column if task)
            assert kept(plan)[stage] == max(alive) == says[stage]


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
    with pytest.raises(ValueError, match="called 'gpip'; did you mean 'gpipe'\\? There are: 1f1b, gpipe"):
        planned("gpip", 2, 2)
