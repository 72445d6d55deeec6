"""The parts of a timeline, against brute force; the split of made recordings is exact, of a real one it adds up."""

import contextlib
import threading
from collections import Counter
from types import SimpleNamespace
from unittest.mock import patch

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mxdp.backend import mx, np
from mxdp.errors import TraceError
from mxdp.tracing import breakdown, where, where_the_time_went
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


def test_a_wait_owes_to_several_gaps():
    """Python lost 150: 100 of the first gap and 50 of the second count for the wait."""
    device = [("C", 0, 200), ("C", 310, 400), ("C", 500, 1000)]
    parts = split(timeline(1000, device, calls=[(300, 310), (490, 500)], waits=[(50, 210)]))[ONE]
    assert (parts.waiting * 1e6, parts.front_end * 1e6) == pytest.approx((10 + 100 + 50, 50))


def test_what_is_short_and_what_is_soon():
    for gap, part in ((19, "rest"), (20, "waiting")):
        found = split(timeline(1000, [("C", 0, 300), ("C", 300 + gap, 1000)], [("C", 0, 1000)], calls=[(0, 50)]))
        assert getattr(found[ONE], part) == pytest.approx(gap / 1e6)
    for soon, waited in ((50, 500), (51, 0)):
        found = split(timeline(1000, [("C", 0, 300), ("R", 900, 1000)], [("C", 350, 900 - soon)], calls=[(890, 920)]))
        assert found[ONE].waiting == pytest.approx(waited / 1e6)


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
            if run[0] < start < run[-1] + 1 <= end:
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
@example([("C", 0, 5), ("C", 20, 30)], [("C", 0, 40)], [(18, 20)], [], [], [(0, 6), (6, 15)])
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


MADE = build(
    2000,
    [
        ("cpu(0)", "dot", "compute", 100, 500),
        ("cpu(0)", "dot", "compute", 1100, 1400),
        ("cpu(1)", "CopyCPU2CPU", "copy", 0, 350),
        ("python", "input", "section", 500, 1000),
        ("python", "invoke", "call", 80, 100),
        ("python", "invoke", "call", 1090, 1100),
    ],
)


@pytest.fixture
def made(monkeypatch, tmp_path):
    """Recordings have this timeline, and threads these times. ``happened``: in its order."""
    happened = []

    @contextlib.contextmanager
    def record(chosen, kinds):
        happened.append((chosen, kinds))
        yield SimpleNamespace(timeline=made.timeline)
        happened.append("end")

    made = SimpleNamespace(timeline=MADE, happened=happened, folder=tmp_path / "task")
    monkeypatch.setattr(where, "record", record)
    monkeypatch.setattr(where, "THREADS", made.folder)
    return made


def write(folder, thread, text):
    (folder / str(thread)).mkdir(parents=True, exist_ok=True)
    (folder / str(thread) / "schedstat").write_text(text)


def test_of_made_recordings_all_is_exact(made):
    def step():
        made.happened.append("step")
        seen = made.happened.count("step")
        # A device's thread has run, and waited for a processor; another begins; Python's own counts nothing.
        write(made.folder, 7, f"{100 * seen} {20 * seen} 1")
        write(made.folder, 9, "0 0 0" if seen < 2 else f"{150 * (seen - 2)} 0 1")
        write(made.folder, threading.get_native_id(), f"{9999 * seen} {7777 * seen} 1")
        write(made.folder, 11, "nonsense")

    result = where_the_time_went(step, 2, warm_up=3, devices=["cpu(0)"], kinds={"a": "copy"})
    assert made.happened == [*["step"] * 3, (["cpu(0)"], {"a": "copy"}), *["step"] * 2, "end"]
    assert (result.device, result.steps, result.timeline) == ("cpu(0)", 2, MADE)
    assert result.wall_clock == pytest.approx(1000e-6)
    expected = dict(compute=700, input=500, front_end=800)
    one = {name: pytest.approx(expected.get(name, 0) / 2e6) for name in result.as_dict()}
    assert result.as_dict() == result.by_device["cpu(0)"].as_dict() == one
    assert result.by_device["cpu(1)"].exposed_communication == pytest.approx(175e-6)
    assert result.shares()["compute"] == pytest.approx(0.35)
    assert result.on_processor == pytest.approx((2 * 100 + 2 * 150) / (2 * 120 + 2 * 150))


def test_where_the_system_does_not_tell_the_share_is_unknown(made):
    assert where_the_time_went(lambda: None, 1, 0).on_processor is None
    write(made.folder, 7, "0 0 0")
    assert where_the_time_went(lambda: None, 1, 0).on_processor is None
    made.timeline = build(9, [("gpu(0)", "dot", "compute", 0, 5)])
    assert where_the_time_went(lambda: write(made.folder, 7, "5 0 0"), 1, 0).on_processor is None
    with pytest.raises(ValueError, match="at least one step, not 0"):
        where_the_time_went(lambda: None, 0)


def test_a_real_step_is_taken_apart():
    """How much of it stays unexplained depends on the machine: the experiment where-the-time-went judges that."""
    x = np.ones((300, 300), ctx=mx.cpu(0))
    run = where_the_time_went(lambda: np.dot(x, x).copyto(mx.cpu(1)), 3, 1)
    for parts in run.by_device.values():
        assert parts.total == pytest.approx(run.wall_clock, abs=1e-9)
    assert min(run.by_device["cpu(0)"].compute, run.by_device["cpu(0)"].exposed_communication) > 0
    assert sum(event.name == "step" for event in run.timeline.lanes["python"]) == 3
    if any(where.THREADS.glob("*/schedstat")):  # the system tells it
        assert 0 < run.on_processor <= 1
