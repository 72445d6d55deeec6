from __future__ import annotations

import pytest

from mxdp.collectives import GradientSync
from mxdp.experiments.allreduce.buckets import Buckets
from mxdp.experiments.allreduce.work import buckets as work
from mxdp.experiments.measure.oracle import count

SETTINGS = dict(devices=[2], kind="cpu", seed=0, rounds=2, timeout=60.0, bucket_mb=[0.25], images=1)
CASES = {case.label: case for case in Buckets().cases(SETTINGS)}
LENET = 129068


@pytest.mark.parametrize("way", ["mxnet-local", "mxnet-device", "one by one", "auto, 0.25 MiB", "ring"])
def test_the_oracle_compares_every_gradient_of_every_replica(way):
    assert count(work.oracle(CASES[f"lenet x 2: {way}"], SETTINGS)) == (2 * LENET, 0)


def test_the_oracle_catches_a_bucket_that_is_not_summed(monkeypatch):
    class Fewer(GradientSync):
        def __call__(self):
            self.buckets.pop()
            super().__call__()

    monkeypatch.setattr(work, "GradientSync", Fewer)
    checked, wrong = count(work.oracle(CASES["lenet x 2: auto, 0.25 MiB"], SETTINGS))
    assert checked == 2 * LENET
    assert 0 < wrong < checked


def test_beside_backward_has_three_times_of_each_round(measured):
    _, result = measured("buckets")
    beside = [row for row in result["rows"] if "run" in row["case"]]
    assert beside
    for row in beside:
        assert {"alone_ms", "after_ms", "beside_ms"} <= set(row["rounds"])
        assert row["rounds"]["beside_ms"] == [seconds * 1e3 for seconds in row["seconds"]["samples"]]
