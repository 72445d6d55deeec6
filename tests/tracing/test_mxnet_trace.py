"""Traces are written here as MXNet 1.9.1 writes them; what it really writes, ``test_recording.py`` records."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.errors import TraceError
from mxdp.tracing.mxnet_trace import PINNED, SHARED, parse

CPUS = ["cpu/0", "cpu/1", PINNED, SHARED]
WITH_GPUS = ["cpu/0", "cpu/1", "gpu/0", PINNED, SHARED]
FIRST_THREAD, OWN_THREAD, MAIN, OTHER = 100, 101, 7, 8
OPERATORS = {"Convolution": "compute", "CopyCPU2CPU": "copy", "add_n": "all-reduce", "DeleteVariable": "engine"}
CALLS = {"MXNDArrayWaitAll": "wait", "MXImperativeInvokeEx": "call"}
TIMES = st.tuples(st.integers(0, 10**15), st.integers(0, 99)).map(lambda pair: (pair[0], sum(pair)))
OF_DEVICES = st.tuples(st.integers(0, 4), st.booleans(), st.sampled_from(sorted(OPERATORS)), TIMES)
OF_PYTHON = st.tuples(st.sampled_from([MAIN, OTHER]), st.sampled_from([*CALLS, "epoch"]), TIMES)


def records(names, of_devices, of_python):
    """A mark, each pair after the other, and operators once more in a pair without their device."""
    found = [
        {"name": "process_name", "ph": "M", "pid": number, "args": {"name": name}} for number, name in enumerate(names)
    ]
    found.append({"name": "begin 0", "cat": "mxdp_instant_marker", "ph": "n", "ts": 5, "pid": 0, "tid": MAIN})
    pairs = []
    for process, thread, name, times in of_devices:
        pairs += [("BE", process, thread, "operator", name, times), ("be", 99, thread, "operator", name, times)]
    for thread, name, times in of_python:
        pairs.append(("be", 99, thread, "MXNET_C_API" if name in CALLS else "mine", name, times))
    for phases, process, thread, category, name, times in pairs:
        for phase, time in zip(phases, times):
            found.append({"name": name, "cat": category, "ph": phase, "ts": time, "pid": process, "tid": thread})
    return found


def text(records, first=True):
    """Only a process's first trace names its devices; later ones begin with a comma, which is not JSON."""
    if not first:
        records = [record for record in records if record["ph"] != "M"]
    lines = ",\n".join(map(json.dumps, records))
    return f'{{\n    "traceEvents": [{"" if first else ","}\n{lines}\n], "displayTimeUnit": "ms"}}'


@given(
    gpus=st.booleans(),
    first=st.booleans(),
    drawn=st.lists(OF_DEVICES, max_size=6),
    of_python=st.lists(OF_PYTHON, max_size=4),
    given_kinds=st.sampled_from([{}, {"add_n": "all-reduce"}, {"Convolution": "upload"}]),
)
def test_what_mxnet_writes_is_read_back(gpus, first, drawn, of_python, given_kinds):
    """In a CPU build the places of other memories are two more CPU devices', unless the worker of cpu(0) uses them."""
    names = WITH_GPUS if gpus else CPUS
    of_devices = [(0, FIRST_THREAD, "Convolution", (1, 2))]
    for process, own, name, times in drawn:
        if process < len(names):
            thread = FIRST_THREAD if process == 0 or not own else OWN_THREAD + process
            of_devices.append((process, thread, name, times))
    rows = []
    for process, thread, name, times in of_devices:
        kind, _, number = names[process].partition("/")
        device = f"{kind}({number})"
        if not number:
            device = "cpu(0)" if gpus or thread == FIRST_THREAD else f"cpu({process})"
        rows.append((device, name, given_kinds.get(name) or OPERATORS[name], *times))
    if len({device for device, _, kind, *_ in rows if kind != "engine"}) == 1 and "add_n" not in given_kinds:
        # On a single device a sum is a sum.
        rows = [(*row[:2], "compute" if row[2] == "all-reduce" else row[2], *row[3:]) for row in rows]
    for thread, name, times in of_python:
        lane = "python" if thread == MAIN else "python, other threads"
        rows.append((lane, name, CALLS.get(name, "section"), *times))
    trace = parse(text(records(names, of_devices, of_python), first), {} if first else dict(enumerate(names)))
    assert sorted(trace.events(given_kinds)) == sorted(rows)
    assert (trace.marks, trace.thread) == ({"begin 0": 5}, MAIN)


SMALL = records(CPUS, [(0, 100, "Reshape", (10, 20)), (1, 101, "add_n", (30, 40))], [(MAIN, "epoch", (1, 50))])
WHOLE = text(SMALL)


def refused(damaged):
    """The message with which this text is refused."""
    with pytest.raises(TraceError) as caught:
        parse(damaged, {})
    sentence = str(caught.value)
    assert sentence.startswith("MXNet's trace is damaged or cut off")
    assert "\n" not in sentence
    return sentence


@given(st.integers(0, len(WHOLE) - 1))
def test_a_trace_that_is_cut_off_anywhere_is_refused(length):
    parse(WHOLE, {})
    refused(WHOLE[:length])


@pytest.mark.parametrize(
    "other", [" \n", "[1, 2]", '{"traceEvents": 3}', '{"answer": 42}', WHOLE.replace('"ts"', '"ts')]
)
def test_what_is_no_trace_is_refused(other):
    refused(other)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events, begin, end: begin.pop("ts"), "KeyError: 'ts'"),
        (lambda events, begin, end: begin.update(ts="noon"), "ValueError"),
        (lambda events, begin, end: begin.update(ts=10**18), "Reshape ends before it begins"),
        (lambda events, begin, end: events.remove(end), "1 events begin and do not end, the first of them Reshape"),
        (lambda events, begin, end: events.insert(0, begin), "two begins of Reshape"),
    ],
)
def test_events_that_are_not_as_mxnet_writes_them(change, message):
    events = json.loads(json.dumps(SMALL))
    change(events, *(next(event for event in events if event["ph"] == phase) for phase in "BE"))
    assert message in refused(text(events))
