from __future__ import annotations

import pytest

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send
from mxdp.plans.show.contents import contents, written


def after(*steps, devices=3, chunks=1):
    return contents(Schedule("example", devices, chunks, steps))


def test_at_the_start_each_device_holds_its_own_part_of_every_chunk():
    assert after(devices=2, chunks=3) == [(((0,), (0,), (0,)), ((1,), (1,), (1,)))]


@pytest.mark.parametrize(("action", "held"), [(ADD, (0, 2)), (READ, (0, 2)), (COPY, (2,))])
def test_what_arrives_is_added_or_overwrites(action, held):
    assert after((Send(2, 0, 0, action),))[-1] == ((held,), ((1,),), ((2,),))


def test_a_step_sends_what_was_held_before_it():
    assert after((Send(0, 1, 0, COPY), Send(1, 0, 0, COPY)), devices=2)[-1] == (((1,),), ((0,),))
    assert after((Send(0, 1, 0, ADD), Send(1, 2, 0, ADD)))[-1] == (((0,),), ((0, 1),), ((1, 2),))


def test_all_that_arrives_is_added_also_twice_and_every_step_is_kept():
    assert after((Send(1, 0, 0, ADD), Send(2, 0, 0, READ)))[-1][0] == ((0, 1, 2),)
    held = after((Send(1, 0, 1, ADD),), (Send(1, 0, 1, ADD),), (Send(0, 1, 1, COPY),), devices=2, chunks=2)
    assert [chunks for (_, chunks), _ in held] == [(0,), (0, 1), (0, 1, 1), (0, 1, 1)]
    assert held[-1][1] == ((1,), (0, 1, 1))


def test_capitals_are_complete_sums_and_nothing_else():
    assert written([(0, 1, 2), (0, 1), (0, 1, 1, 2), (2,), ()], devices=3) == ["A", "b01", "c0112", "d2", "e"]
