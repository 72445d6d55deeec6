from __future__ import annotations

import re
from itertools import product

import pytest
from drawn import check_drawing
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.collective.one_hop import direct, loads, naive, owners, server, sharded, shared_memory
from mxdp.plans.show.contents import contents


@pytest.mark.parametrize(("planner", "devices"), [(naive, 3), (direct, 3), (shared_memory, 2), (server, 4)])
def test_the_drawing(planner, devices):
    check_drawing(planner.__doc__, planner(devices))


def test_the_drawn_owners():
    text = sharded.__doc__
    array, elements, owner = (
        [int(number) for number in re.search(rf"{label}((?: +\d)+)", text).group(1).split()]
        for label in ("array", "elements", "added up on")
    )
    assert array == list(range(5))
    assert owners(3, elements) == owner
    loads = [
        [int(number) for number in sums.split("+")] for sums in re.findall(r"device \d adds (\d(?: \+ \d)*)", text)
    ]
    assert loads == [[elements[k] for k in array if owner[k] == device] for device in range(3)]


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
