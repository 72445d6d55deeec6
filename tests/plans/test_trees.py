from __future__ import annotations

from math import ceil, log2

import pytest
from drawn import check_drawing

from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.collective.trees import broadcast, doubling, tree
from mxdp.plans.show.contents import contents


@pytest.mark.parametrize("planner", [tree, doubling])
def test_the_drawing_of_four(planner):
    check_drawing(planner.__doc__, planner(4))


@pytest.mark.parametrize(("devices", "source"), [(n, source) for n in range(1, 9) for source in range(n)])
def test_broadcast_reaches_all_from_each_source(devices, source):
    schedule = broadcast(devices, source)
    assert contents(schedule)[-1] == {(device, 0): (source,) for device in range(devices)}
    assert len(schedule.steps) == ceil(log2(devices))
    assert sum(schedule.sent(1)) == devices - 1
    assert {send.action for step in schedule.steps for send in step} <= {COPY}


@pytest.mark.parametrize(("devices", "source"), [(3, 3), (3, -1), (1, 1)])
def test_a_source_that_is_no_device_is_named(devices, source):
    with pytest.raises(ValueError, match=f"^there is no device {source} among {devices}: source is 0 to {devices - 1}"):
        broadcast(devices, source)


@pytest.mark.parametrize("devices", range(1, 17))
def test_doubling_costs_what_the_docstring_says(devices):
    core = 1 << int(log2(devices))
    assert len(doubling(devices).steps) == log2(core) + 2 * (devices > core)
    assert sum(doubling(devices).sent(1)) == core * log2(core) + 2 * (devices - core)


@pytest.mark.parametrize("devices", range(2, 9))
def test_doubling_adds_the_same_two_numbers_on_both_partners(devices):
    """All devices must end with the same bits, so sums are compared including their order."""
    held = [frozenset([device]) for device in range(devices)]
    for step in doubling(devices).steps:
        sent = [(send, held[send.source]) for send in step]
        for send, parts in sent:
            held[send.target] = frozenset([held[send.target], parts]) if send.action == ADD else parts
    assert len(set(held)) == 1
