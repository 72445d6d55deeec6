"""The traces in ``traces/`` are MXNet's own: see ``record_traces.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxdp.errors import TraceError
from mxdp.tracing.mxnet_trace import document_of, parse, read_trace

TRACES = Path(__file__).parent / "traces"
FIRST = (TRACES / "first.json").read_text(encoding="utf-8")
NAMES = {0: "cpu/0", 1: "cpu/1", 2: "cpu pinned/", 3: "cpu shared/"}


@pytest.fixture
def refused(tmp_path):
    """The message with which a file of this text is refused."""

    def read(text):
        path = tmp_path / "trace.json"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(TraceError) as caught:
            read_trace(path)
        sentence = str(caught.value)
        assert sentence.startswith((str(path), f"can't read the trace {path}"))
        assert "\n" not in sentence
        return sentence

    return read


def parsed(text, names=None):
    return parse(document_of(text, "text"), "text", names)


def changed(change):
    document = json.loads(FIRST)
    change(document)
    return json.dumps(document)


def operators(timeline, device):
    return [(event.name, event.kind) for event in timeline.lanes[device] if event.kind != "engine"]


def test_a_recorded_trace():
    timeline = read_trace(TRACES / "first.json")
    assert timeline.devices == ["cpu(0)", "cpu(1)"]
    copy_and_sum = [("CopyCPU2CPU", "copy"), ("elemwise_add", "all-reduce")]
    assert operators(timeline, "cpu(0)") == [*copy_and_sum, ("_np_dot", "compute")]
    assert operators(timeline, "cpu(1)") == copy_and_sum
    product = timeline.lanes["cpu(0)"][2]
    begin, end = (
        next(e["ts"] for e in json.loads(FIRST)["traceEvents"] if e["name"] == "_np_dot" and e["ph"] == phase)
        for phase in "BE"
    )
    assert round((product.end - product.start) * 1e6) == end - begin
    waits = [event.name for event in timeline.lanes["python"] if event.kind == "wait"]
    assert waits == ["MXNDArrayWaitToRead", "MXNDArrayWaitAll"]
    assert sum(event.name == "MXImperativeInvokeEx" for event in timeline.lanes["python"]) == 5
    assert timeline.events[0].start == 0.0
    assert max(event.end for event in timeline.events) == timeline.length


def test_kinds_can_be_overridden():
    timeline = read_trace(TRACES / "first.json", {"elemwise_add": "compute"})
    assert ("elemwise_add", "compute") in operators(timeline, "cpu(1)")


def test_devices_that_mxnet_puts_under_other_names():
    """cpu(2) and cpu(3) on two processors; cpu(0)'s worker handles pinned memory."""
    timeline = read_trace(TRACES / "other.json")
    assert timeline.devices == ["cpu(0)", "cpu(2)", "cpu(3)"]
    assert [name for name, _ in operators(timeline, "cpu(3)")] == ["_zeros"]
    assert [name for name, _ in operators(timeline, "cpu(2)")] == ["CopyCPU2CPU"]
    assert [name for name, _ in operators(timeline, "cpu(0)")] == [
        "CopyCPU2CPU",
        "KVStoreReduce",
        "CopyCPU2CPU",
        "CopyCPU2CPU",
    ]


def test_on_a_single_device_a_sum_is_a_sum():
    def one_device(document):
        document["traceEvents"] = [e for e in document["traceEvents"] if not (e["ph"] in "BE" and e["pid"] == 1)]

    trace = parsed(changed(one_device))
    kinds = {name: kind for device, name, kind, *_ in trace.events() if device == "cpu(0)"}
    assert kinds["elemwise_add"] == "compute"
    told = {name: kind for device, name, kind, *_ in trace.events({"elemwise_add": "all-reduce"}) if device == "cpu(0)"}
    assert told["elemwise_add"] == "all-reduce"


def test_a_gpu_builds_names():
    def with_gpus(document):
        for event in document["traceEvents"]:
            if event["ph"] == "M" and event["pid"] in (1, 2):
                event["args"]["name"] = {1: "gpu/0", 2: "gpu/1"}[event["pid"]]

    assert {device for device, *_ in parsed(changed(with_gpus)).events()} == {"cpu(0)", "gpu(0)", "python"}


def test_a_second_trace_has_no_names_but_they_can_be_given(refused):
    second = (TRACES / "second.json").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(second)
    assert "does not name its devices" in refused(second)
    first, again = (
        [event[:3] for event in parsed(text, NAMES).events() if event[2] != "engine"] for text in (FIRST, second)
    )
    assert sorted(first) == sorted(again)


@pytest.mark.parametrize("length", [1, 30, len(FIRST) // 2, len(FIRST) // 2 + 7, len(FIRST) - 3])
def test_a_trace_that_is_cut_off(refused, length):
    assert "is cut off" in refused(FIRST[:length])


def test_a_trace_of_a_profiler_that_still_runs(refused):
    assert "the profiler still runs" in refused((TRACES / "running.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is empty"),
        (" \n", "is empty"),
        ("[1, 2]", "not a trace"),
        ('{"traceEvents": 3}', "not a trace"),
        ('{"answer": 42}', "not a trace"),
        ("<html></html>", "not JSON"),
        (b"\x1f\x8b\x08\xff\xfe", "not text"),
        ('{"traceEvents": [{"ph": "X", "name": "a", "cat": "b", "ts": 1, "dur": 2, "pid": 1}]}', "none of MXNet's"),
        (FIRST.replace('"ts"', '"ts', 1), "not JSON"),
        (FIRST.replace('"ph": "E"', '"ph": "B"', 1), "is damaged"),
        (FIRST.replace('"ph": "B"', '"ph": "E"', 1), "is damaged"),
    ],
)
def test_what_is_no_trace(refused, text, message):
    assert message in refused(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events, begin, end: begin.pop("ts"), "is damaged"),
        (lambda events, begin, end: begin.pop("ph"), "is damaged"),
        (lambda events, begin, end: begin.update(ts="noon"), "is damaged"),
        (lambda events, begin, end: begin.update(ts=10**18), "is damaged"),  # begins after its end
        (lambda events, begin, end: events.remove(end), "CopyCPU2CPU"),
        (lambda events, begin, end: events.insert(0, begin), "two begins of CopyCPU2CPU"),
        (
            lambda events, *_: events.__setitem__(slice(None), [e for e in events if e["ph"] == "M"]),
            "holds no operator",
        ),
    ],
)
def test_events_that_are_not_as_mxnet_writes_them(refused, change, message):
    def damage(document):
        events = document["traceEvents"]
        change(events, *(next(event for event in events if event["ph"] == phase) for phase in "BE"))

    assert message in refused(changed(damage))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(TraceError, match=r"can't read the trace .*No such file"):
        read_trace(tmp_path / "none.json")
    with pytest.raises(TraceError, match="can't read the trace"):
        read_trace(tmp_path)


def test_tasks_of_mxnets_own_profiler_are_sections(tmp_path):
    def with_task(document):
        common = {"name": "epoch", "cat": "mine", "pid": 77, "tid": thread(document)}
        document["traceEvents"] += [{**common, "ph": phase, "ts": 10**16 + n} for n, phase in enumerate("be")]

    def thread(document):
        return next(event["tid"] for event in document["traceEvents"] if event.get("cat") == "MXNET_C_API")

    events = parsed(changed(with_task)).events()
    assert ("python", "epoch", "section", 10**16, 10**16 + 1) in events
