from __future__ import annotations

import pytest
from littles import little

from mxdp.collectives import GradientSync
from mxdp.experiments.allreduce import buckets
from mxdp.experiments.lab import Number, Row, Told
from mxdp.experiments.lab.module import find
from mxdp.experiments.oracle import count
from mxdp.plans.collective.algorithms import AUTO

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


def judged(times, does=None, devices=2):
    """Whether each claim holds if all takes 1 s, but for these labels; ``does``: labels with the same buckets."""
    rows = []
    for case in buckets.cases(little(find("buckets"), devices=[devices], bucket_mb=[0.25, 25.0])):
        known = {"devices": devices, **case.settings, "buckets": (does or {}).get(case.label, case.label)}
        rows.append(Row(case.label, False, {**known, "seconds": Number(times.get(case.label, [1.0] * 12))}))
    told = Told(rows)
    buckets.tell(told, little(find("buckets"), devices=[devices]))
    return [claim.holds for claim in told.claims.values()]


def fast(lenet, resnet18, devices=2):
    return {f"{net} x {devices}: ring": [time] * 12 for net, time in (("lenet", lenet), ("resnet18", resnet18))}


@pytest.mark.parametrize(
    ("lenet", "resnet18", "held"),
    [(0.9, 0.75, [True, True]), (0.91, 0.75, [False, True]), (0.9, 0.76, [True, False])],
)
def test_the_fastest_is_judged_by_the_store(lenet, resnet18, held):
    assert judged(fast(lenet, resnet18))[:2] == held


def test_nothing_is_claimed_of_the_fastest_on_eight_devices():
    assert judged(fast(2.0, 2.0, devices=8), devices=8)[:2] == [None, None]


@pytest.mark.parametrize(("auto", "held"), [(1.09, True), (1.11, False)])
def test_auto_is_judged_where_it_is_worst_and_with_the_default_bucket(auto, held):
    slow = {"resnet18 x 2: auto, 25 MiB": [auto] * 12, "lenet x 2: auto, 0.25 MiB": [9.0] * 12}
    assert judged(slow)[2] is held


def test_rows_with_the_same_buckets_and_algorithms_are_one():
    """The fastest is what auto chose: then it is right, however much two measurements of that differ."""
    auto, ring = "lenet x 2: auto, 25 MiB", "lenet x 2: ring"
    times = {auto: [1.2] * 12, ring: [0.6] * 12}
    assert judged(times, {auto: "same", ring: "same"})[2] is True
    assert judged(times)[2] is False
    assert CASES[auto].algorithm == AUTO
