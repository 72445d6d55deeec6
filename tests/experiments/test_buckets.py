from __future__ import annotations

import pytest
from littles import little

from mxdp.collectives import GradientSync
from mxdp.experiments.allreduce import buckets
from mxdp.experiments.lab import Number, Row, Told
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


def judged(times):
    """Whether each claim holds if all takes 1 s, but for these labels."""
    rows = []
    for case in CASES.values():
        known = {"devices": 2, **case.settings, "buckets": case.label}
        rows.append(Row(case.label, False, {**known, "seconds": Number([times.get(case.label, 1.0)] * 12)}))
    told = Told(rows)
    buckets.tell(told, S)
    return [claim.holds for claim in told.claims.values()]


@pytest.mark.parametrize(
    ("lenet", "resnet18", "held"),
    [(0.9, 0.75, [True, True]), (0.91, 0.75, [False, True]), (0.9, 0.76, [True, False])],
)
def test_the_fastest_is_judged_by_the_store(lenet, resnet18, held):
    assert judged({"lenet x 2: ring": lenet, "resnet18 x 2: ring": resnet18})[:2] == held


@pytest.mark.parametrize(("auto", "held"), [(1.09, True), (1.11, False)])
def test_auto_is_judged_where_it_is_worst_and_with_the_default_bucket(auto, held):
    slow = {"resnet18 x 2: auto, 25 MiB": auto, "lenet x 2: auto, 0.25 MiB": 9.0}
    assert judged(slow)[2] is held
