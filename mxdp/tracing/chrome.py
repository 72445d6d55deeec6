"""Writes a timeline as a Chrome trace, which Perfetto opens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict

from mxdp.errors import MxdpError, TraceError
from mxdp.files import write_beside
from mxdp.tracing.events import SECTION, to_microseconds, tracks
from mxdp.tracing.timeline import Timeline


def chrome_trace(timeline: Timeline) -> Dict[str, Any]:
    """The trace as a dict, in Google's "Trace Event Format": each lane is a "process", overlapping events are on
    separate "threads". An event is complete (``X``), its category is its kind, and its times are microseconds."""
    records = []
    for number, (lane, events) in enumerate(timeline.lanes.items(), start=1):
        about = {"process_name": {"name": lane}, "process_sort_index": {"sort_index": number}}
        for name, value in about.items():
            records.append({"ph": "M", "name": name, "pid": number, "args": value})
        for first, sections in ((1, True), (101, False)):  # sections come first
            chosen = [event for event in events if (event.kind == SECTION) == sections]
            for track, event in tracks(chosen):
                start = to_microseconds(event.start)
                record = {
                    "ph": "X",
                    "name": event.name,
                    "cat": event.kind,
                    "pid": number,
                    "tid": first + track,
                    "ts": start,
                    "dur": to_microseconds(event.end) - start,
                }
                records.append(record)
    return {"traceEvents": records, "displayTimeUnit": "ms"}


def write_chrome_trace(timeline: Timeline, path: Path) -> Path:
    """Write the trace, whole or not at all. Raises a TraceError if the file can't be written."""
    try:
        write_beside(path, json.dumps(chrome_trace(timeline), separators=(",", ":")))
    except MxdpError as error:
        raise TraceError(f"can't write the trace: {error}") from error
    return path
