"""Plans as steps of sends, and what devices hold after each."""

from __future__ import annotations

import pytest

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send
from mxdp.plans.show.contents import contents, written

ARRAYS = Schedule("arrays", 2, 3, (), sizes=(4, 0, 3))


def test_whole_arrays_are_not_cut():
    assert ARRAYS.borders(7) == [(0, 4), (4, 4), (4, 7)]


@pytest.mark.parametrize("length", [0, 6, 8])
def test_arrays_of_another_length_are_refused(length):
    with pytest.raises(ValueError, match=f"^arrays was planned for 7 elements in all, not {length}$"):
        ARRAYS.borders(length)
    with pytest.raises(ValueError, match=f"not {length}$"):
        ARRAYS.sent(length)


def test_what_leaves_a_device_is_counted_by_elements():
    steps = ((Send(0, 1, 0, ADD), Send(0, 1, 1, ADD)), (Send(1, 0, 1, COPY), Send(0, 2, 1, COPY)))
    assert Schedule("cut", 3, 2, steps).sent(5) == [3 + 2 + 2, 2, 0]
    assert Schedule("arrays", 3, 2, steps, sizes=(1, 9)).sent(10) == [1 + 9 + 9, 9, 0]
    reads = Schedule("reads", 2, 1, ((Send(1, 0, 0, READ),), (Send(0, 1, 0, COPY),)))
    assert reads.sent(7) == [7, 0]
    assert str(reads).endswith("2 steps\nstep 1: 1 => 0 chunk 0\nstep 2: 0 -> 1 chunk 0")


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
