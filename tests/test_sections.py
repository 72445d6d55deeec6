from __future__ import annotations

import threading

import pytest

from mxdp import sections
from mxdp.sections import section


@pytest.fixture
def collected():
    collecting = sections.start()
    yield collecting
    sections.stop()


def test_without_a_recording_a_section_is_one_and_the_same_nothing():
    assert section("input") is section("other")
    with section("input"), section("input"):
        pass


def test_a_section_is_noted_when_it_ends_also_by_an_error(collected):
    with section("outer"), section("inner"):
        pass
    with pytest.raises(KeyError), section("broken"):
        raise KeyError
    assert [name for name, *_ in collected.marked] == ["inner", "outer", "broken"]
    inner, outer, _ = collected.marked
    assert outer[1] <= inner[1] <= inner[2] <= outer[2]


def test_other_threads_are_told_apart(collected):
    def work():
        with section("there"):
            pass

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    with section("here"):
        pass
    assert [(name, here) for name, _, _, here in collected.marked] == [("there", False), ("here", True)]


def test_a_section_that_outlives_its_recording_goes_to_that_recording():
    collecting = sections.start()
    with section("long"):
        sections.stop()
    assert [name for name, *_ in collecting.marked] == ["long"]
