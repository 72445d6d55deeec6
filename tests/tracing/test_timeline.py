"""Timelines, what they are made of, what they are written as, and their pictures."""

import io
import json
from collections import defaultdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mxdp.errors import TraceError
from mxdp.tracing.chrome import chrome_trace, write_chrome_trace
from mxdp.tracing.events import DEVICE_KINDS, PYTHON, PYTHON_KINDS, call_kind, operator_kind
from mxdp.tracing.gantt import LANE_INCHES, LEGEND_INCHES, LOOKS, boxes, draw, shorten
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


MS = 1000
TIMELINE = build(
    100 * MS,
    [
        ("cpu(0)", "Convolution", "compute", 0, 50 * MS),
        ("cpu(0)", "CopyCPU2CPU", "copy", 40 * MS, 60 * MS),
        ("cpu(1)", "_npi_multiply_scalar", "compute", 20 * MS, 90 * MS),
        ("cpu(1)", "elemwise_add", "all-reduce", 90 * MS, 100 * MS),
        ("cpu(1)", "DeleteVariable", "engine", 5 * MS, 5 * MS + 3),
        ("python", "input", "section", 0, 30 * MS),
        ("python", "step", "section", 0, 100 * MS),
        ("python", "MXNDArrayWaitAll", "wait", 30 * MS, 100 * MS),
    ],
)

COLOURS = {kind: colour for kind, (_, colour) in LOOKS.items()}


def drawn(timeline=TIMELINE, width=10, **more):
    figure = Figure(figsize=(width, 3), layout="constrained")
    draw(figure, timeline, **more)
    return figure


def bars(figure):
    """Colour to the (left, right, top, bottom) of its bars."""
    spans = {}
    for collection in figure.axes[0].collections:
        for path in collection.get_paths():
            box = path.get_extents()
            spans.setdefault(to_hex(collection.get_facecolor()[0]).upper(), []).append(
                tuple(round(float(edge), 2) for edge in (box.x0, box.x1, box.y0, box.y1))
            )
    return spans


def test_a_lane_a_device_and_colours_that_tell_kinds_apart():
    figure = drawn(title="a step")
    figure.savefig(io.BytesIO(), format="png")
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cpu(0)\n60% busy", "cpu(1)\n80% busy", "Python"]
    assert (axes.get_xlabel(), "a step" in (axes.get_title(), axes.get_title(loc="left"))) == ("ms", True)
    spans = bars(figure)
    assert [span[:2] for span in spans[COLOURS["compute"]]] == [(0, 49.9), (20, 89.9)]
    assert [spans[COLOURS[kind]][0][:2] for kind in ("copy", "all-reduce")] == [(40, 59.9), (90, 99.9)]
    # Copies are below compute in the lane, so that overlap is visible.
    assert spans[COLOURS["copy"]][0][2] >= spans[COLOURS["compute"]][0][3]
    assert COLOURS["engine"] not in spans
    shown = [text.get_text() for text in figure.legends[0].get_texts()]
    assert shown == ["compute", "copy", "all-reduce (sums)", "Python waits", "input"]


def test_each_further_lane_makes_the_picture_as_much_higher():
    one, two, five = [[(f"cpu({n})", "dot", "compute", 0, 9) for n in range(count)] for count in (1, 2, 5)]
    heights = [drawn(build(9, events)).get_figheight() for events in (one, two, five)]
    heights.append(drawn(build(9, [("cpu(0)", "ImperativeBulk", "compute", 0, 9)])).get_figheight())  # with a note
    expected = [0, LANE_INCHES, 4 * LANE_INCHES, LEGEND_INCHES]
    assert [height - heights[0] for height in heights] == pytest.approx(expected)


