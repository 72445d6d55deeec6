"""Record what ran on which device, and when::

    with tracing.record() as recording:
        step()
    recording.timeline.busy("cpu(0)")
    recording.save("trace.json")
    tracing.draw(figure, recording.timeline)
    tracing.where_the_time_went(step)

Only recording needs MXNet; timelines and pictures do not.
"""

from mxdp.sections import section
from mxdp.tracing.breakdown import Parts, split
from mxdp.tracing.events import Event
from mxdp.tracing.gantt import draw
from mxdp.tracing.recording import Recording, record
from mxdp.tracing.timeline import Overlap, Timeline
from mxdp.tracing.where import TimeSplit, split_steps, where_the_time_went

__all__ = [
    "Event",
    "Overlap",
    "Parts",
    "Recording",
    "TimeSplit",
    "Timeline",
    "draw",
    "record",
    "section",
    "split",
    "split_steps",
    "where_the_time_went",
]
