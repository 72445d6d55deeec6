"""Timelines, what they are made of, and what they are written as."""

from __future__ import annotations

import json
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import TraceError
from mxdp.tracing.chrome import chrome_trace, write_chrome_trace
from mxdp.tracing.events import (
    DEVICE_KINDS,
    PYTHON,
    PYTHON_KINDS,
    call_kind,
    operator_kind,
)
from mxdp.tracing.intervals import at_least, intersect, merge, subtract, total, within
from mxdp.tracing.timeline import Timeline, build

END = 40
POINTS = st.integers(0, END)
ANY = st.lists(st.tuples(POINTS, POINTS).map(lambda pair: (min(pair), max(pair))), max_size=8)


def moments(intervals):
    """Brute force: each moment between two whole numbers is in or out."""
    return {moment for start, end in intervals for moment in range(start, end)}


def tidy(intervals):
    """The same moments, after checking that these intervals are not empty, do not touch and are in order."""
    assert all(start < end for start, end in intervals)
    assert all(end < start for (_, end), (start, _) in zip(intervals, intervals[1:]))
    return moments(intervals)


@given(sets=st.lists(ANY, min_size=2, max_size=4), start=POINTS, end=POINTS, count=st.integers(1, 4))
def test_each_is_what_brute_force_says(sets, start, end, count):
    left, right, *_ = merged = [merge(intervals) for intervals in sets]
    assert [tidy(intervals) for intervals in merged] == list(map(moments, sets))
    assert total(left) == len(moments(left))
    assert tidy(intersect(left, right)) == moments(left) & moments(right)
    assert tidy(subtract(left, right)) == moments(left) - moments(right)
    assert tidy(within(left, start, end)) == moments(left) & set(range(start, end))
    often = {moment for moment in range(END) if sum(moment in moments(spans) for spans in merged) >= count}
    assert tidy(at_least(count, merged)) == often


NAMES = {
    "compute": ("Convolution", "_npi_add", "_copy"),
    "copy": ("CopyCPU2CPU", "CopyGPU2CPU", "_copyto_GPU2GPU"),
    "upload": ("CopyCPU2GPU",),
    "all-reduce": ("broadcast_add", "elemwise_add", "add_n", "KVStoreReduce"),
    "engine": ("DeleteVariable", "WaitForVar", "mxdp job", "ResourceParallelRandomSetSeed"),
    "wait": ("MXNDArrayWaitAll", "MXNDArrayWaitToRead", "MXNDArraySyncCopyToCPU"),
    "call": ("MXImperativeInvokeEx", "MXAutogradBackwardEx"),
}


def test_the_name_tells_the_kind_and_can_be_overridden():
    for kind, names in NAMES.items():
        for name in names:
            assert (call_kind if name.startswith("MX") else operator_kind)(name) == kind
    assert operator_kind("elemwise_add", {"elemwise_add": "compute"}) == "compute"
    assert operator_kind("add_n", {"elemwise_add": "compute"}) == "all-reduce"


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


def test_devices_are_in_the_order_of_their_numbers_and_python_is_last():
    events = [(lane, "a", "engine", 0, 1) for lane in ("gpu(1)", "cpu(10)", "cpu(2)")]
    timeline = build(9, [(PYTHON, "a", "call", 0, 1), *events])
    assert list(timeline.lanes) == ["cpu(2)", "cpu(10)", "gpu(1)", PYTHON]
    with pytest.raises(ValueError, match=r"cpu\(7\).*there are events on cpu\(2\), cpu\(10\), gpu\(1\), python"):
        timeline.spans("cpu(7)")
    with pytest.raises(TraceError, match="no device worked"):
        _ = timeline.critical


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
    data = build(9, [("cpu(0)", "dot", "compute", 0, 4)]).to_json()
    change(data)
    with pytest.raises(TraceError, match=message):
        Timeline.from_json(data)


def test_events_are_cut_at_the_ends_of_the_recording():
    spans = [(-5, -1), (-5, 0), (-5, 2), (9, 30), (10, 30), (11, 12)]
    cut = build(10, [("cpu(0)", "a", "copy", *span) for span in spans])
    assert [(event.start, event.end) for event in cut.events] == [(0, 0), (0, 2e-6), (9e-6, 1e-5), (1e-5, 1e-5)]
    for start, stop in ((5e-6, 5e-6), (-1e-6, 5e-6), (0, 1.0)):
        with pytest.raises(ValueError, match="a part lies between"):
            cut.between(start, stop)


HOSTILE = st.text(max_size=8) | st.sampled_from(['a "quoted" name', "</script>", "\\", "\ud800", "\0", "cpu(²)"])


@settings(max_examples=50)
@given(timelines(HOSTILE))
def test_what_is_written_is_read_back_and_no_two_events_in_a_row_overlap(tmp_path_factory, timeline):
    path = write_chrome_trace(timeline, tmp_path_factory.getbasetemp() / "trace.json")
    trace = json.loads(path.read_text(encoding="utf-8"))
    assert trace == chrome_trace(timeline)
    lanes, order, events, rows = {}, {}, [], defaultdict(list)
    for record in trace["traceEvents"]:
        if record["ph"] == "M":
            (lanes if record["name"] == "process_name" else order)[record["pid"]] = [*record["args"].values()]
            continue
        assert (record["tid"] > 100) == (record["cat"] != "section")
        start, stop = record["ts"], record["ts"] + record["dur"]
        (lane,) = lanes[record["pid"]]
        events.append((lane, record["name"], record["cat"], start, stop))
        rows[record["pid"], record["tid"]].append((start, stop))
    assert build(50, events) == timeline
    assert [lane for (lane,) in lanes.values()] == list(timeline.lanes)
    assert order == {number: [number] for number in lanes}
    for row in rows.values():
        assert all(before <= after for (_, before), (after, _) in zip(row, row[1:]))


def test_what_cannot_be_written_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(TraceError, match=r"can't write the trace: .* \((Not a directory|File exists)"):
        write_chrome_trace(build(9, [("cpu(0)", "dot", "compute", 0, 5)]), tmp_path / "file" / "trace.json")
