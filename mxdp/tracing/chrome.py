"""Writes a timeline as a Chrome trace, which Perfetto opens."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

from mxdp.errors import TraceError
from mxdp.tracing.events import SECTION, Event, microseconds, tracks
from mxdp.tracing.mxnet_trace import RECORDED
from mxdp.tracing.timeline import Timeline


def chrome_trace(timeline: Timeline) -> Dict[str, Any]:
    """The trace as a dict: each lane is a "process", each event a complete event (``X``) with its kind as category.

    Overlapping events are in separate rows ("threads"). Times are microseconds. Format: "Trace Event Format" (Google),
    as Chrome and Perfetto read it.
    """
    records: List[Dict[str, Any]] = []
    for number, (lane, events) in enumerate(timeline.lanes.items(), start=1):
        records.append({"ph": "M", "name": "process_name", "pid": number, "args": {"name": lane}})
        records.append({"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}})
        for row, event in _rows(events):
            start = microseconds(event.start)
            record = {"ph": "X", "name": event.name, "cat": event.kind, "pid": number, "tid": row}
            records.append({**record, "ts": start, "dur": microseconds(event.end) - start})
    length = {"microseconds": microseconds(timeline.length)}
    return {"traceEvents": records, "displayTimeUnit": "ms", "otherData": {RECORDED: length}}


def write_chrome_trace(timeline: Timeline, path: Path) -> Path:
    """Write the trace to a temporary file beside ``path`` and rename it.

    Raises:
        TraceError: the file can't be written.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            beside.write_text(json.dumps(chrome_trace(timeline), separators=(",", ":")), encoding="utf-8")
            os.replace(beside, path)
        finally:
            if beside.exists():
                beside.unlink()
    except OSError as error:
        raise TraceError(f"can't write the trace {path}: {error.strerror or error}") from error
    return path


def _rows(events: Sequence[Event]) -> Iterator[Tuple[int, Event]]:
    """Each event with its row; sections come first."""
    for first, sections in ((1, True), (101, False)):
        for track, event in tracks(each for each in events if (each.kind == SECTION) == sections):
            yield first + track, event
