from __future__ import annotations

import pytest

from mxdp.collectives import GradientSync
from mxdp.experiments.allreduce.buckets import Buckets
from mxdp.experiments.allreduce.work import buckets as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.oracle import count
from mxdp.plans.collective.algorithms import AUTO

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
    beside = [row for row in result["rows"] if "run" in row.case]
    assert beside
    for row in beside:
        assert {"alone_ms", "after_ms", "beside_ms"} <= set(row.rounds)
        assert row.rounds["beside_ms"] == [seconds * 1e3 for seconds in row.samples]


def test_a_yardstick_one_by_one_and_the_fastest_of_each_answer(measured):
    _, result = measured("buckets")
    best = [row.label for row in result["rows"] if "best_of_device_store" in row.rounds]
    *summed, beside = [row.label for row in Buckets().answering(result["rows"])]
    ways = ["lenet x 2", "resnet18 x 2"]
    assert set(summed) == {*best, *(f"{way}: {name}" for way in ways for name in ("mxnet-device", "one by one"))}
    assert len(summed) == 6
    assert "beside backward" in beside


def finished(lenet, resnet18, devices=2):
    """Rows of which ``ring`` is the fastest of ours: so many times the device store's time, on even rounds."""
    experiment, settings, rows = Buckets(), {**SETTINGS, "devices": [devices]}, []
    for case in experiment.cases(settings):
        best = {"lenet": lenet, "resnet18": resnet18}[case.settings["net"]]
        samples = [0.1, best] * 12 if case.label.endswith("ring") and "bidir" not in case.label else [1.0] * 24
        parts = {"alone_ms": 10.0, "after_ms": 15.0, "beside_ms": 12.0} if "run" in case.settings else {}
        where = [f"cpu({rank})" for rank in range(devices)]
        rounds = {name: [ms] * 24 for name, ms in parts.items()}
        metrics = {**parts, "buckets": [[1, case.label]]}
        rows.append(Row(case.label, {"devices": where, **case.settings}, samples, metrics, rounds))
    experiment.finish(rows, [], settings)
    return {name: claims.judged(name, claim, rows)["holds"] for name, claim in experiment.claims.items()}


@pytest.mark.parametrize(
    ("lenet", "resnet18", "held"),
    [(0.9, 0.75, (True, True)), (0.91, 0.75, (False, True)), (0.9, 0.76, (True, False))],
)
def test_the_best_is_judged_on_rounds_that_did_not_choose_it(lenet, resnet18, held):
    expected = dict(zip(("lenet_best", "resnet18_best"), held))
    assert finished(lenet, resnet18) == {**expected, "auto_worst": None}  # none of 25 MiB


def judged_auto(auto, chosen=AUTO, ring=1.0):
    """The claim about it, where ResNet-18 on two devices takes ``auto`` in two rounds, and the other algorithms 1."""
    experiment, settings, rows = Buckets(), {**SETTINGS, "bucket_mb": [0.25, 25.0]}, []
    for case in experiment.cases(settings):
        if "run" not in case.settings:
            judged = case.label == "resnet18 x 2: auto, 25 MiB"
            at = {"devices": ["cpu(0)", "cpu(1)"], **case.settings}
            slow = "0.25 MiB" in case.label or "mxnet" in case.label
            samples = (
                auto if judged else [2.0] * 2 if slow else [ring if case.label == "resnet18 x 2: ring" else 1.0] * 2
            ) * 12
            own = [[1, chosen if judged else case.settings["algorithm"]]] * (3 if slow else 1)
            rows.append(Row(case.label, at, samples, {"buckets": own}))
    experiment.finish(rows, [], settings)
    return claims.judged("auto_worst", experiment.claims["auto_worst"], rows)


@pytest.mark.parametrize(("auto", "held"), [([1.05, 1.09], True), ([1.12, 1.11], False)])
def test_auto_is_judged_where_it_is_worst_and_with_the_default_bucket(auto, held):
    found = judged_auto(auto)
    assert [each["label"] for each in found["measured"]] == ["resnet18 x 2: auto, 25 MiB"]
    assert found["holds"] is held


def test_rows_with_the_same_buckets_and_algorithms_are_one():
    """The fastest is what auto chose: then it is right, however much two measurements of that differ."""
    same, others = judged_auto([1.2, 1.2], "ring", ring=0.7), judged_auto([1.2, 1.2], ring=0.7)
    assert {each["median"] for each in same["measured"]} == {1.0}
    assert max(each["median"] for each in others["measured"]) == pytest.approx(1.2 / 0.7)


def test_a_row_of_ours_says_which_buckets_it_has(measured):
    _, result = measured("buckets")
    ours = {row.label: row.metrics["buckets"] for row in result["rows"] if "buckets" in row.metrics}
    assert ours["lenet x 2: ring"] == [[516_272, "ring"]]
    assert len(ours["resnet18 x 2: auto, 25 MiB"]) == 2
    assert not [label for label in ours if "mxnet" in label or "one by one" in label or "beside" in label]


def test_nothing_is_claimed_of_eight_devices():
    assert set(finished(2.0, 2.0, devices=8).values()) == {None}
