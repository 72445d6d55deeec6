from __future__ import annotations

import pytest

from mxdp.backend import mx
from mxdp.experiments.timelines import MOST_EVENTS, recorded, timeline_shares
from mxdp.tracing import Event, Timeline

DEVICES = [mx.cpu(0), mx.cpu(1)]


def test_shares_by_hand():
    events = [("cpu(0)", "dot", "compute", 0.0, 2.0), ("cpu(1)", "_copyto", "copy", 1.0, 4.0)]
    metrics = timeline_shares(Timeline(4.0, tuple(Event(*event) for event in events)))
    assert (metrics["busy"], metrics["critical"]) == ({"cpu(0)": 0.5, "cpu(1)": 0.75}, "cpu(1)")
    assert (metrics["together"], metrics["beside"], metrics["hidden"]) == (0.25, 0.25, pytest.approx(1 / 3))


def test_what_has_no_work_has_no_timeline_but_all_shares():
    shares = timeline_shares(Timeline(1.0, (Event("cpu(0)", "dot", "compute", 0.0, 1.0),)))
    nothing = recorded(lambda: None, DEVICES)
    assert set(nothing) == set(shares) - {"timeline"}
    assert not any(nothing[name] for name in ("busy", "together", "beside", "hidden"))


def test_too_many_events_are_left_out():
    many = tuple(Event("cpu(0)", "dot", "compute", float(i), i + 0.5) for i in range(MOST_EVENTS + 1))
    assert "timeline" not in timeline_shares(Timeline(float(len(many)), many))
