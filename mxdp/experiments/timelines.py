"""Records one more run of what was measured, for a row's timeline: after the rounds, whose times don't pay for it."""

from __future__ import annotations

from typing import Any, Callable, Dict, Sequence

from mxdp.backend import Device
from mxdp.errors import TraceError
from mxdp.tracing import Timeline, record
from mxdp.tracing.recording import can_record

MOST_EVENTS = 20_000
"""A longer timeline is left out of a result: nobody could read it, and the file would be large."""


def recorded(action: Callable[[], Any], devices: Sequence[Device]) -> Dict[str, Any]:
    """Run ``action`` in a recording: its timeline and the shares computed from it, for a row. Waits. Empty if MXNet's
    profiler can't record so many CPU devices. If no device worked, there is no timeline, and shares are 0."""
    if not can_record(devices):
        return {}
    with record(devices) as recording:
        action()
    try:
        timeline = recording.timeline
    except TraceError:  # the recording is empty: the only reason after its block
        return dict(busy={}, together=0.0, beside=0.0, hidden=0.0, critical="none")
    return timeline_shares(timeline)


def timeline_shares(timeline: Timeline) -> Dict[str, Any]:
    """Shares of a timeline's length: each device was ``busy``; two devices worked at the same time (``together``);
    computation ran beside communication (``beside``). And the share of the communication that did (``hidden``)."""
    overlap = timeline.overlap()
    metrics: Dict[str, Any] = {
        "busy": {name: timeline.busy(name) for name in timeline.devices},
        "together": timeline.together(2) / timeline.length,
        "beside": overlap.hidden / timeline.length,
        "hidden": overlap.share,
        "critical": timeline.critical,
    }
    if len(timeline.events) <= MOST_EVENTS:
        metrics["timeline"] = timeline.to_json()
    return metrics
