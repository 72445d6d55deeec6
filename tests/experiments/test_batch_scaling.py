"""The batch and the learning rate for several devices: what the oracle finds, and what a round trains."""

from __future__ import annotations

import itertools

import pytest
from littles import little

from mxdp.experiments.data_parallel import batch_scaling
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count

QUESTION = Question(batch_scaling)
S = little(QUESTION, kind="cpu", times=[2, 4], batch_size=8)
CASES = {case.label: case for case in batch_scaling.cases(S)}


@pytest.mark.parametrize("name", ["batch", "rate"])
def test_its_oracle_finds_what_is_not_scaled(name, monkeypatch):
    case = CASES["batch 16, lr 0.2"]
    monkeypatch.setitem(case.settings, name, CASES["batch 8, 2 devices"].settings[name])
    checked, wrong = count(batch_scaling.oracle(case, S))
    assert wrong > checked / 2


def test_each_round_has_a_seed_of_its_own(monkeypatch):
    seeds, right = [], batch_scaling.training

    def training(*given):
        replicas, begin = right(*given)
        return replicas, lambda seed: seeds.append(seed) or begin(seed)

    monkeypatch.setattr(batch_scaling, "training", training)
    s = little(QUESTION, kind="cpu", seed=3)
    monkeypatch.setattr(batch_scaling, "timed", lambda push: (push(), 0.5)[1])
    case = next(iter(batch_scaling.cases(s)))
    for case.number in (0, 1):
        calls = itertools.count(-1)
        monkeypatch.setattr(batch_scaling, "evaluate", lambda *_, calls=calls, **more: next(calls))
        one_round = batch_scaling.set_up(case, s).round
        seeds.clear()
        measured = [one_round(), one_round()]
        assert seeds == [3 + 1000 * case.number, 4 + 1000 * case.number]
        assert [numbers["test_accuracy"] for _, numbers in measured] == [6, 14]  # the mean of the last three
        assert [seconds for seconds, _ in measured] == [0.5 * batch_scaling.PARTS] * 2
