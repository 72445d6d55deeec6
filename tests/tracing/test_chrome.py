from __future__ import annotations

import pytest

from mxdp.errors import TraceError
from mxdp.tracing.chrome import chrome_trace, write_chrome_trace
from mxdp.tracing.timeline import build

TIMELINE = build(
    100,
    [
        ("cpu(0)", "dot", "compute", 0, 50),
        ("cpu(0)", "CopyCPU2CPU", "copy", 20, 60),
        ("cpu(0)", "dot", "compute", 60, 70),
        ("cpu(1)", 'a "quoted" name', "all-reduce", 5, 5),
        ("python", "step", "section", 0, 90),
        ("python", "input", "section", 10, 20),
        ("python", "MXNDArrayWaitAll", "wait", 80, 95),
    ],
)


def test_it_is_what_perfetto_reads():
    records = chrome_trace(TIMELINE)["traceEvents"]
    names = {r["pid"]: r["args"]["name"] for r in records if r["ph"] == "M" and r["name"] == "process_name"}
    assert names == {1: "cpu(0)", 2: "cpu(1)", 3: "python"}
    events = [record for record in records if record["ph"] == "X"]
    assert len(events) == len(TIMELINE.events)
    assert all(set(event) == {"ph", "name", "cat", "pid", "tid", "ts", "dur"} for event in events)


def test_events_in_a_row_do_not_overlap():
    rows = {}
    for record in chrome_trace(TIMELINE)["traceEvents"]:
        if record["ph"] == "X":
            rows.setdefault((record["pid"], record["tid"]), []).append(record)
    assert sorted(len(row) for row in rows.values()) == [1, 1, 1, 1, 1, 2]
    for row in rows.values():
        assert all(before["ts"] + before["dur"] <= after["ts"] for before, after in zip(row, row[1:]))


def test_the_old_file_stays_if_writing_fails(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mxdp.files.os.replace", fail)
    with pytest.raises(TraceError, match=r"can't write the trace: .* \(No space left"):
        write_chrome_trace(TIMELINE, path)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
    with pytest.raises(TraceError, match="can't write"):
        write_chrome_trace(TIMELINE, tmp_path / "missing" / "trace.json")
