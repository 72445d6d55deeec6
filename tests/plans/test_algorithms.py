"""What holds for every all-reduce. The plans are carried out on the numbers of the devices."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from drawn import is_allreduce, with_step

from mxdp.plans.__main__ import PARTS
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, check_algorithm, plan
from mxdp.plans.collective.schedule import ADD, COPY

SIZES = (5, 4, 3, 3, 1)
NAMES = sorted(ALGORITHMS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", range(1, 9))
@pytest.mark.parametrize("sizes", [(1,), SIZES])
def test_every_device_ends_with_each_part_exactly_once(name, devices, sizes):
    schedule = plan(name, devices, sizes)
    assert (schedule.name, schedule.devices) == (name, devices)
    assert is_allreduce(schedule)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("devices", range(2, 6))
def test_a_step_or_send_left_out_another_chunk_or_action_is_found(name, devices):
    schedule = plan(name, devices, SIZES)
    for number, step in enumerate(schedule.steps):
        first, *others = step
        wrong = [replace(first, action=ADD if first.action == COPY else COPY)]
        wrong += [replace(first, chunk=(first.chunk + 1) % schedule.chunks)] * (schedule.chunks > 1)
        broken = [(), *((send, *others) for send in wrong)]
        broken += [tuple(other for other in step if other != send) for send in step]
        assert not any(is_allreduce(with_step(schedule, number, sends)) for sends in broken)


def test_an_unknown_name_gets_the_nearest_name_and_all_names():
    with pytest.raises(ValueError, match=f"no plan is called 'rign'; did you mean 'ring'.*{', '.join(NAMES)}"):
        plan("rign", 2)
    with pytest.raises(ValueError, match="no plan is called 'zzz'; there are: bid"):
        check_algorithm("zzz")


def test_others_can_be_allowed_as_well():
    check_algorithm(AUTO, also=[AUTO])
    with pytest.raises(ValueError, match=r"did you mean 'auto'.* auto, bidirectional-ring"):
        check_algorithm("atuo", also=[AUTO])
    with pytest.raises(ValueError, match="called 'auto'"):
        check_algorithm(AUTO)


PLANNERS = [partial(plan, name, sizes=SIZES) for name in NAMES] + [*PARTS.values()]


@pytest.mark.parametrize("planner", PLANNERS)
def test_one_device_has_nothing_to_do_and_none_is_refused(planner):
    assert planner(devices=1).steps == ()
    for devices in (0, -1):
        with pytest.raises(ValueError, match=f"^a collective needs at least one device, not {devices}$"):
            planner(devices=devices)
