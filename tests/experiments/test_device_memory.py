from __future__ import annotations

import gc
import json

import pytest

from mxdp import process
from mxdp.backend import mx, np, npx
from mxdp.experiments import memory_use
from mxdp.experiments.memory_use import MARK, peak_bytes, read_peaks

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
