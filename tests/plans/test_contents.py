from __future__ import annotations

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send
from mxdp.plans.show.contents import contents, written


def test_all_that_arrives_is_added_also_twice_and_every_step_is_kept():
    steps = ((Send(1, 0, 1, ADD), Send(2, 0, 1, READ)), (Send(1, 0, 1, ADD),), (Send(0, 1, 1, COPY),))
    held = contents(Schedule("example", 3, 2, steps))
    assert [now[0, 1] for now in held] == [(0,), (0, 1, 2), (0, 1, 1, 2), (0, 1, 1, 2)]
    assert (held[-1][1, 0], held[-1][1, 1]) == ((1,), (0, 1, 1, 2))


def test_capitals_are_complete_sums_and_nothing_else():
    chunks = [(0, 1, 2), (0, 1), (0, 1, 1, 2), (2,), ()]
    texts = [written(Schedule("example", 3, 5, ()), chunk, parts) for chunk, parts in enumerate(chunks)]
    assert texts == ["A", "b01", "c0112", "d2", "e"]
    assert written(Schedule("one chunk", 3, 1, ()), 0, (0, 1, 2)) == "0+1+2"
    assert written(Schedule("twelve", 12, 2, ()), 1, (1, 11)) == "b1+11"
