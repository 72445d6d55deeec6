"""The operations are carried out on counters of parts, in orders in which MXNet might run them."""

from __future__ import annotations

import contextlib
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.operations import MAX_PARTS, Slot, operations
from mxdp.plans.collective.schedule import COPY

SIZES = [5, 4, 3]
each_algorithm = pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))


def an_order(todo, whole_arrays, draw):
    """An order that MXNet allows: a write to an array is not reordered with other uses of this array. Arrays are
    staging buffers, and whole vectors (or each chunk, if chunks are arrays of their own)."""
    used = [
        [slot if slot.buffer or whole_arrays else slot.device for slot in (*operation.sources, operation.target)]
        for operation in todo
    ]
    waits_for = [
        {earlier for earlier in range(later) if used[earlier][-1] in used[later] or used[later][-1] in used[earlier]}
        for later in range(len(todo))
    ]
    left = set(range(len(todo)))
    order = []
    while left:
        place = draw.choice([place for place in sorted(left) if left.isdisjoint(waits_for[place])])
        left.remove(place)
        order.append(todo[place])
    return order


def carry_out(schedule, order):
    held = {}

    def at(slot):
        start = Counter({slot.device: 1}) if not slot.buffer else None
        return held.get(slot, start)

    for operation in order:
        held[operation.target] = sum((at(slot) for slot in operation.sources), Counter())
    return [[at(Slot(device, chunk)) for chunk in range(schedule.chunks)] for device in range(schedule.devices)]


@each_algorithm
@settings(max_examples=25)
@given(devices=st.integers(1, 8), data=st.data(), draw=st.randoms(use_true_random=False))
def test_chunks_with_elements_end_as_sums_of_all_in_any_order_the_engine_allows(algorithm, devices, data, draw):
    """And nothing is done with those that have none."""
    schedule = plan(algorithm, devices, SIZES)
    filled = data.draw(st.lists(st.booleans(), min_size=schedule.chunks, max_size=schedule.chunks))
    todo = operations(schedule, filled=filled)
    if all(filled):
        assert sum(filled) == 1 or todo == operations(schedule)
    for order in (todo, an_order(todo, bool(schedule.sizes), draw)):
        held = carry_out(schedule, order)
        for number, full in enumerate(filled):
            expected = [Counter(range(devices))] * devices if full else [Counter([device]) for device in range(devices)]
            assert [chunks[number] for chunks in held] == expected
    if todo and sum(filled) > 1:
        left_out = data.draw(st.integers(0, len(todo) - 1))
        with contextlib.suppress(TypeError):  # an empty buffer was read
            assert carry_out(schedule, todo[:left_out] + todo[left_out + 1 :]) != held
    for operation in todo:
        if operation.action == COPY:
            assert len(operation.sources) == 1
            continue
        assert 2 <= len(operation.sources) <= MAX_PARTS
        # MXNet's in-place sum is right and fast only if the first part is overwritten.
        assert operation.sources[0].device == operation.target.device
        assert operation.target not in operation.sources[1:]
        # Only what is read in place is summed across devices.
        across = any(slot.device != operation.target.device for slot in operation.sources)
        assert across == (algorithm == "shared-memory")


@given(devices=st.integers(1, 9), draw=st.randoms(use_true_random=False))
def test_in_place_each_device_has_one_job_and_the_jobs_may_run_in_any_order(devices, draw):
    """Only one worker uses each chunk, so only the order within a job matters."""
    schedule = plan("shared-memory", devices, SIZES)
    todo = operations(schedule, in_place=True)
    assert all(not slot.buffer for operation in todo for slot in (*operation.sources, operation.target))
    workers = [operation.worker for operation in todo]
    assert len({(operation.worker, operation.target.chunk) for operation in todo}) == len(set(workers))
    draw.shuffle(workers)
    jobs = {worker: [operation for operation in todo if operation.worker == worker] for worker in workers}
    held = carry_out(schedule, [jobs[worker].pop(0) for worker in workers])
    assert all(chunk == Counter(range(devices)) for device in held for chunk in device)
