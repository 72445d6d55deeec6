"""What holds for every all-reduce. The plans are carried out on the numbers of the devices."""

from __future__ import annotations

from functools import partial

import pytest
from drawn import is_allreduce
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.__main__ import PARTS
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, check_algorithm, plan

SIZES = (5, 4, 3, 3, 1)
NAMES = sorted(ALGORITHMS)
names = st.sampled_from(NAMES)


@given(name=names, devices=st.integers(1, 11), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6))
def test_every_device_ends_with_each_part_exactly_once(name, devices, sizes):
    schedule = plan(name, devices, sizes)
    assert (schedule.name, schedule.devices) == (name, devices)
    assert is_allreduce(schedule)
    assert {schedule: 1}[plan(name, devices, sizes)]  # nobody changes it


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
