from __future__ import annotations

import json
import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from mxdp.backend import mx, np, npx
from mxdp.errors import TraceError
from mxdp.experiments import timelines
from mxdp.experiments.memory_use import peak_bytes
from mxdp.process import cores
from mxdp.tracing import record, recording, section
from mxdp.tracing.mxnet_trace import Trace, TracePair

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


def test_two_devices_a_copy_and_another_kind(tmp_path):
    with record(devices=[mx.cpu(0), mx.cpu(1)], kinds={"_npi_ones": "upload"}) as recorded:
        np.ones((9,), ctx=mx.cpu(1)).copyto(mx.cpu(0))
    assert [(e.name, e.kind) for e in recorded.timeline.lanes["cpu(1)"] if e.kind != "engine"] == [
        ("_npi_ones", "upload"),
        ("CopyCPU2CPU", "copy"),
    ]
    assert json.loads(recorded.save(tmp_path / "trace.json").read_text())["traceEvents"]


def test_python_and_the_devices_have_one_clock(a):
    with record() as recorded:
        with section("outer"):
            time.sleep(0.02)
            (a + a).wait_to_read()
        time.sleep(0.02)
    timeline = recorded.timeline
    [(start, end)] = timeline.python(name="outer")
    (wait,) = [e for e in timeline.lanes["python"] if e.name == "MXNDArrayWaitToRead"]
    (add,) = [e for e in timeline.lanes["cpu(0)"] if e.name == "_npi_add"]
    slack = 0.0005
    assert start + 0.02 - slack <= add.start <= add.end <= wait.end + slack
    assert wait.end <= end + slack
    assert end + 0.02 <= timeline.length + slack


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


def test_mxnets_store_uses_pinned_memory_on_the_first_devices_worker(a):
    """Its name there is that of another CPU device, which does not appear."""
    store = mx.kv.create("local")
    data = [a, a.copyto(mx.cpu(1))]
    store.init(0, a)
    with record() as recorded:
        store.pushpull(0, data, out=data)
    assert recorded.timeline.devices == ["cpu(0)", "cpu(1)"]
    kinds = {event.name: event.kind for event in recorded.timeline.lanes["cpu(0)"]}
    assert (kinds["KVStoreReduce"], kinds["CopyCPU2CPU"]) == ("all-reduce", "copy")


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
