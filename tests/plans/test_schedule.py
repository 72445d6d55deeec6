from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.collective.schedule import ADD, COPY, READ, Schedule, Send
from mxdp.plans.partition import bounds

ARRAYS = Schedule("arrays", 2, 3, (), sizes=(4, 0, 3))


def test_it_prints_as_a_table_for_a_slide():
    schedule = Schedule("tiny", 2, 1, ((Send(1, 0, 0, ADD), Send(1, 0, 0, READ)), (Send(0, 1, 0, COPY),)))
    steps = "step 1: 1 +> 0 chunk 0, 1 => 0 chunk 0\nstep 2: 0 -> 1 chunk 0"
    assert str(schedule) == f"tiny: 2 devices, 1 chunk, 2 steps\n{steps}"


@given(length=st.integers(0, 200), chunks=st.integers(1, 20))
def test_a_vector_is_cut_evenly(length, chunks):
    assert Schedule("even", 2, chunks, ()).borders(length) == bounds(length, chunks)


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


def test_what_is_read_in_place_is_not_sent():
    assert Schedule("reads", 2, 1, ((Send(1, 0, 0, READ),), (Send(0, 1, 0, COPY),))).sent(7) == [7, 0]
