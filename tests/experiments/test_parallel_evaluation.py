"""Evaluation on all devices: what its claims and its answer say, and what its oracle finds."""

from __future__ import annotations

import pytest

from mxdp.datasets import sequential
from mxdp.experiments.data_parallel.work import parallel_evaluation as work
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.measure.oracle import count
from mxdp.scratch import evaluate, lenet

SETTINGS = dict(devices=[1, 2], kind="cpu", seed=0)


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
