"""Times that can be worked out by hand: a copy or a sum of a byte takes one second, and starting takes nothing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.cost import simulate as simulation
from mxdp.plans.cost.machine import Machine, Rate
from mxdp.plans.cost.simulate import Job, simulate

predict = partial(simulation.predict, itemsize=1)
UNIT = Rate(0.0, ((1.0, 1.0),), ((1.0, 1.0),))
MANY = Machine(push=0.0, copy=UNIT, add=UNIT, add_more=0.0, cores=64)


@pytest.mark.parametrize(
    ("algorithm", "devices", "seconds"),
    [
        # Two vectors of 12: in, add, out.
        ("naive", 2, 12 + 12 + 12),
        ("doubling", 2, 12 + 12),
        # Six in, six added on each; then one after the other, since each writes the vector the other reads.
        ("direct", 2, 6 + 6 + 6 + 6),
        # The copies from three senders run side by side; device 0 makes all copies from itself.
        ("naive", 4, 12 + 12 + 3 * 12),
        ("sharded", 4, 12 + 12 + 3 * 12),
        # In, add, in, add, out, out. The second arrival uses the staging buffer of the first, once that is added.
        ("tree", 3, 12 + 12 + 12 + 12 + 12 + 12),
        ("tree", 4, 12 + 12 + 12 + 12 + 12 + 12),
        # Read and add six from the other's memory, then copy the sum into both places.
        ("shared-memory", 2, 6 + 6 + 6),
    ],
)
def test_by_hand(algorithm, devices, seconds):
    assert predict(plan(algorithm, devices, [12]), 12, MANY) == pytest.approx(seconds)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("devices", [2, 3, 4])
def test_on_one_core_it_is_the_sum_of_all_work(algorithm, devices):
    from mxdp.plans.collective.operations import operations

    schedule = plan(algorithm, devices, [24])
    chunk = 24 / schedule.chunks
    assert predict(schedule, 24, replace(MANY, cores=1)) == pytest.approx(len(operations(schedule)) * chunk)


@pytest.mark.parametrize(
    ("push", "seconds"),
    [
        (5, 5 + 12 + 12 + 12),  # copy, add and copy are pushed at 5, 10 and 15, before they can begin
        (20, 3 * 20 + 12),  # ... at 20, 40 and 60
    ],
)
def test_nothing_begins_before_it_is_pushed(push, seconds):
    assert predict(plan("naive", 2), 12, replace(MANY, push=push)) == pytest.approx(seconds)


def test_the_footprint_counts_each_array_once():
    """Two vectors of 12 bytes and a staging buffer: 36. There a byte takes 1 s, and longer with any other footprint."""
    rate = Rate(0.0, ((35.0, 9.0), (36.0, 1.0), (37.0, 9.0)), ((35.0, 9.0), (36.0, 1.0), (37.0, 9.0)))
    assert predict(plan("naive", 2), 12, replace(MANY, copy=rate, add=rate)) == pytest.approx(36)


def test_together_is_slower_than_alone_only_while_two_run():
    shared = replace(MANY, copy=Rate(0.0, ((1.0, 1.0),), ((1.0, 2.0),)))
    assert predict(plan("naive", 2), 12, shared) == pytest.approx(36)
    assert predict(plan("doubling", 2), 12, shared) == pytest.approx(24 + 12)


def test_every_operation_pays_one_start():
    slow_start = Rate(1.0, ((1.0, 0.0),), ((1.0, 0.0),))
    assert predict(plan("doubling", 4), 8, replace(MANY, copy=slow_start, add=slow_start)) == pytest.approx(4)


def test_more_parts_cost_more():
    assert predict(plan("naive", 3), 10, replace(MANY, add_more=0.5)) == pytest.approx(10 + 15 + 20)


def test_a_vector_of_fewer_numbers_than_chunks_leaves_chunks_empty():
    """One number of four bytes: device 0 adds it in its place, and writes it to the three others."""
    assert simulation.predict(plan("shared-memory", 4), 4, MANY) == pytest.approx(4 + 3 * 4)


def test_nothing_takes_no_time():
    assert predict(plan("ring", 4), 0, MANY) == 0
    assert predict(plan("ring", 1), 100, MANY) == 0


def test_the_curve_is_read_between_its_points_and_held_beyond_them():
    rate = Rate(0.0, ((1e3, 1.0), (1e5, 3.0)), ((1e3, 5.0),))
    assert [rate.seconds(1, footprint, False) for footprint in (1, 1e3, 1e4, 1e5, 1e9)] == [1, 1, 2, 3, 3]
    assert rate.seconds(1, 1e4, True) == 5


def test_python_takes_its_share_of_the_cores():
    """One core. Python pushes a until 1, and then b, for 2 seconds beside a."""
    spans = simulate([[Job("a", 0, cost=2), Job("b", 0, cost=2)]], 1, push=1)
    assert [end for _, end in spans.values()] == pytest.approx([4, 6])


@pytest.mark.parametrize(("cores", "end"), [(1, 2), (2, 3)])
def test_on_one_core_no_two_jobs_use_the_memory_at_the_same_time(cores, end):
    spans = simulate([[Job(lane, lane, cost=1, together=3) for lane in (0, 1)]], cores)
    assert spans == {0: (0, end), 1: (0, end)}


def test_a_job_may_cost_nothing():
    assert simulate([[Job("a", 0, cost=0.0), Job("b", 1, ("a",))]], 1) == {"a": (0, 0), "b": (0, 1)}
