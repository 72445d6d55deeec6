from __future__ import annotations

import threading

import pytest

from mxdp import sections
from mxdp.sections import section


def test_without_a_recording_a_section_is_one_and_the_same_nothing():
    assert section("input") is section("other")
    with section("input"), section("input"):
        pass


def test_a_section_is_noted_when_it_ends_also_by_an_error_another_thread_or_after_its_recording():
    def work():
        with section("there"):
            pass

    collected, thread = sections.start(), threading.Thread(target=work)
    with section("outer"), section("inner"):
        thread.start()
        thread.join()
    with pytest.raises(KeyError), section("broken"):
        raise KeyError
    with section("long"):
        sections.stop()
    there, inner, outer, *_ = collected.marked
    expected = [("there", False), ("inner", True), ("outer", True), ("broken", True), ("long", True)]
    assert [(name, here) for name, _, _, here in collected.marked] == expected
    assert outer[1] <= inner[1] <= there[1] <= there[2] <= inner[2] <= outer[2]
