from __future__ import annotations

from littles import little

from mxdp.collectives import GradientSync
from mxdp.experiments.allreduce import buckets
from mxdp.experiments.lab.module import find
from mxdp.experiments.oracle import count

S = little(find("buckets"), devices=[2], kind="cpu", bucket_mb=[0.25, 25.0])
CASES = {case.label: case for case in buckets.cases(S)}
LENET = 129068


def test_the_oracle_catches_a_bucket_that_is_not_summed(monkeypatch):
    class Fewer(GradientSync):
        def __call__(self):
            self.buckets.pop()
            super().__call__()

    monkeypatch.setattr(buckets, "GradientSync", Fewer)
    checked, wrong = count(buckets.oracle(CASES["lenet x 2: auto, 0.25 MiB"], S))
    assert checked == 2 * LENET
    assert 0 < wrong < checked


def test_a_round_says_which_buckets_it_has(monkeypatch):
    monkeypatch.setattr(
        buckets.arrays, "seconds_in_turn", lambda makers: {name: make()() or 0.5 for name, make in makers.items()}
    )
    assert buckets.set_up(CASES["lenet x 2: ring"], S).round() == (0.5, {"buckets": [(516_272, "ring")]})
    assert len(buckets.set_up(CASES["resnet18 x 2: auto, 25 MiB"], S).round()[1]["buckets"]) == 2
    assert buckets.set_up(CASES["lenet x 2: one by one"], S).round() == (0.5, {})
