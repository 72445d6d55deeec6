import json
import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp import sections
from mxdp.backend import mx, np, npx
from mxdp.errors import TraceError
from mxdp.experiments import timelines
from mxdp.experiments.memory_use import peak_bytes
from mxdp.process import cores
from mxdp.sections import section
from mxdp.tracing import record, recording
from mxdp.tracing.mxnet_trace import PINNED, SHARED, Trace, TracePair, parse

ONE = mx.cpu(0)


@pytest.fixture
def a():
    array = np.ones((50, 50), ctx=ONE)
    npx.waitall()
    return array


def names(timeline, device="cpu(0)"):
    return [event.name for event in timeline.lanes[device] if event.kind == "compute"]


def test_what_runs_in_the_block_is_recorded_and_nothing_else(a):
    """Also in MXNet's second trace of a process, which has no names, and is not even JSON."""
    for work, name in ((lambda: a + a, "_npi_add"), (lambda: a * a, "_npi_multiply")):
        np.dot(a, a)
        with record() as recorded:
            work()
        np.dot(a, a).wait_to_read()
        assert names(recorded.timeline) == [name]


def test_two_at_a_time_are_refused_and_there_is_no_timeline_before_the_end_or_of_nothing(tmp_path):
    recorded = record()

    def refused(reason):
        for ask in (lambda: recorded.timeline, lambda: recorded.save(tmp_path / "trace.json")):
            with pytest.raises(TraceError, match=reason):
                ask()

    refused("the block has not been run")
    with recorded:
        refused("has not ended yet")
        with pytest.raises(TraceError, match="a recording is already running"):
            record().__enter__()
    refused("nothing is recorded: no operator ran in the block")


@pytest.mark.parametrize(
    ("work", "error"), [(lambda a: {}[(a + a).shape], KeyError), (lambda a: np.linalg.cholesky(-a), mx.MXNetError)]
)
def test_a_block_that_fails_is_stopped_and_forgotten(a, work, error):
    """Python fails in the block, MXNet at the fence."""
    with pytest.raises(error), record() as failed:
        work(a)
    with pytest.raises(TraceError, match="the block failed"):
        _ = failed.timeline
    with record() as recorded:
        a + a
    assert names(recorded.timeline) == ["_npi_add"]


def test_a_device_that_would_abort_the_process_is_refused_and_another_profiler(a, monkeypatch):
    last = mx.cpu(cores() + 1)
    with record([last]) as recorded:
        np.ones((2,), ctx=last)
    assert recorded.timeline.devices == [str(last)]
    with pytest.raises(TraceError, match=rf"can't record cpu\({cores() + 2}\).*up to cpu\({cores() + 1}\)"):
        record([a.ctx, mx.cpu(cores() + 2)]).__enter__()
    monkeypatch.setenv("MXNET_PROFILER_AUTOSTART", "1")
    with pytest.raises(TraceError, match="MXNET_PROFILER_AUTOSTART is set"):
        record().__enter__()


def test_a_gpu_build_records_fewer_cpu_devices_and_all_who_ask_agree(monkeypatch):
    """In the profiler's places for other memories, a CPU build has two more CPU devices."""
    last, beyond, gpu = mx.cpu(cores() - 1), mx.cpu(cores()), mx.gpu(31)
    assert recording.can_record([last, beyond, mx.cpu(cores() + 1), gpu])
    monkeypatch.setattr(mx.runtime, "Features", lambda: SimpleNamespace(is_enabled=lambda name: name == "CUDA"))
    assert recording.can_record([last, gpu])
    assert not recording.can_record([last, beyond])
    with pytest.raises(TraceError, match=rf"can't record cpu\({cores()}\).*up to cpu\({cores() - 1}\)"):
        record([beyond]).__enter__()
    assert timelines.recorded(lambda: None, [beyond]) == {}
    with pytest.raises(TraceError, match="can't count the memory of cpu"):
        peak_bytes(lambda: None, [beyond])


def test_mxnets_store_uses_pinned_memory_on_the_first_devices_worker(a, tmp_path):
    """Its name there is that of another CPU device, which does not appear."""
    store = mx.kv.create("local")
    data = [a, a.copyto(mx.cpu(1))]
    store.init(0, a)
    with record(devices=[mx.cpu(0), mx.cpu(1)], kinds={"_npi_ones": "upload"}) as recorded:
        store.pushpull(0, data, out=data)
        np.ones((9,), ctx=mx.cpu(1))
    assert recorded.timeline.devices == ["cpu(0)", "cpu(1)"]
    kinds = {event.name: event.kind for event in recorded.timeline.events}
    assert [kinds[name] for name in ("KVStoreReduce", "CopyCPU2CPU", "_npi_ones")] == ["all-reduce", "copy", "upload"]
    assert json.loads(recorded.save(tmp_path / "trace.json").read_text())["traceEvents"]


def test_another_thread_inside_mxnet_is_refused(a):
    """MXNet would abort. The thread's frame is a function whose file name is one of MXNet's."""
    file = os.path.join(os.path.dirname(mx.__file__), "ndarray", "x.py")
    leave = []
    thread = threading.Thread(target=lambda: exec(compile("while not leave: pass", file, "exec"), {"leave": leave}))
    thread.start()
    deadline = time.monotonic() + 60
    try:
        while sys._current_frames()[thread.ident].f_code.co_filename != file:
            assert time.monotonic() < deadline
        with pytest.raises(TraceError, match="is inside a call of MXNet"):
            record().__enter__()
    finally:
        leave.append(True)
        thread.join()


def test_sections_are_put_on_mxnets_clock_by_the_mark_that_was_set_fastest():
    marks = {f"{end} {number}": at + number for end, at in (("begin", 1000), ("end", 1010)) for number in range(3)}
    trace = Trace({0: "cpu/0"}, [TracePair(0, 5, "a", 1003, 1004)], marks=marks, thread=5)

    def readings(end, at):
        return [(f"{end} 0", at - 0.1, 2e-4), (f"{end} 1", at + 1e-6, 1e-6), (f"{end} 2", at, 1e-4)]

    marked = [("input", 43e-6, 44e-6, True), ("other", 45e-6, 46e-6, False)]
    timeline, problem = recording.assemble(
        trace, marked, {"begin": readings("begin", 40e-6), "end": readings("end", 50e-6)}
    )
    rows = [(event.device, event.name, round(event.start * 1e6), round(event.end * 1e6)) for event in timeline.events]
    assert (problem, round(timeline.length * 1e6)) == ("", 8)
    assert rows == [("cpu(0)", "a", 1, 2), ("python", "input", 1, 2), ("python, other threads", "other", 3, 4)]
    with pytest.raises(TraceError, match=r"clock moved by 3\.000 s"):
        recording.assemble(trace, [], {"begin": readings("begin", 40e-6), "end": readings("end", 3 + 50e-6)})


# Traces are written here as MXNet 1.9.1 writes them.

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
        for phase, at in zip(phases, times):
            found.append({"name": name, "cat": category, "ph": phase, "ts": at, "pid": process, "tid": thread})
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
def test_a_trace_that_is_cut_off_anywhere_and_what_is_no_trace_are_refused(length):
    parse(WHOLE, {})
    for other in (WHOLE[:length], "[1, 2]", '{"traceEvents": 3}', '{"answer": 42}', WHOLE.replace('"ts"', '"ts')):
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
