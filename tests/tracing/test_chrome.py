from __future__ import annotations

import json
from collections import defaultdict
from unittest.mock import Mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_timeline import timelines

from mxdp.errors import TraceError
from mxdp.tracing.chrome import chrome_trace, write_chrome_trace
from mxdp.tracing.timeline import build

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


def test_the_old_file_stays_if_writing_fails(tmp_path, monkeypatch):
    path = tmp_path / "trace.json"
    path.write_text("before")
    monkeypatch.setattr("mxdp.files.os.replace", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(TraceError, match=r"can't write the trace: .* \(No space left"):
        write_chrome_trace(build(9, [("cpu(0)", "dot", "compute", 0, 5)]), path)
    assert path.read_text() == "before"
    assert [file.name for file in tmp_path.iterdir()] == ["trace.json"]
