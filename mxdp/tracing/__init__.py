"""Record what ran on which device, and when.

::

    with tracing.record() as recording:
        step()
    recording.timeline.busy("cpu(0)")
    recording.save("trace.json")
    tracing.draw(figure, recording.timeline)
    tracing.where_the_time_went(step)

A name is loaded when it is first used. Only recording needs MXNet; timelines, traces and pictures do not.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

from mxdp.sections import section

if TYPE_CHECKING:
    from mxdp.tracing.breakdown import Parts, split
    from mxdp.tracing.events import Event
    from mxdp.tracing.gantt import draw
    from mxdp.tracing.mxnet_trace import read_trace
    from mxdp.tracing.recording import Recording, record
    from mxdp.tracing.timeline import Overlap, Timeline
    from mxdp.tracing.where import Cost, TimeSplit, split_steps, tracing_cost, where_the_time_went

_HOME = {
    "Cost": "where",
    "Event": "events",
    "Overlap": "timeline",
    "Parts": "breakdown",
    "Recording": "recording",
    "TimeSplit": "where",
    "Timeline": "timeline",
    "draw": "gantt",
    "read_trace": "mxnet_trace",
    "record": "recording",
    "split": "breakdown",
    "split_steps": "where",
    "tracing_cost": "where",
    "where_the_time_went": "where",
}
__all__ = [
    "Cost",
    "Event",
    "Overlap",
    "Parts",
    "Recording",
    "TimeSplit",
    "Timeline",
    "draw",
    "read_trace",
    "record",
    "section",
    "split",
    "split_steps",
    "tracing_cost",
    "where_the_time_went",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {', '.join(__all__)}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> List[str]:
    return sorted([*globals(), *__all__])
