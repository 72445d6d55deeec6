from __future__ import annotations

import pytest

from mxdp.errors import UsageError
from mxdp.experiments.data_parallel.account import PARTS
from mxdp.experiments.data_parallel.where_the_time_went import WhereTheTimeWent
from mxdp.experiments.data_parallel.work import where_the_time_went as work


def test_the_shares_of_a_row_add_up_to_one(measured):
    _, result = measured("where-the-time-went")
    for row in result["rows"]:
        assert sum(row.metrics[name] for name in PARTS) == pytest.approx(1)
        assert row.metrics["rest_most"] == max(row.rounds["rest"])
    assert [row.case["sync"] for row in result["rows"]] == ["buckets", "buckets", "book"]


def test_more_devices_than_the_profiler_can_follow_are_refused(monkeypatch):
    monkeypatch.setattr(work, "can_record", lambda devices: False)
    settings = {**WhereTheTimeWent.presets["quick"], "kind": "cpu"}
    with pytest.raises(UsageError, match="can't follow 2 CPU devices on this machine: ask for fewer"):
        work.set_up(WhereTheTimeWent().cases(settings)[1], settings)
