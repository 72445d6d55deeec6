"""The plans are run on letters here: what each device holds is written down, step by step."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from mxdp.plans.schedules import ADD, COPY, Schedule, Send, doubling, naive, ring

PLANS = [doubling, naive, ring]


def play(schedule):
    """``held[device][chunk]``: how often each device's part is in the sum there. Sends of a step happen at once."""
    held = [[Counter({device: 1}) for _ in range(schedule.chunks)] for device in range(schedule.devices)]
    for step in schedule.steps:
        sent = [(send, held[send.source][send.chunk].copy()) for send in step]
        for send, parts in sent:
            held[send.target][send.chunk] = held[send.target][send.chunk] + parts if send.action == ADD else parts
    return held


def is_allreduce(schedule):
    complete = Counter(range(schedule.devices))
    return all(chunk == complete for device in play(schedule) for chunk in device)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("devices", range(1, 9))
def test_every_device_ends_with_each_part_exactly_once(plan, devices):
    assert is_allreduce(plan(devices))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("devices", range(2, 5))
def test_no_step_can_be_left_out(plan, devices):
    schedule = plan(devices)
    for left_out in range(len(schedule.steps)):
        steps = schedule.steps[:left_out] + schedule.steps[left_out + 1 :]
        assert not is_allreduce(replace(schedule, steps=steps))


@pytest.mark.parametrize("devices", range(2, 5))
def test_a_chunk_off_by_one_is_found(devices):
    schedule = ring(devices)
    first, *others = schedule.steps[0]
    wrong = replace(first, chunk=(first.chunk + 1) % devices)
    assert not is_allreduce(replace(schedule, steps=((wrong, *others), *schedule.steps[1:])))


@pytest.mark.parametrize("devices", range(2, 9))
def test_ring_sends_what_the_docstring_says(devices):
    schedule = ring(devices)
    assert len(schedule.steps) == 2 * (devices - 1)
    for step in schedule.steps:
        assert [send.source for send in step] == list(range(devices))
        assert all(send.target == (send.source + 1) % devices for send in step)
        assert sorted(send.chunk for send in step) == list(range(devices))
    assert [{send.action for send in step} for step in schedule.steps] == [{ADD}] * (devices - 1) + [{COPY}] * (
        devices - 1
    )


def test_the_drawn_ring_of_three():
    rows = []
    letters = "abc"
    for step in ring(3).steps:
        rows.append("   ".join(f"{send.source} -{letters[send.chunk]}-> {send.target}" for send in step))
    drawing = __import__("mxdp.plans.schedules", fromlist=["x"]).__doc__
    assert all(row in drawing for row in rows)
    assert rows[0] == "0 -a-> 1   1 -b-> 2   2 -c-> 0"


@pytest.mark.parametrize(("devices", "steps"), [(1, 0), (2, 1), (3, 3), (4, 2), (5, 4), (8, 3)])
def test_doubling_takes_as_many_steps_as_the_docstring_says(devices, steps):
    assert len(doubling(devices).steps) == steps


@pytest.mark.parametrize("devices", [2, 4, 8])
def test_doubling_adds_the_same_two_numbers_on_both_partners(devices):
    """So that all devices end with the same bits: sums are compared with their order here."""
    held = [frozenset([device]) for device in range(devices)]
    for step in doubling(devices).steps:
        sent = [(send.target, held[send.source]) for send in step]
        held = list(held)
        for target, parts in sent:
            held[target] = frozenset([held[target], parts])
    assert len(set(held)) == 1


def test_naive_goes_through_device_zero():
    assert all(0 in (send.source, send.target) for step in naive(5).steps for send in step)


def test_one_device_has_nothing_to_do():
    assert doubling(1).steps == naive(1).steps == ring(1).steps == ()


@pytest.mark.parametrize("plan", PLANS)
def test_no_devices(plan):
    with pytest.raises(ValueError, match="at least one device, not 0"):
        plan(0)


def test_it_prints_as_a_table_for_a_slide():
    schedule = Schedule("tiny", 2, 1, ((Send(1, 0, 0, ADD),), (Send(0, 1, 0, COPY),)))
    assert str(schedule) == "tiny: 2 devices, 1 chunks, 2 steps\nstep 1: 1 +> 0 chunk 0\nstep 2: 0 -> 1 chunk 0"
