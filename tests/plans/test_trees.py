from __future__ import annotations

from math import ceil, log2

import pytest
from drawn import check_drawing
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.collective.trees import broadcast, doubling, tree
from mxdp.plans.show.contents import contents


@pytest.mark.parametrize("planner", [tree, doubling])
def test_the_drawing_of_four(planner):
    check_drawing(planner.__doc__, planner(4))


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
