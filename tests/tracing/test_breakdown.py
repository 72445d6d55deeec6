from __future__ import annotations

from collections import Counter
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import TraceError
from mxdp.tracing import breakdown
from mxdp.tracing.breakdown import Parts, split
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


def test_a_wait_owes_to_several_gaps():
    """Python lost 150: 100 of the first gap and 50 of the second count for the wait."""
    device = [("C", 0, 200), ("C", 310, 400), ("C", 500, 1000)]
    result = parts(1000, device, calls=[(300, 310), (490, 500)], waits=[(50, 210)])
    assert result == {"compute": 790, "waiting": 10 + 100 + 50, "front_end": 50}


def test_what_is_short_and_what_is_soon():
    for gap, part in ((19, "rest"), (20, "waiting")):
        assert parts(1000, [("C", 0, 300), ("C", 300 + gap, 1000)], [("C", 0, 1000)], calls=[(0, 50)])[part] == gap
    for soon, waited in ((50, 500), (51, 0)):
        found = parts(1000, [("C", 0, 300), ("R", 900, 1000)], [("C", 350, 900 - soon)], calls=[(890, 920)])
        assert found.get("waiting", 0) == waited


def test_no_work_no_split():
    with pytest.raises(TraceError, match="no time to split"):
        split(timeline(1000, [("E", 0, 3)], waits=[(0, 1000)]))
    assert set(Parts().shares().values()) == {0.0}


END = 40
SPAN = st.tuples(st.integers(0, END), st.integers(0, END)).map(sorted).map(tuple)
SPANS = st.lists(SPAN, max_size=5)
WORK = st.lists(st.tuples(st.sampled_from("CCCKRUE"), SPAN).map(lambda pair: (pair[0], *pair[1])), max_size=6)


def inside(spans):
    return {moment for start, end in spans for moment in range(start, end)}


def runs(moments):
    """Neighbouring moments, together."""
    found = []
    for moment in sorted(moments):
        if found and found[-1][-1] == moment - 1:
            found[-1].append(moment)
        else:
            found.append([moment])
    return found


def pushed_by(device, steps):
    """The end of its step in Python, by the start of an operator; of none, unless all steps ran the same ones."""
    work = sorted((start, stop, kind) for kind, start, stop in device if kind != "E")
    count = len(work) // len(steps) if steps else 0
    each = {tuple(sorted(kind for *_, kind in work[at : at + count])) for at in range(0, len(work), count or 1)}
    if not count or len(work) % len(steps) or len(each) > 1:
        return {}
    return {start: sorted(steps)[number // count][1] for number, (start, *_) in enumerate(work)}


def by_moments(device, other, calls, waits, inputs, steps):
    """The parts of a device, moment by moment, as the module says them."""
    parts = Counter()
    kinds = {letter: inside(span for kind, *span in device if kind == letter) for letter in KINDS}
    moving, working = kinds["K"] | kinds["R"] | kinds["U"], inside(span for kind, *span in device if kind != "E")
    elsewhere = inside(span for kind, *span in other if kind != "E")
    inputs, wait_moments = inside(inputs), inside(waits)
    parts["compute"] = len(kinds["C"] - moving)
    parts["hidden_communication"] = len(kinds["C"] & moving)
    parts["exposed_communication"] = len((kinds["K"] | kinds["R"]) - kinds["C"])
    parts["input"] = len(kinds["U"] - kinds["C"] - kinds["K"] - kinds["R"])
    late = 0

    def take(part, gap, where):
        parts[part] += len(gap & where)
        return gap - where

    for whole in runs(set(range(END)) - working):
        start, end = whole[0], whole[-1] + 1
        gap = take("rest", set(whole), kinds["E"])
        for run in runs(wait_moments):  # a wait that began before the gap, and ended in it
            if run[0] <= start < run[-1] + 1 <= end:
                late = start - run[0]
        if end == END:
            gap = take("input", gap, inputs)
            fence = gap & wait_moments
            gap -= fence
            take("rest", take("waiting", fence, elsewhere), fence)
        else:
            pushes = [min(call[1], end) for call in sorted(calls) if call <= (end, end)]
            pushed = max(start, min(pushed_by(device, steps).get(end, end), pushes[-1] if pushes else 0))
            for run in runs(moment for moment in gap if moment >= pushed):
                worked = elsewhere if len(run) >= 3 else set()
                take("rest", take("waiting", set(run), worked), set(run))
            gap = {moment for moment in gap if moment < pushed}
            if any(0 <= end - stop <= 4 for kind, _, stop in other if kind != "E"):
                gap = take("waiting", gap, elsewhere)
            gap = take("waiting", take("input", gap, inputs), wait_moments)
        owed = min(late, len(gap))
        late -= owed
        parts["waiting"] += owed
        parts["front_end"] += len(gap) - owed
    return parts


@settings(max_examples=200)
@given(WORK, WORK, SPANS, SPANS, SPANS, st.lists(SPAN, max_size=3))
def test_the_parts_are_those_that_brute_force_counts_and_add_up(device, other, calls, waits, inputs, steps):
    drawn = timeline(END, device, other, calls, waits, inputs, steps)
    if not drawn.devices:
        return
    with patch.multiple(breakdown, DISPATCH=3, TRIGGER=4):
        found = split(drawn)
    for name, of_device in found.items():
        us = {part: round(value * 1e6, 6) for part, value in of_device.as_dict().items() if value}
        both = (device, other) if name == ONE else (other, device)
        assert us == {part: count for part, count in by_moments(*both, calls, waits, inputs, steps).items() if count}
        assert of_device.total == pytest.approx(END / 1e6)
        assert of_device.shares() == {part: pytest.approx(us.get(part, 0) / END) for part in of_device.as_dict()}
