from __future__ import annotations

import pytest
from littles import little

from mxdp.errors import UsageError
from mxdp.experiments.data_parallel import where_the_time_went
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question


def test_more_devices_than_the_profiler_can_follow_are_refused(monkeypatch):
    monkeypatch.setattr(where_the_time_went, "can_record", lambda devices: False)
    with pytest.raises(UsageError, match="can't follow 2 CPU devices on this machine: ask for fewer"):
        where_the_time_went.set_up(Case("", 2), little(Question(where_the_time_went), kind="cpu"))
