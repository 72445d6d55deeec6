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


def test_only_the_chunk_that_is_sent_changes():
    assert after((Send(1, 0, 1, ADD),), devices=2, chunks=2)[-1] == (((0,), (0, 1)), ((1,), (1,)))


def test_a_step_sends_what_was_held_before_it():
    assert after((Send(0, 1, 0, COPY), Send(1, 0, 0, COPY)), devices=2)[-1] == (((1,),), ((0,),))
    assert after((Send(0, 1, 0, ADD), Send(1, 2, 0, ADD)))[-1] == (((0,),), ((0, 1),), ((1, 2),))


def test_what_arrives_from_two_devices_at_once_is_all_added():
    assert after((Send(1, 0, 0, ADD), Send(2, 0, 0, READ)))[-1][0] == ((0, 1, 2),)


def test_what_is_added_twice_is_there_twice():
    assert after((Send(1, 0, 0, ADD),), (Send(1, 0, 0, ADD),))[-1][0] == ((0, 1, 1),)


def test_every_step_is_kept():
    found = after((Send(1, 0, 0, ADD),), (Send(0, 2, 0, COPY),))
    assert [held[2] for held in found] == [((2,),), ((2,),), ((0, 1),)]


def test_capitals_are_complete_sums_and_nothing_else():
    assert written([(0, 1, 2), (0, 1), (0, 1, 1, 2), (2,), ()], devices=3) == ["A", "b01", "c0112", "d2", "e"]
