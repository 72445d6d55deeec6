from __future__ import annotations

import pytest
from littles import little

from mxdp.datasets import sequential
from mxdp.experiments.data_parallel import parallel_evaluation
from mxdp.experiments.data_parallel.lenet_steps import pictures
from mxdp.experiments.lab import Case
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count
from mxdp.scratch import evaluate, lenet


def mean_of_the_batches(data, replicas, batch_size, net):
    """Of 61 samples in batches of 7, 7 ... and 5 it is another one."""
    parts = [type(data)(X, y) for X, y in sequential(data, batch_size)]
    return sum(evaluate(part, replicas, batch_size, lenet) for part in parts) / len(parts)


@pytest.mark.parametrize(
    ("devices", "evaluation", "wrong"),
    [(1, evaluate, 0), (2, evaluate, 0), (3, evaluate, 0), (2, mean_of_the_batches, 1)],
)
def test_its_oracle_finds_a_mean_of_the_batches_accuracies(monkeypatch, devices, evaluation, wrong):
    monkeypatch.setattr(parallel_evaluation, "evaluate", evaluation)
    settings = little(Question(parallel_evaluation), devices=[devices], kind="cpu")
    assert count(parallel_evaluation.oracle(Case("", devices), settings)) == (3, wrong)


def test_right_answers_are_those_of_the_accuracy(monkeypatch):
    monkeypatch.setattr(parallel_evaluation, "evaluate", lambda *_: 0.25)
    settings = little(Question(parallel_evaluation), devices=[1], kind="cpu")
    work = parallel_evaluation.set_up(Case("", 1), settings)
    assert work.round()[1]["right"] == len(pictures(settings).test) / 4
