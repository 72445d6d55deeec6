"""What holds for every all-reduce, and for rings, trees and plans of one hop, carried out on the numbers of the
devices; what devices hold after each step."""

import contextlib
from collections import Counter
from functools import partial
from itertools import product
from math import ceil, log2

import pytest
from drawn import check_drawing
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.__main__ import PARTS
from mxdp.plans.collective import rings
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, check_algorithm, plan
from mxdp.plans.collective.one_hop import direct, loads, naive, server, shared_memory
from mxdp.plans.collective.operations import MAX_PARTS, Slot, operations
from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send
from mxdp.plans.collective.trees import broadcast, doubling, tree
from mxdp.plans.show.contents import contents, written

SIZES = (5, 4, 3, 3, 1)
NAMES = sorted(ALGORITHMS)
names = st.sampled_from(NAMES)


@given(name=names, devices=st.integers(1, 11), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_every_device_ends_with_each_part_exactly_once(name, devices, sizes):
    schedule = plan(name, devices, sizes)
    assert (schedule.name, schedule.devices) == (name, devices)
    assert set(contents(schedule)[-1].values()) == {tuple(range(devices))}


def test_an_unknown_name_gets_the_nearest_name_and_all_names():
    with pytest.raises(ValueError, match=f"no plan is called 'rign'; did you mean 'ring'.*{', '.join(NAMES)}"):
        plan("rign", 2)
    check_algorithm(AUTO, also=[AUTO])
    with pytest.raises(ValueError, match=r"did you mean 'auto'.* auto, bidirectional-ring"):
        check_algorithm("atuo", also=[AUTO])
    with pytest.raises(ValueError, match="called 'auto'"):
        check_algorithm(AUTO)


@pytest.mark.parametrize("planner", [*(partial(plan, name, sizes=SIZES) for name in NAMES), *PARTS.values()])
def test_one_device_has_nothing_to_do_and_none_is_refused(planner):
    assert planner(devices=1).steps == ()
    for devices in (0, -1):
        with pytest.raises(ValueError, match=f"^a collective needs at least one device, not {devices}$"):
            planner(devices=devices)


@given(devices=st.integers(1, 17), source=st.integers(-2, 17))
def test_broadcast_reaches_all_from_each_source(devices, source):
    if source not in range(devices):
        with pytest.raises(ValueError, match=f"^there is no device {source} among {devices}: source is 0 to"):
            broadcast(devices, source)
        return
    schedule = broadcast(devices, source)
    assert contents(schedule)[-1] == {(device, 0): (source,) for device in range(devices)}
    assert len(schedule.steps) == ceil(log2(devices))
    assert sum(schedule.sent(1)) == devices - 1
    assert {send.action for step in schedule.steps for send in step} <= {COPY}


@given(devices=st.integers(1, 20))
def test_doubling_costs_what_the_docstring_says_and_adds_the_same_two_numbers_on_both_partners(devices):
    """All devices must end with the same bits, so sums are compared including their order."""
    core = 1 << int(log2(devices))
    steps = doubling(devices).steps
    assert len(steps) == log2(core) + 2 * (devices > core)
    assert sum(doubling(devices).sent(1)) == core * log2(core) + 2 * (devices - core)
    held = [frozenset([device]) for device in range(devices)]
    for step in steps:
        sent = [(send, held[send.source]) for send in step]
        for send, parts in sent:
            held[send.target] = frozenset([held[send.target], parts]) if send.action == ADD else parts
    assert len(set(held)) == 1


@pytest.mark.parametrize(
    ("planner", "devices"), [(naive, 3), (direct, 3), (tree, 4), (doubling, 4), (server, 4), (shared_memory, 2)]
)
def test_the_drawing_is_the_plan(planner, devices):
    check_drawing(planner.__doc__, planner(devices))


@given(devices=st.integers(2, 11))
def test_each_chunk_is_added_up_on_the_device_of_its_number_and_all_send_to_different_ones(devices):
    """The sends of a step form groups in which every device sends once and receives once."""
    complete = tuple(range(devices))
    for schedule in (direct(devices), shared_memory(devices)):
        held = contents(schedule)[1]
        assert [place for place, parts in held.items() if parts == complete] == list(zip(complete, complete))
        for step in schedule.steps:
            for start in range(0, len(step), devices):
                turn = step[start : start + devices]
                assert sorted(send.source for send in turn) == sorted(send.target for send in turn) == [*complete]


@settings(max_examples=50)
@given(sizes=st.lists(st.integers(0, 20), max_size=6), devices=st.integers(1, 3))
def test_owners_are_as_good_as_graham_says(sizes, devices):
    """The largest load is at most 4/3 - 1/(3n) of that of the best assignment."""
    best = min(
        max(sum(size for size, owner in zip(sizes, way) if owner == device) for device in range(devices))
        for way in product(range(devices), repeat=len(sizes))
    )
    assert 3 * devices * max(loads(devices, sizes), default=0) <= (4 * devices - 1) * best
    assert sum(loads(devices, sizes)) == sum(sizes)


@given(devices=st.integers(0, 9))
def test_a_server_adds_up_the_others_parts_and_none_of_its_own(devices):
    if devices < 2:
        with pytest.raises(ValueError, match=f"a server needs at least one other device: two in all, not {devices}"):
            server(devices)
        return
    others = tuple(range(devices - 1))
    assert contents(server(devices))[-1] == {(device, 0): others for device in range(devices)}
    assert server(devices).sent(10) == [10] * (devices - 1) + [10 * (devices - 1)]


def test_what_leaves_a_device_is_counted_by_elements():
    steps = ((Send(0, 1, 0, ADD), Send(0, 1, 1, ADD)), (Send(1, 0, 1, COPY), Send(0, 2, 1, COPY)))
    assert Schedule("cut", 3, 2, steps).sent(5) == [3 + 2 + 2, 2, 0]
    arrays = Schedule("arrays", 3, 2, steps, sizes=(1, 9))
    assert arrays.sent(10) == [1 + 9 + 9, 9, 0]
    with pytest.raises(ValueError, match=r"^arrays was planned for 10 elements in all, not 9$"):
        arrays.sent(9)
    reads = Schedule("reads", 2, 1, ((Send(1, 0, 0, READ),), (Send(0, 1, 0, COPY),)))
    assert reads.sent(7) == [7, 0]
    assert str(reads).endswith("2 steps\nstep 1: 1 => 0 chunk 0\nstep 2: 0 -> 1 chunk 0")


def test_all_that_arrives_is_added_also_twice_and_every_step_is_kept():
    steps = ((Send(1, 0, 1, ADD), Send(2, 0, 1, READ)), (Send(1, 0, 1, ADD),), (Send(0, 1, 1, COPY),))
    held = contents(Schedule("example", 3, 2, steps))
    assert [now[0, 1] for now in held] == [(0,), (0, 1, 2), (0, 1, 1, 2), (0, 1, 1, 2)]
    assert (held[-1][1, 0], held[-1][1, 1]) == ((1,), (0, 1, 1, 2))


def test_capitals_are_complete_sums_and_nothing_else():
    chunks = [(0, 1, 2), (0, 1), (0, 1, 1), (2,), ()]
    texts = [written(Schedule("example", 3, 5, ()), chunk, parts) for chunk, parts in enumerate(chunks)]
    assert texts == ["A", "b01", "c011", "d2", "e"]
    assert written(Schedule("one chunk", 3, 1, ()), 0, (0, 1, 2)) == "0+1+2"
    assert written(Schedule("twelve", 12, 2, ()), 1, (1, 11)) == "b1+11"


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


@pytest.mark.parametrize("algorithm", NAMES)
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


def test_the_drawn_rings_of_three():
    check_drawing(rings.__doc__, rings.ring(3))
    check_drawing(rings.bidirectional_ring.__doc__, rings.bidirectional_ring(3))


@given(devices=st.integers(1, 12))
def test_device_i_gets_the_sum_of_chunk_i_and_then_its_chunk_i_is_everywhere(devices):
    complete = tuple(range(devices))
    held = contents(rings.reduce_scatter(devices))[-1]
    assert [place for place, parts in held.items() if parts == complete] == [(each, each) for each in range(devices)]
    gathered = {(device, chunk): (chunk,) for device in range(devices) for chunk in range(devices)}
    assert contents(rings.all_gather(devices))[-1] == gathered


@given(devices=st.integers(3, 12))
def test_both_ways_each_link_carries_one_chunk_a_step(devices):
    """One ring forward and one back, each with half of the vector."""
    for step in rings.bidirectional_ring(devices).steps:
        links = Counter((send.source, send.target) for send in step)
        forward = {(device, (device + 1) % devices) for device in range(devices)}
        assert links == Counter(forward | {(target, source) for source, target in forward})
