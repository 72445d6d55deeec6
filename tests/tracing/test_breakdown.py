from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import TraceError
from mxdp.tracing.breakdown import DISPATCH, TRIGGER, Parts, split
from mxdp.tracing.timeline import build

ONE, TWO, PYTHON = "cpu(0)", "cpu(1)", "python"
KINDS = {"C": "compute", "K": "copy", "R": "all-reduce", "U": "upload", "E": "engine"}


def timeline(length, device=(), other=(), calls=(), waits=(), inputs=(), steps=()):
    """Each argument is a list of (start, end), with the letter of a kind in front for devices."""
    events = [(ONE, letter, KINDS[letter], start, end) for letter, start, end in device]
    events += [(TWO, letter, KINDS[letter], start, end) for letter, start, end in other]
    events += [(PYTHON, "invoke", "call", *times) for times in calls]
    events += [(PYTHON, "waitall", "wait", *times) for times in waits]
    events += [(PYTHON, "input", "section", *times) for times in inputs]
    events += [(PYTHON, "step", "section", *times) for times in steps]
    return build(length, events)


def parts(*arguments, of=ONE, **more):
    """The parts that are not zero, in microseconds."""
    seconds = split(timeline(*arguments, **more))[of].as_dict()
    return {name: round(value * 1e6) for name, value in seconds.items() if value}


@pytest.mark.parametrize(
    ("python", "expected"),
    [
        (dict(calls=[(899, 910)]), {"front_end": 600}),
        (dict(calls=[(0, 50)]), {"rest": 600}),  # it was pushed, and nobody worked
        # The device worked until 300: 200 of the next 500 count for a wait that ended later, else none.
        (dict(calls=[(880, 910)], waits=[(100, 400)]), {"waiting": 100 + 200, "front_end": 300}),
        (dict(calls=[(880, 910)], waits=[(100, 300)]), {"front_end": 600}),
        (dict(calls=[(880, 910)], waits=[(0, 310)], inputs=[(320, 870)]), {"waiting": 10 + 10 + 30, "input": 550}),
    ],
)
def test_a_gap_is_what_python_did_in_it(python, expected):
    assert parts(1000, [("C", 0, 300), ("C", 900, 1000)], **python) == {"compute": 400, **expected}


def test_a_wait_owes_to_several_gaps():
    """Python lost 150: 100 of the first gap and 50 of the second count for the wait."""
    device = [("C", 0, 200), ("C", 310, 400), ("C", 500, 1000)]
    result = parts(1000, device, calls=[(300, 310), (490, 500)], waits=[(50, 210)])
    assert result == {"compute": 790, "waiting": 10 + 100 + 50, "front_end": 50}


def test_a_wait_in_which_the_device_went_on_owes_nothing():
    device = [("C", 0, 200), ("C", 205, 400), ("C", 500, 1000)]
    result = parts(1000, device, calls=[(0, 10), (490, 500)], waits=[(50, 300)])
    assert result == {"compute": 895, "rest": 5, "front_end": 100}


def test_a_wait_that_ended_with_the_gap_owes_to_the_next_one():
    device = [("C", 0, 300), ("C", 900, 950), ("C", 1200, 1300)]
    result = parts(1300, device, calls=[(1190, 1210)], waits=[(100, 900)])
    assert result == {"compute": 450, "rest": 600, "waiting": 200, "front_end": 50}


def test_it_was_pushed_and_waited_for_another_device():
    result = parts(1000, [("C", 0, 300), ("C", 900, 1000)], [("C", 0, 890)], calls=[(0, 50)], waits=[(60, 1000)])
    assert result == {"compute": 400, "waiting": 590, "rest": 10}


def test_short_gaps_are_the_engines_even_if_another_device_works():
    work = [("C", 0, 300), ("C", 300 + DISPATCH - 1, 1000)]
    assert parts(1000, work, [("C", 0, 1000)], calls=[(0, 50)])["rest"] == DISPATCH - 1
    work = [("C", 0, 300), ("C", 300 + DISPATCH, 1000)]
    assert parts(1000, work, [("C", 0, 1000)], calls=[(0, 50)])["waiting"] == DISPATCH


def test_housekeeping_is_the_engines():
    result = parts(1000, [("C", 0, 300), ("E", 400, 500), ("C", 900, 1000)], calls=[(880, 910)])
    assert result == {"compute": 400, "rest": 100, "front_end": 500}


