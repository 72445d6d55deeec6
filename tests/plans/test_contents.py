from __future__ import annotations

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send
from mxdp.plans.show.contents import contents, written


def test_all_that_arrives_is_added_also_twice_and_every_step_is_kept():
    steps = ((Send(1, 0, 1, ADD), Send(2, 0, 1, READ)), (Send(1, 0, 1, ADD),), (Send(0, 1, 1, COPY),))
    held = contents(Schedule("example", 3, 2, steps))
    assert [chunks for (_, chunks), *_ in held] == [(0,), (0, 1, 2), (0, 1, 1, 2), (0, 1, 1, 2)]
    assert held[-1][1] == ((1,), (0, 1, 1, 2))


def test_capitals_are_complete_sums_and_nothing_else():
    assert written([(0, 1, 2), (0, 1), (0, 1, 1, 2), (2,), ()], devices=3) == ["A", "b01", "c0112", "d2", "e"]
