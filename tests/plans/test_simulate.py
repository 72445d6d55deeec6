"""Times that can be worked out by hand (a copy or a sum of a byte takes one second, and starting takes nothing), and
drawn jobs. What holds for every pipeline."""

from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import Machine, Rate
from mxdp.plans.cost.simulate import Job, last_end, pipeline_spans, predict, simulate
from mxdp.plans.pipeline import FORWARD, PIPELINES, bubble, cycles, gpipe, inference, kept, needs, one_f_one_b, order
from mxdp.plans.pipeline import pipeline as made

UNIT = Rate(0.0, ((1.0, 1.0),), ((1.0, 1.0),))
MANY = Machine(push=0.0, copy=UNIT, add=UNIT, add_more=0.0, cores=64)


@st.composite
def groups(draw):
    """Up to nine jobs on three lanes in two groups; each needs some of those before it."""
    jobs = []
    for number in range(draw(st.integers(1, 9))):
        needs = draw(st.sets(st.integers(0, number - 1), max_size=3)) if number else ()
        together = draw(st.none() | st.integers(1, 9))
        jobs.append(Job(number, draw(st.integers(0, 2)), tuple(needs), draw(st.integers(1, 9)), together))
    cut = draw(st.integers(0, len(jobs)))
    return [jobs[:cut], jobs[cut:]]


@given(groups=groups(), cores=st.integers(1, 4), workers=st.integers(1, 2), push=st.sampled_from([0.0, 0.5, 3.0]))
def test_jobs_run_after_what_they_need_as_many_as_have_cores(groups, cores, workers, push):
    """What moments cost is in predictions.json."""
    spans = simulate(groups, cores, workers, push)
    ends = [end for _, end in spans.values()]
    assert ends == sorted(ends)
    assert last_end(spans) == max(ends)
    begin = 0.0
    for group in groups:
        for number, job in enumerate(group):
            start, end = spans[job.name]
            assert start >= max([begin + (number + 1) * push, *(spans[need][1] for need in job.needs)]) - 1e-6
            assert end - start >= min(job.cost, job.together or job.cost) - 1e-6
            lane = [other for other in group if other.lane == job.lane]
            assert sum(spans[other.name][0] <= start < spans[other.name][1] - 1e-6 for other in lane) <= workers
        begin = max([begin, *(spans[job.name][1] for job in group)])
    jobs = [job for group in groups for job in group]
    least = sum(min(job.cost, job.together or job.cost) for job in jobs) / cores
    most = sum(max(job.cost, job.together or job.cost) + push for job in jobs)
    assert least - 1e-6 <= last_end(spans) <= most + 1e-6


def test_a_job_that_costs_nothing_and_one_that_needs_what_never_ends():
    assert simulate([[Job("a", 0, cost=0.0), Job("b", 1, ("a",))]], 1) == {"a": (0, 0), "b": (0, 1)}
    with pytest.raises(ValueError, match="'a' needs b, c: not all of them end before it"):
        simulate([[Job("c", 0), Job("a", 0, ("b", "c"))], [Job("b", 0)]], 1)


def test_what_is_in_no_prediction():
    assert predict(plan("ring", 4), 0, MANY) == 0
    # Two numbers, of which each device adds one; and one, which device 0 adds, in its place.
    assert predict(plan("direct", 2), 5, MANY) == pytest.approx(4 * 2.5)
    assert predict(plan("shared-memory", 4), 4, MANY) == pytest.approx(4 + 3 * 4)
    # Two arrays, which wait less for one another than two chunks of one.
    assert predict(plan("sharded", 2, [1, 1]), 8, MANY) == pytest.approx(4 + 4 + 4)


@given(schedule=st.sampled_from(sorted(PIPELINES)), stages=st.integers(1, 6), micro_batches=st.integers(1, 7))
def test_equal_tasks_make_the_staircase(schedule, stages, micro_batches):
    plan = made(schedule, stages, micro_batches)
    spans = pipeline_spans(plan, [1] * stages, [1] * stages)
    expected = {
        (stage, task): number for number, row in enumerate(cycles(plan)) for stage, task in enumerate(row) if task
    }
    assert {place: start for place, (start, _) in spans.items()} == pytest.approx(expected)
    assert all(stop - start == pytest.approx(1) for start, stop in spans.values())


def test_python_pushes_one_task_after_another():
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


sizes = dict(stages=st.integers(1, 8), micro_batches=st.integers(1, 12))


@given(schedule=st.sampled_from(sorted(PIPELINES)), **sizes)
def test_every_stage_does_every_pass_once_and_idles_as_the_formula_says(schedule, stages, micro_batches):
    plan = made(schedule, stages, micro_batches)
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
    for each, says in (
        (one_f_one_b(stages, micro_batches), [min(micro_batches, stages - stage) for stage in range(stages)]),
        (gpipe(stages, micro_batches), [micro_batches] * stages),
    ):
        for stage, column in enumerate(zip(*cycles(each))):
            alive = accumulate({FORWARD: 1}.get(task.kind, -1) for task in column if task)
            assert kept(each)[stage] == max(alive) == says[stage]


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
        made("gpip", 2, 2)