def test_another_device_finished_just_before_although_python_pushed_too():
    """Python pushes for other steps all the time. This operator waited for the other device while that worked."""
    calls = [(at, at + 20) for at in range(10, 990, 20)]
    device = [("C", 0, 300), ("R", 900, 1000)]
    result = parts(1000, device, [("C", 350, 890)], calls=calls)
    assert result == {"compute": 300, "exposed_communication": 100, "front_end": 60, "waiting": 540}
    at_once = parts(1000, device, [("C", 350, 900)], calls=calls)
    assert at_once == {"compute": 300, "exposed_communication": 100, "front_end": 50, "waiting": 550}
    in_time = parts(1000, device, [("C", 350, 900 - TRIGGER)], calls=calls)
    assert in_time == {"compute": 300, "exposed_communication": 100, "front_end": 100, "waiting": 500}
    early = parts(1000, device, [("C", 350, 900 - TRIGGER - 1)], calls=calls)
    assert early == {"compute": 300, "exposed_communication": 100, "front_end": 600}


def test_another_devices_housekeeping_triggers_nothing():
    calls = [(at, at + 20) for at in range(10, 990, 20)]
    other = [("C", 350, 600), ("E", 880, 890)]
    assert "waiting" not in parts(1000, [("C", 0, 300), ("R", 900, 1000)], other, calls=calls)


def test_steps_show_what_was_pushed():
    """The second operator belongs to the first step, which was pushed by 200, whatever Python does later."""
    calls = [(at, at + 20) for at in range(10, 990, 20)]
    device = [("C", 0, 100), ("C", 500, 600), ("C", 600, 700), ("C", 700, 1000)]
    assert parts(1000, device, calls=calls)["front_end"] == 400
    assert parts(1000, device, calls=calls, steps=[(0, 200), (200, 1000)]) == {
        "compute": 600,
        "front_end": 100,
        "rest": 300,
    }
    uneven = [(0, 200), (200, 800), (800, 1000)]
    assert parts(1000, device, calls=calls, steps=uneven)["front_end"] == 400
    device[0] = ("K", 0, 100)
    assert parts(1000, device, calls=calls, steps=[(0, 200), (200, 1000)])["front_end"] == 400


def test_before_the_first_and_after_the_last_operator():
    result = parts(1000, [("C", 200, 500)], [("C", 0, 800)], calls=[(100, 210)], waits=[(600, 1000)])
    assert result == {"compute": 300, "front_end": 200 + 100, "waiting": 200, "rest": 200}
    result = parts(1000, [("C", 0, 500)], calls=[(0, 10)], waits=[(300, 510), (990, 1000)])
    assert result == {"compute": 500, "waiting": 200, "front_end": 280, "rest": 20}
    assert parts(1000, [("C", 0, 500)], inputs=[(400, 900)]) == {"compute": 500, "input": 400, "front_end": 100}


def test_no_work_no_split():
    with pytest.raises(TraceError, match="no time to split"):
        split(timeline(1000, [("E", 0, 3)], waits=[(0, 1000)]))
    assert set(Parts().shares().values()) == {0.0}


END = 120
SPAN = st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple)
SPANS = st.lists(SPAN, max_size=6)
WORK = st.lists(st.tuples(st.sampled_from("CKRUE"), SPAN).map(lambda pair: (pair[0], *pair[1])), max_size=8)


@settings(max_examples=50)
@given(WORK, WORK, SPANS, SPANS, SPANS, SPANS)
def test_the_parts_add_up_and_work_is_counted_as_by_brute_force(device, other, calls, waits, inputs, steps):
    drawn = timeline(END, device, other, calls, waits, inputs, steps)
    if not drawn.devices:
        return
    for name, of_device in split(drawn).items():
        us = {part: value * 1e6 for part, value in of_device.as_dict().items()}
        assert sum(us.values()) == pytest.approx(END)
        assert min(us.values()) >= 0
        running = [{letter for letter, a, b in (device if name == ONE else other) if a <= m < b} for m in range(END)]
        moving = [set("KRU") & now for now in running]
        assert us["compute"] == pytest.approx(sum("C" in now and not m for now, m in zip(running, moving)))
        hidden = sum("C" in now and bool(m) for now, m in zip(running, moving))
        assert us["hidden_communication"] == pytest.approx(hidden)
        exposed = sum("C" not in now and bool(m & {"K", "R"}) for now, m in zip(running, moving))
        assert us["exposed_communication"] == pytest.approx(exposed)
        # The input and front-end parts never exceed the idle time inside the input path, or outside of waits.
        idle_input = sum(
            not now & set("CKRU") and any(a <= m < b for a, b in inputs) for m, now in enumerate(running)
        ) + sum(now - {"E"} == {"U"} for now in running)
        assert us["input"] <= idle_input + 1e-6
