"""The operations are carried out on counters of parts, in orders in which MXNet might run them."""

from __future__ import annotations

import contextlib
import random
from collections import Counter

import pytest

from mxdp.plans.collective.algorithms import ALGORITHMS, plan
from mxdp.plans.collective.operations import IN_PLACE_BYTES, MAX_PARTS, Slot, adds_in_place, operations
from mxdp.plans.collective.schedule import COPY

SIZES = [5, 4, 3]


def arrays(operation, whole_arrays):
    """What MXNet orders by: staging buffers, and whole vectors (or each chunk, if chunks are arrays of their own)."""
    slots = [*operation.sources, operation.target]
    return [slot if slot.buffer or whole_arrays else slot.device for slot in slots]


def engine_orders(todo, whole_arrays, count):
    """Random orders that MXNet allows: a write to an array is not reordered with other uses of this array."""
    used = [arrays(operation, whole_arrays) for operation in todo]

    def conflict(earlier, later):
        return used[earlier][-1] in used[later] or used[later][-1] in used[earlier]

    waits_for = [{earlier for earlier in range(later) if conflict(earlier, later)} for later in range(len(todo))]
    for seed in range(count):
        left, choose = set(range(len(todo))), random.Random(seed)
        order = []
        while left:
            place = choose.choice([place for place in sorted(left) if left.isdisjoint(waits_for[place])])
            left.remove(place)
            order.append(todo[place])
        yield order


def carry_out(schedule, order):
    held = {}

    def at(slot):
        start = Counter({slot.device: 1}) if not slot.buffer else None
        return held.get(slot, start)

    for operation in order:
        held[operation.target] = sum((at(slot) for slot in operation.sources), Counter())
    return [[at(Slot(device, chunk)) for chunk in range(schedule.chunks)] for device in range(schedule.devices)]


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("devices", range(1, 9))
def test_every_device_ends_with_each_part_exactly_once_in_any_order_the_engine_allows(algorithm, devices):
    schedule = plan(algorithm, devices, SIZES)
    todo = operations(schedule)
    for order in (todo, *engine_orders(todo, bool(schedule.sizes), 2 if devices > 5 else 10)):
        held = carry_out(schedule, order)
        assert all(chunk == Counter(range(devices)) for device in held for chunk in device)


@pytest.mark.parametrize("devices", range(1, 9))
def test_in_place_each_device_has_one_job_and_the_jobs_may_run_in_any_order(devices):
    """Only one worker uses each chunk, so only the order within a job matters."""
    schedule = plan("shared-memory", devices, SIZES)
    todo = operations(schedule, in_place=True)
    assert all(not slot.buffer for operation in todo for slot in (*operation.sources, operation.target))
    assert len({(operation.worker, operation.target.chunk) for operation in todo}) == (devices if devices > 1 else 0)
    for seed in range(10):
        workers = [operation.worker for operation in todo]
        random.Random(seed).shuffle(workers)
        jobs = {worker: [operation for operation in todo if operation.worker == worker] for worker in workers}
        held = carry_out(schedule, [jobs[worker].pop(0) for worker in workers])
        assert all(chunk == Counter(range(devices)) for device in held for chunk in device)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("devices", [2, 3, 5, 8])
def test_nothing_is_done_with_empty_chunks_and_the_others_end_as_without_them(algorithm, devices):
    schedule = plan(algorithm, devices, SIZES)
    some = [[chunk == only for chunk in range(schedule.chunks)] for only in range(schedule.chunks)]
    some += [[chunk != empty for chunk in range(schedule.chunks)] for empty in range(schedule.chunks)]
    for filled in some:
        todo = operations(schedule, filled=filled)
        assert all(filled[slot.chunk] for operation in todo for slot in (*operation.sources, operation.target))
        for order in engine_orders(todo, bool(schedule.sizes), 3):
            held = carry_out(schedule, order)
            assert all(chunks[k] == Counter(range(devices)) for chunks in held for k, full in enumerate(filled) if full)
        if sum(filled) != 1:
            assert todo == [operation for operation in operations(schedule) if filled[operation.target.chunk]]


@pytest.mark.parametrize("devices", range(2, 9))
def test_a_vector_of_one_element_is_summed_in_its_place_in_shared_memory(devices):
    schedule = plan("shared-memory", devices, [1])
    *sums, last = operations(schedule, filled=[start < stop for start, stop in schedule.borders(1)])
    assert not any(slot.buffer for operation in [*sums, last] for slot in (*operation.sources, operation.target))
    assert len(sums) + 1 == -(-(devices - 1) // (MAX_PARTS - 1)) + devices - 1
    assert len({operation.worker for operation in [*sums, last]}) == 1


def test_only_large_sums_out_of_shared_memory_are_in_place():
    assert adds_in_place(plan("shared-memory", 2), IN_PLACE_BYTES)
    assert not adds_in_place(plan("shared-memory", 2), IN_PLACE_BYTES - 1)
    assert not adds_in_place(plan("direct", 2), IN_PLACE_BYTES)


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_an_operation_that_is_left_out_is_found(algorithm):
    schedule = plan(algorithm, 3, SIZES)
    todo = operations(schedule)
    complete = [[Counter(range(3))] * schedule.chunks] * 3
    for left_out in range(len(todo)):
        with contextlib.suppress(TypeError):  # an empty buffer was read
            assert carry_out(schedule, todo[:left_out] + todo[left_out + 1 :]) != complete


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
@pytest.mark.parametrize("devices", [2, 3, 8])
def test_sums_are_made_where_they_are_needed_of_at_most_four_parts(algorithm, devices):
    for operation in operations(plan(algorithm, devices, SIZES)):
        assert len(operation.sources) == 1 if operation.action == COPY else 2 <= len(operation.sources) <= MAX_PARTS
        if operation.action != COPY:
            assert operation.sources[0].device == operation.target.device
            # MXNet's in-place sum is right and fast only if the first part is overwritten.
            assert operation.target not in operation.sources[1:]


def test_only_what_is_read_in_place_is_summed_across_devices():
    for algorithm in ALGORITHMS:
        across = [
            operation
            for operation in operations(plan(algorithm, 4, SIZES))
            if operation.action != COPY and any(slot.device != operation.target.device for slot in operation.sources)
        ]
        assert bool(across) == (algorithm == "shared-memory")


def test_a_ring_forwards_from_staging_buffers_so_that_no_send_waits_for_another():
    """In the second half, a chunk that is sent on neither reads nor writes a vector that another one writes."""
    forwarded = [
        operation for operation in operations(plan("ring", 4)) if operation.action == COPY and operation.target.buffer
    ]
    assert len(forwarded) == 3 * 4 + 2 * 4
