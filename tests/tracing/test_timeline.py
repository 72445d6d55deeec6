from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import TraceError
from mxdp.tracing.events import DEVICE_KINDS, PYTHON, PYTHON_KINDS
from mxdp.tracing.intervals import merge
from mxdp.tracing.timeline import Timeline, build

# cpu(0)  CCCC....KKKK....   C compute, K copy, R all-reduce
# cpu(1)  ..CCCCCC..RR....   python waits from 4 to 12
TIMELINE = build(
    16,
    [
        ("cpu(0)", "dot", "compute", 0, 4),
        ("cpu(0)", "CopyCPU2CPU", "copy", 8, 12),
        ("cpu(0)", "DeleteVariable", "engine", 12, 16),
        ("cpu(1)", "dot", "compute", 2, 8),
        ("cpu(1)", "elemwise_add", "all-reduce", 10, 12),
        (PYTHON, "MXNDArrayWaitAll", "wait", 4, 12),
        (PYTHON, "input", "section", 0, 3),
        (PYTHON, "other", "section", 2, 4),
    ],
)
LANES = st.sampled_from(["cpu(0)", "cpu(1)", "gpu(0)", PYTHON])
PLAIN = st.sampled_from("ab")
TIMES = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(sorted)


@st.composite
def timelines(draw, names=PLAIN):
    """Of 50 microseconds. ``names``: of events, and of devices beside the usual ones."""
    events = []
    for lane, times in draw(st.lists(st.tuples(LANES | names, TIMES), max_size=9)):
        kinds = PYTHON_KINDS if lane == PYTHON else DEVICE_KINDS
        events.append((lane, draw(names), draw(st.sampled_from(kinds)), *times))
    return build(50, events)


def test_without_work_no_device_is_critical():
    with pytest.raises(TraceError, match="no device worked"):
        _ = build(16, [("cpu(0)", "DeleteVariable", "engine", 0, 4)]).critical


def test_devices_are_in_the_order_of_their_numbers_and_python_is_last():
    events = [(lane, "a", "compute", 0, 1) for lane in ("gpu(1)", "cpu(10)", "cpu(2)")]
    timeline = build(9, [(PYTHON, "a", "call", 0, 1), *events])
    assert list(timeline.lanes) == ["cpu(2)", "cpu(10)", "gpu(1)", PYTHON]
    assert timeline.devices == ["cpu(2)", "cpu(10)", "gpu(1)"]


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match=r"cpu\(7\).*there are events on cpu\(0\), cpu\(1\), python"):
        TIMELINE.spans("cpu(7)")


@settings(max_examples=50)
@given(timelines(), st.integers(1, 3))
def test_shares_against_brute_force(timeline, count):
    """Every microsecond is checked on its own."""
    work, moving, compute = {"compute", "copy", "all-reduce", "upload"}, {"copy", "all-reduce"}, {"compute"}

    def running(moment, kinds, lanes):
        at = (moment + 0.5) * 1e-6
        return {e.device for e in timeline.events if e.device in lanes and e.kind in kinds and e.start < at < e.end}

    def moments(*kinds, of=timeline.devices):
        return sum(all(running(moment, each, of) for each in kinds) for moment in range(50))

    for device in timeline.devices:
        assert timeline.busy(device) * 50 == pytest.approx(moments(work, of=[device]))
        one = timeline.overlap(device)
        assert one.hidden * 1e6 == pytest.approx(moments(moving, compute, of=[device]))
        assert one.share * one.communication == pytest.approx(one.hidden)
    often = [moment for moment in range(50) if len(running(moment, work, timeline.devices)) >= count]
    assert timeline.together(count) * 1e6 == pytest.approx(len(often))
    assert timeline.overlap().hidden * 1e6 == pytest.approx(moments(moving, compute))
    assert timeline.overlap().communication * 1e6 == pytest.approx(moments(moving))
    for kind, name in (("section", "a"), ("wait", None)):
        mine = [e for e in timeline.lanes.get(PYTHON, ()) if e.kind == kind and name in (None, e.name)]
        assert timeline.python(kind, name) == merge((event.start, event.end) for event in mine)
    if timeline.devices:
        assert timeline.critical == max(timeline.devices, key=timeline.busy)


@settings(max_examples=50)
@given(timelines(st.text(max_size=4)), TIMES.filter(lambda ends: ends[0] < ends[1]))
def test_it_and_its_parts_are_read_back_and_what_is_returned_may_be_changed(timeline, ends):
    part = timeline.between(*(end * 1e-6 for end in ends))
    start, stop = ends
    inside = [
        (e.device, e.name, e.kind, round(e.start * 1e6) - start, round(e.end * 1e6) - start)
        for e in timeline.events
        if e.start * 1e6 < stop and e.end * 1e6 > start
    ]
    assert part == build(stop - start, inside)
    for each in (timeline, part):
        assert Timeline.from_json(json.loads(json.dumps(each.to_json()))) == each
        for returned in (each.lanes, each.devices, each.spans(), each.python(), each.to_json()):
            before = len(each.lanes), each.to_json()
            returned.clear()
            assert before == (len(each.lanes), each.to_json())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data.pop("format"), "not a timeline"),
        (lambda data: data.pop("labels"), "damaged"),
        (lambda data: data["lanes"][0]["lengths"].pop(), "columns of different length"),
        (lambda data: data["lanes"][0]["lengths"].__setitem__(0, -1), "-1 microseconds"),
        (lambda data: data["labels"][0].__setitem__(1, "sleep"), "'sleep'"),
        (lambda data: data.__setitem__("microseconds", "many"), "damaged"),
    ],
)
def test_what_is_no_timeline_is_refused(change, message):
    data = TIMELINE.to_json()
    change(data)
    with pytest.raises(TraceError, match=message):
        Timeline.from_json(data)


def test_events_are_cut_at_the_ends_of_the_recording():
    timeline = build(
        10, [("cpu(0)", "a", "compute", -5, 2), ("cpu(0)", "b", "copy", 9, 30), ("cpu(0)", "c", "copy", 11, 12)]
    )
    assert [(event.name, event.start, event.end) for event in timeline.events] == [("a", 0.0, 2e-6), ("b", 9e-6, 1e-5)]
    touching = build(
        10, [("cpu(0)", "a", "copy", -5, 0), ("cpu(0)", "b", "copy", 10, 30), ("cpu(0)", "c", "copy", -5, -1)]
    )
    assert [(event.name, event.start, event.end) for event in touching.events] == [("a", 0.0, 0.0), ("b", 1e-5, 1e-5)]
