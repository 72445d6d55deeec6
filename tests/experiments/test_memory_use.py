import gc
import json

import numpy as onp
import pytest

from mxdp import process
from mxdp.backend import mx, np, npx
from mxdp.experiments import memory_use
from mxdp.experiments.memory_use import MARK, grown, peak_bytes, read_peaks, taken

MB = 1_000_000
SIZE = 80 * MB
"""Of an array: more than the 64 MB at the end of a thread's arena, which glibc can't give back, and than the free
places between what other tests have left in this process's heap."""


def filled(count):
    arrays = [np.ones((SIZE // 4,)) for _ in range(count)]
    npx.waitall()
    return arrays


@pytest.fixture(params=["system", "sampled"])
def measured(request, tmp_path, monkeypatch):
    """As on Linux, and as where there is no /proc."""
    if request.param == "sampled":
        monkeypatch.setattr(memory_use, "CLEAR", tmp_path / "none" / "clear_refs")
    return grown


def test_it_is_the_most_at_a_time_also_in_memory_that_was_free_before_but_not_in_what_is_kept(measured):
    def work():
        filled(4)
        memory_use.give_back()  # the engine frees arrays some time after their last use
        filled(2)

    kept = filled(2)
    filled(6)
    for _ in range(2):
        assert 3.75 * SIZE < measured(work) < 5.25 * SIZE
    assert len(kept) == 2


def test_work_that_still_runs_at_the_end_counts(measured):
    x = np.ones((1200, 1200))

    def work():
        y = np.dot(x, x)
        return [np.ones((SIZE // 4,)) + y[0, 0] for _ in range(4)]

    assert measured(work) > 3.75 * SIZE


def test_memory_that_nobody_writes_is_not_there(measured):
    assert measured(lambda: onp.empty(64 * MB // 4, dtype="float32")) < 8 * MB


def test_an_error_goes_through_and_no_thread_stays(measured):
    before = memory_use.threading.active_count()
    with pytest.raises(ZeroDivisionError):
        measured(lambda: 1 / 0)
    assert memory_use.threading.active_count() == before


def test_a_c_library_without_trim_is_no_hindrance(monkeypatch):
    monkeypatch.setattr(memory_use.ctypes, "CDLL", lambda name: object())
    assert grown(lambda: filled(1)) >= 0


def test_what_an_action_takes_is_this_processs_or_on_a_gpu_mxnets_own_count(monkeypatch):
    assert 3.75 * SIZE < taken(lambda: filled(4), mx.cpu(0)) < 5.25 * SIZE
    asked = []
    monkeypatch.setattr(memory_use, "peak_bytes", lambda action, devices: asked.append((action(), devices)) or [7])
    assert taken(lambda: "done", mx.gpu(1)) == 7
    assert asked == [("done", [mx.gpu(1)])]


DEVICES = [mx.cpu(0), mx.cpu(1)]


def zeros(count, device):
    return np.zeros(count, dtype="int8", ctx=device)


@pytest.mark.parametrize("number", [0, process.cores()])  # those beyond the processors have other names
def test_counts_what_is_there_at_a_time_on_each_device(number):
    devices = [mx.cpu(number), mx.cpu(number + 1)]

    def work():
        first = [zeros(10_000, device) for device in devices]
        npx.waitall()
        del first
        npx.waitall()
        return [zeros(8_000, devices[1]), zeros(5_000, devices[1])]

    assert peak_bytes(work, devices) == [10_000, 13_000]


def test_a_second_count_starts_from_nothing():
    kept = []
    assert peak_bytes(lambda: kept.append(zeros(7_000, DEVICES[0])), DEVICES) == [7_000, 0]
    kept.clear()
    npx.waitall()
    assert peak_bytes(lambda: zeros(300, DEVICES[0]), DEVICES) == [300, 0]
    before = zeros(9_000, DEVICES[0])
    npx.waitall()
    assert peak_bytes(lambda: zeros(400, DEVICES[0]), DEVICES) == [400, 0]
    assert before.size == 9_000


def test_garbage_from_before_the_count_is_freed_before_it():
    garbage = [zeros(5_000, DEVICES[1])]
    garbage.append(garbage)
    npx.waitall()
    del garbage

    def work():
        gc.collect()
        npx.waitall()
        return zeros(6_000, DEVICES[1])

    assert peak_bytes(work, DEVICES) == [0, 6_000]


def test_the_first_arrays_of_a_count_are_made_one_by_one(monkeypatch):
    """Two at once would race for MXNet's counters: "Invalid device index: 1", seen in one of fifteen processes."""
    calls, make, wait = [], np.zeros, npx.waitall
    monkeypatch.setattr(memory_use.np, "zeros", lambda *given, **named: calls.append("made") or make(*given, **named))
    monkeypatch.setattr(memory_use.npx, "waitall", lambda: calls.append("waited") or wait())
    peak_bytes(lambda: calls.append("work"), DEVICES)
    assert calls[calls.index("made") : calls.index("work")] == ["made", "waited"] * len(DEVICES)


def test_a_failure_stops_the_profiler():
    with pytest.raises(ZeroDivisionError):
        peak_bytes(lambda: 1 / 0, DEVICES)
    assert peak_bytes(lambda: zeros(300, DEVICES[0]), DEVICES) == [300, 0]


@pytest.mark.parametrize("start", ['{"traceEvents": [', '{\n"traceEvents": [\n,'])
def test_reads_a_first_and_a_later_trace(start):
    def counter(ts, value, name="Memory: cpu/0"):
        return json.dumps({"name": name, "ph": "C", "ts": ts, "args": {name: value}})

    # Not in the order of time; where the counter stood before, it had 1000.
    events = [counter(3, 1500 + MARK), counter(2, 1000 + MARK), counter(4, 1200), counter(1, 5, "Calls")]
    assert read_peaks(start + ", ".join(events) + "]}") == {"cpu/0": 500}
