"""The traces in ``traces/`` are MXNet's own: see ``record_traces.py``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mxdp.errors import TraceError
from mxdp.tracing.mxnet_trace import parse
from mxdp.tracing.timeline import build

TRACES = Path(__file__).parent / "traces"
FIRST = (TRACES / "first.json").read_text(encoding="utf-8")
NAMES = {0: "cpu/0", 1: "cpu/1", 2: "cpu pinned/", 3: "cpu shared/"}


def parsed(text, names=NAMES):
    trace = parse(text, names)
    trace.thread = trace.calls[0].thread
    return trace


def read(name):
    """The timeline in one of ``traces/``, from its first event to its last."""
    events = parsed((TRACES / name).read_text(encoding="utf-8")).events()
    first, last = min(event[3] for event in events), max(event[4] for event in events)
    return build(last - first, [(*event[:3], event[3] - first, event[4] - first) for event in events])


def refused(text):
    """The message with which this text is refused."""
    with pytest.raises(TraceError) as caught:
        parse(text, NAMES)
    sentence = str(caught.value)
    assert sentence.startswith("MXNet's trace is damaged or cut off")
    assert "\n" not in sentence
    return sentence


def changed(change):
    document = json.loads(FIRST)
    change(document)
    return json.dumps(document)


def operators(timeline, device):
    return [(event.name, event.kind) for event in timeline.lanes[device] if event.kind != "engine"]


def test_a_recorded_trace():
    timeline = read("first.json")
    assert timeline.devices == ["cpu(0)", "cpu(1)"]
    allreduce = [("Reshape", "compute"), ("CopyCPU2CPU", "copy"), ("broadcast_add", "all-reduce")]
    assert operators(timeline, "cpu(0)") == [*allreduce, ("_np_dot", "compute")]
    assert operators(timeline, "cpu(1)") == allreduce
    product = timeline.lanes["cpu(0)"][3]
    begin, end = (
        next(e["ts"] for e in json.loads(FIRST)["traceEvents"] if e["name"] == "_np_dot" and e["ph"] == phase)
        for phase in "BE"
    )
    assert round((product.end - product.start) * 1e6) == end - begin
    waits = [event.name for event in timeline.lanes["python"] if event.kind == "wait"]
    assert waits == ["MXNDArrayWaitToRead", "MXNDArrayWaitAll"]
    assert sum(event.name == "MXImperativeInvokeEx" for event in timeline.lanes["python"]) == 7
    assert timeline.events[0].start == 0.0
    assert max(event.end for event in timeline.events) == timeline.length


def test_devices_that_mxnet_puts_under_other_names():
    """cpu(2) and cpu(3) on two processors; cpu(0)'s worker handles pinned memory."""
    timeline = read("other.json")
    assert timeline.devices == ["cpu(0)", "cpu(2)", "cpu(3)"]
    names = [[name for name, _ in operators(timeline, device)] for device in timeline.devices]
    assert names == [["CopyCPU2CPU", "KVStoreReduce", "CopyCPU2CPU", "CopyCPU2CPU"], ["CopyCPU2CPU"], ["_zeros"]]


def test_on_a_single_device_a_sum_is_a_sum():
    def one_device(document):
        document["traceEvents"] = [e for e in document["traceEvents"] if not (e["ph"] in "BE" and e["pid"] == 1)]

    trace = parsed(changed(one_device))
    kinds = {name: kind for device, name, kind, *_ in trace.events() if device == "cpu(0)"}
    assert kinds["broadcast_add"] == "compute"
    told = {
        name: kind for device, name, kind, *_ in trace.events({"broadcast_add": "all-reduce"}) if device == "cpu(0)"
    }
    assert told["broadcast_add"] == "all-reduce"


def test_a_gpu_builds_names():
    def with_gpus(document):
        for event in document["traceEvents"]:
            if event["ph"] == "M" and event["pid"] in (1, 2):
                event["args"]["name"] = {1: "gpu/0", 2: "gpu/1"}[event["pid"]]

    assert {device for device, *_ in parsed(changed(with_gpus)).events()} == {"cpu(0)", "gpu(0)", "python"}


def test_a_second_trace_has_no_names_but_they_can_be_given():
    second = (TRACES / "second.json").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="Expecting"):
        json.loads(second)
    first, again = ([event[:3] for event in parsed(text).events() if event[2] != "engine"] for text in (FIRST, second))
    assert sorted(first) == sorted(again)


@pytest.mark.parametrize(
    "text",
    [
        *("", " \n", "[1, 2]", '{"traceEvents": 3}', '{"answer": 42}', "<html></html>"),
        '{"traceEvents": [{"ph": "B", "name": "a", "cat": "b", "ts": 1}]}',
        *(FIRST[:length] for length in (1, 30, len(FIRST) // 2, len(FIRST) // 2 + 7, len(FIRST) - 3)),
        FIRST.replace('"ts"', '"ts', 1),
        FIRST.replace('"ph": "E"', '"ph": "B"', 1),
        FIRST.replace('"ph": "B"', '"ph": "E"', 1),
    ],
)
def test_what_is_no_trace_or_cut_off(text):
    assert refused(text)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events, begin, end: begin.pop("ts"), "is damaged"),
        (lambda events, begin, end: begin.pop("ph"), "is damaged"),
        (lambda events, begin, end: begin.update(ts="noon"), "is damaged"),
        (lambda events, begin, end: begin.update(ts=10**18), "is damaged"),  # begins after its end
        (lambda events, begin, end: events.remove(end), "Reshape"),
        (lambda events, begin, end: events.insert(0, begin), "two begins of Reshape"),
    ],
)
def test_events_that_are_not_as_mxnet_writes_them(change, message):
    def damage(document):
        events = document["traceEvents"]
        change(events, *(next(event for event in events if event["ph"] == phase) for phase in "BE"))

    assert message in refused(changed(damage))


def test_tasks_of_mxnets_own_profiler_are_sections():
    def with_task(document):
        common = {"name": "epoch", "cat": "mine", "pid": 77, "tid": thread(document)}
        document["traceEvents"] += [{**common, "ph": phase, "ts": 10**16 + n} for n, phase in enumerate("be")]

    def thread(document):
        return next(event["tid"] for event in document["traceEvents"] if event.get("cat") == "MXNET_C_API")

    events = parsed(changed(with_task)).events()
    assert ("python", "epoch", "section", 10**16, 10**16 + 1) in events
