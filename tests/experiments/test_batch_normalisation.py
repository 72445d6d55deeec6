"""Batch normalisation over devices: claims, answer, picture, and what the oracle finds."""

from __future__ import annotations

import math

import pytest

from mxdp.backend import devices, np
from mxdp.datasets import load
from mxdp.errors import UsageError
from mxdp.experiments.data_parallel.batch_norm import APART, OTHER_ORDER, OWN, SYNCED, BatchNormalisation
from mxdp.experiments.data_parallel.work import batch_norm as work
from mxdp.experiments.harness.experiment import Case
from mxdp.experiments.harness.settings import resolve
from mxdp.experiments.measure.oracle import count
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import in_sync

EXPERIMENT = BatchNormalisation()
SETTINGS = dict(EXPERIMENT.presets["quick"], kind="cpu", shards=[8, 64])
WAYS = (OWN, APART, SYNCED, OTHER_ORDER)


@pytest.mark.parametrize("shards", [[1, 8], [8, 8], [2.5]])
def test_shards_without_a_variance_are_refused_before_anything_is_trained(shards):
    with pytest.raises(UsageError, match="one sample has no variance"):
        resolve([EXPERIMENT], "quick", {"shards": shards})


def case_of(way, devices=2):
    return Case("", 1 if way == OTHER_ORDER else devices, settings={"way": way, "batch": 8, "repeat": 0})


@pytest.mark.parametrize(("way", "devices"), [*((way, 2) for way in WAYS), (SYNCED, 3), (APART, 3)])
def test_its_oracle_finds_nothing_wrong(way, devices):
    checked, wrong = count(work.oracle(case_of(way, devices), dict(SETTINGS, devices=[devices])))
    assert checked > 40_000
    assert wrong == 0


class Alone:
    """In place of a :class:`SyncBatchNorm`: each shard by itself."""

    def __init__(self, scales, shifts, means, variances, momentum):
        arrays = zip(scales, shifts, means, variances)
        self.norms = [SyncBatchNorm(*[[each] for each in own], momentum) for own in arrays]

    def __call__(self, xs):
        return [norm([x])[0] for norm, x in zip(self.norms, xs)]

    def backward(self):
        return [norm.backward()[0] for norm in self.norms]


def test_its_oracle_finds_statistics_of_a_shard_alone(monkeypatch):
    monkeypatch.setattr(work, "SyncBatchNorm", Alone)
    checked, wrong = count(work.oracle(case_of(SYNCED), SETTINGS))
    assert wrong > checked / 2
    assert count(work.oracle(case_of(APART), SETTINGS))[1] == 0


def test_its_oracle_finds_sums_that_are_missing_in_backward(monkeypatch):
    class Forward(SyncBatchNorm):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            self._reduce = list

    monkeypatch.setattr(work, "SyncBatchNorm", Forward)
    assert count(work.oracle(case_of(SYNCED), SETTINGS))[1] > 1000


@pytest.mark.parametrize("way", [OWN, SYNCED])
def test_its_oracle_finds_gradients_that_are_not_summed(monkeypatch, way):
    monkeypatch.setattr(work, "GradientSync", lambda replicas: list)
    assert count(work.oracle(case_of(way), SETTINGS))[1] > 1000


def rounds(way, devices=2, repeat=0, **changes):
    settings = {**SETTINGS, "data": "synthetic", "devices": [devices], "steps": 3, "test": 100, "rounds": 2, **changes}
    case = case_of(way, devices)
    case.settings["repeat"] = repeat
    ready = work.set_up(case, settings)
    return [ready.round() for _ in range(2)]


def test_synchronised_replicas_save_the_same_and_own_ones_do_not():
    synced, own, order = (rounds(way) for way in (SYNCED, OWN, OTHER_ORDER))
    for each in synced:
        assert each.metrics["other_replica"] == each.metrics["averaged"] == 0
    assert max(each.metrics["differs"] for each in synced + order) < 1e-3
    assert min(each.metrics["differs"] for each in own) > 1e-2
    assert all(math.isfinite(value) for each in own for value in each.metrics.values())


def test_each_round_has_a_seed_of_its_own(monkeypatch):
    seeds = []
    train = work.NormedTraining.train
    monkeypatch.setattr(
        work.NormedTraining, "train", lambda own, seed, steps: seeds.append(seed) or train(own, seed, steps)
    )
    for repeat in (0, 1):
        seeds.clear()
        rounds(OWN, repeat=repeat, seed=3)
        assert seeds[0] == 3  # the warm-up
        assert set(seeds[1:]) == {3 + 1000 * repeat, 4 + 1000 * repeat}


def test_it_evaluates_with_the_running_statistics_that_it_is_given():
    data = load("synthetic")
    training = work.NormedTraining(data, devices(2), SYNCED, 32, 0.25)
    training.train(0, 60)
    (running, other), net = training.net.running, training.net
    before = [each.asnumpy() for each in running]
    found, wrong = (net.accuracy(data.test, own) for own in (running, [each * 0 + 1 for each in running]))
    assert found > wrong + 0.2
    assert in_sync([running, other, list(map(np.array, before))])
