"""Batch normalisation over devices: what the oracle finds, and what a round trains and evaluates."""

from __future__ import annotations

import math

import pytest
from littles import little

from mxdp.backend import devices, np
from mxdp.datasets import load
from mxdp.experiments.data_parallel import batch_norm, normed_lenet
from mxdp.experiments.data_parallel.normed_lenet import APART, OWN, SYNCED, NormedLeNet
from mxdp.experiments.lab.module import Case, Question
from mxdp.experiments.oracle import count
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import in_sync

QUESTION = Question(batch_norm)


def compared(way, n=2):
    case = Case("", n, way=way, batch=8)
    return count(batch_norm.oracle(case, little(QUESTION, kind="cpu", devices=[n])))


class Alone:
    """In place of a :class:`SyncBatchNorm`: each shard by itself."""

    def __init__(self, *arrays_and_momentum):
        *arrays, momentum = arrays_and_momentum
        self.norms = [SyncBatchNorm(*[[one] for one in own], momentum) for own in zip(*arrays)]

    def __call__(self, xs):
        return [norm([x])[0] for norm, x in zip(self.norms, xs)]

    def backward(self):
        return [norm.backward()[0] for norm in self.norms]


@pytest.mark.parametrize(
    ("name", "broken", "way"),
    [
        ("SyncBatchNorm", Alone, SYNCED),
        ("GradientSync", lambda replicas: list, SYNCED),
    ],
)
def test_its_oracle_finds(name, broken, way, monkeypatch):
    monkeypatch.setattr(normed_lenet, name, broken)
    checked, wrong = compared(way)
    assert wrong > (checked / 2 if broken is Alone else 1000)
    assert broken is not Alone or compared(APART)[1] == 0


def rounds(way, number=0, **changes):
    s = little(QUESTION, kind="cpu", steps=3, test=100, **changes)
    case = next(case for case in batch_norm.cases(s) if case.way == way)
    case.number = number
    one_round = batch_norm.set_up(case, s).round
    return [one_round() for _ in range(2)]


def test_synchronised_replicas_save_the_same_and_own_ones_do_not(monkeypatch):
    monkeypatch.setattr(NormedLeNet, "accuracy", lambda own, data, running: float(running[0].sum()))
    synced, own = ([numbers for _, numbers in rounds(way)] for way in (SYNCED, OWN))
    assert all(one["other_replica"] == 0 for one in synced)
    assert max(one["differs"] for one in synced) < 1e-3
    assert min(one["differs"] for one in own) > 1e-2
    assert min(one["other_replica"] for one in own) > 0
    assert all(math.isfinite(value) for one in own for value in one.values())


def test_each_round_has_a_seed_of_its_own(monkeypatch):
    seeds, train = [], NormedLeNet.train
    monkeypatch.setattr(NormedLeNet, "train", lambda own, *given: seeds.append(given[1]) or train(own, *given))
    for number in (0, 1):
        seeds.clear()
        rounds(OWN, number, seed=3)
        assert seeds[0] == 3  # the warm-up
        assert set(seeds[1:]) == {3 + 1000 * number, 4 + 1000 * number}


def test_it_evaluates_with_the_running_statistics_that_it_is_given():
    data = load("synthetic")
    net = NormedLeNet(devices(2), SYNCED, 0, 32, 0.25)
    net.train(data.train, 0, 60)
    running, other = net.running
    before = [array.asnumpy() for array in running]
    right, wrong = (net.accuracy(data.test, arrays) for arrays in (running, [array * 0 + 1 for array in running]))
    assert right > wrong + 0.2
    assert in_sync([running, other, list(map(np.array, before))])
