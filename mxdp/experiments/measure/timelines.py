"""One more run of what was measured, recorded: what a row can show of itself.

Loads MXNet: import it inside ``run``. The recording comes after the measured rounds, so that no time holds its cost.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Sequence

from mxdp.backend import Device
from mxdp.errors import TraceError
from mxdp.experiments.harness.results import TIMELINE
from mxdp.tracing import Timeline, record
from mxdp.tracing.recording import can_record

MOST_EVENTS = 20_000
"""A timeline of more is left out of a result: nobody could read it, and its file would be large."""

NO_WORK: Mapping[str, Any] = dict(busy={}, together=0.0, abreast=0.0, beside=0.0, hidden=0.0, critical="none")


def recorded(action: Callable[[], Any], devices: Sequence[Device]) -> Dict[str, Any]:
    """Run ``action`` in a recording: its timeline and what follows from it, for a row's ``metrics``. Waits.

    Empty where MXNet's profiler can't follow so many CPU devices: it ends the process (see :mod:`mxdp.tracing`). Shares
    of nothing, and no timeline, where no device had any work.
    """
    if not can_record(devices):
        return {}
    with record(devices) as recording:
        action()
    try:
        timeline = recording.timeline
    except TraceError:  # the block is over, so it can only be that there is nothing in it
        return dict(NO_WORK)
    return described(timeline)


def described(timeline: Timeline) -> Dict[str, Any]:
    """The shares of a timeline: of its length that each device was ``busy``, that two devices worked at a time
    (``together``), two operators (``abreast``), compute beside communication (``beside``); and of the communication
    (``hidden``)."""
    overlap = timeline.overlap()
    metrics: Dict[str, Any] = {
        "busy": {name: timeline.busy(name) for name in timeline.devices},
        "together": timeline.together(2) / timeline.length,
        "abreast": timeline.abreast(2) / timeline.length,
        "beside": overlap.hidden / timeline.length,
        "hidden": overlap.share,
        "critical": timeline.critical,
    }
    if len(timeline.events) <= MOST_EVENTS:
        metrics[TIMELINE] = timeline.to_json()
    return metrics