def test_what_runs_at_the_same_time_on_one_device_lies_in_strips():
    events = [
        ("cpu(0)", "dot", "compute", 0, 40 * MS),
        ("cpu(0)", "dot", "compute", 10 * MS, 50 * MS),
        ("cpu(0)", "dot", "compute", 40 * MS, 80 * MS),
        ("cpu(0)", "CopyCPU2CPU", "copy", 20 * MS, 60 * MS),
        ("cpu(0)", "mxdp job", "engine", 0, 30 * MS),
    ]
    figure = drawn(build(100 * MS, events))
    (left, right, top, bottom), (_, _, *again), (other_left, other_right, other_top, other_bottom) = bars(figure)[
        COLOURS["compute"]
    ]
    assert (left, right, other_left, other_right) == (0, 39.9, 10, 49.9)
    assert [top, bottom] == again
    assert bottom < other_top < other_bottom <= bars(figure)[COLOURS["copy"]][0][2]
    # Copies keep their strip, and the engine all of the upper part: it is drawn behind the work.
    assert bars(figure)[COLOURS["copy"]] == [(20, 59.9, 0.64, 0.92)]
    assert bars(figure)[COLOURS["engine"]] == [(0, 29.9, 0.08, 0.64)]
    names = [(text.get_text(), *(round(float(at), 2) for at in text.get_position())) for text in figure.axes[0].texts]
    assert names == [("dot", 20, 0.21), ("dot", 60, 0.21), ("dot", 30, 0.51), ("CopyCPU2CPU", 40, 0.78)]


def test_a_short_sum_is_seen_and_one_close_to_the_next_does_not_cover_it():
    sums = [("cpu(0)", "elemwise_add", "all-reduce", int(at * MS), int(at * MS) + 10) for at in (20, 60.0, 60.5)]
    alone = [("cpu(1)", "dot", "compute", 0, 90 * MS), ("cpu(1)", "CopyCPU2CPU", "copy", 95 * MS, 100 * MS)]
    figure = drawn(build(100 * MS, sums + alone))
    assert [span[:2] for span in bars(figure)[COLOURS["all-reduce"]]] == [(20, 20.8), (60, 60.4), (60.5, 61.3)]
    assert "drawn wider" in figure.axes[0].get_xlabel()
    assert "wider" not in drawn(build(100 * MS, alone)).axes[0].get_xlabel()
    assert drawn(build(10_000 * MS, alone)).axes[0].get_xlabel().startswith("s\n")


def test_a_networks_pass_has_the_pass_as_its_name():
    passes = [("[Convolution,Pooling,_npi_mean", 0, 40), ("[_npi_ones_like,_backward_mean,_backward_Pooli", 40, 100)]
    whole = build(100 * MS, [("cpu(0)", name, "compute", start * MS, end * MS) for name, start, end in passes])
    assert [text.get_text() for text in drawn(whole).axes[0].texts] == ["forward", "backward"]
    assert shorten("abcdef", 5) == "abcd…"
    assert boxes(whole)["names"] == [f"forward {passes[0][0]}", f"backward {passes[1][0]}"]
    assert [box[-2:] for box in boxes(whole)["lanes"][0]["boxes"]] == [[0, 40 * MS], [40 * MS, 60 * MS]]


def test_many_events_are_few_bars():
    spans = [(0, 60_000), (90_000, 150_000), (190_000, 200_000)]
    events = [("cpu(0)", "a", "compute", at, at + 40) for span in spans for at in range(*span, 50)]
    figure = drawn(build(200_000, events))
    assert [bar[:2] for bar in bars(figure)[COLOURS["compute"]]] == [(0, 59.79), (90, 149.79), (190, 199.79)]
    assert (len(figure.axes[0].collections), len(figure.axes[0].texts)) == (1, 0)


def test_a_part_and_no_work_no_picture():
    figure = drawn(start=0.05, stop=0.07)
    assert figure.axes[0].get_xlim() == pytest.approx((50, 70))
    assert [text.get_position()[0] for text in figure.axes[0].texts] == pytest.approx([55, 60, 60])
    assert bars(figure)[COLOURS["copy"]] == [(50, 59.98, 0.64, 0.92)]
    with pytest.raises(TraceError, match="no device worked"):
        drawn(build(100, [("python", "waitall", "wait", 0, 100)]))
