"""Evaluation on all devices: what its claims and its answer say, and what its oracle finds."""

from __future__ import annotations

import pytest

from mxdp.datasets import sequential
from mxdp.experiments.data_parallel.parallel_evaluation import ParallelEvaluation
from mxdp.experiments.data_parallel.work import parallel_evaluation as work
from mxdp.experiments.harness import claims
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.measure.oracle import count
from mxdp.scratch import evaluate, lenet

SETTINGS = dict(devices=[1, 2], kind="cpu", seed=0)


def finished(seconds=1.0, right=(90,) * 6):
    """One device takes 2 s."""
    rows = [
        Row(label, {"devices": [f"cpu({k})" for k in range(n)]}, [own] * 6, {"samples": 100}, {"right": list(counts)})
        for n, label, own, counts in ((1, "1 device", 2.0, (90,) * 6), (2, "2 devices", seconds, right))
    ]
    ParallelEvaluation().finish(rows, [], SETTINGS)
    return rows


def test_the_answer_is_the_time_and_whether_the_accuracy_is_the_same():
    said = ParallelEvaluation().answer(finished(), [], SETTINGS)
    assert said == (
        "On 2 devices evaluation takes 0.50 (0.50 to 0.50) of one device's time and finds the same accuracy."
    )
    other = ParallelEvaluation().answer(finished(right=(90, 90, 91, 90, 90, 90)), [], SETTINGS)
    assert other.endswith("finds another accuracy.")
    assert "--devices 1,2" in ParallelEvaluation().answer(finished()[:1], [], SETTINGS)


@pytest.mark.parametrize(
    ("name", "rows", "holds"),
    [
        ("same", {}, True),
        ("same", {"right": (90, 90, 89, 90, 90, 90)}, False),
        ("faster", {"seconds": 1.24}, True),
        ("faster", {"seconds": 1.26}, False),
    ],
)
def test_its_claims_are_judged(name, rows, holds):
    found = claims.judged(name, ParallelEvaluation.claims[name], finished(**rows))
    assert (found["holds"], [each["label"] for each in found["measured"]]) == (holds, ["2 devices"])


@pytest.mark.parametrize("devices", [1, 2, 3])
def test_its_oracle_finds_nothing_wrong(devices):
    assert count(work.oracle(Case("", devices), {**SETTINGS, "devices": [devices]})) == (3, 0)


def test_its_oracle_finds_a_mean_of_the_batches_accuracies(monkeypatch):
    def mean(data, replicas, batch_size, net):
        parts = [type(data)(X, y) for X, y in sequential(data, batch_size)]
        return sum(evaluate(part, replicas, batch_size, lenet) for part in parts) / len(parts)

    monkeypatch.setattr(work, "evaluate", mean)
    checked, wrong = count(work.oracle(Case("", 2), SETTINGS))
    assert (checked, wrong) == (3, 1), "of batches of 7, 7 ... and 5"
