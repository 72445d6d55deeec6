from __future__ import annotations

import pytest

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send

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
