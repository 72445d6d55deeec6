from __future__ import annotations

from functools import lru_cache

from littles import little

from mxdp.backend import mx
from mxdp.collectives.tuning import choose
from mxdp.experiments.allreduce import allreduce
from mxdp.experiments.allreduce.allreduce import NAMES
from mxdp.experiments.lab.module import find
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import CPU
from mxdp.plans.cost.simulate import predict

S = little(find("allreduce"), devices=[2, 3], kind="cpu", sizes=[4, 1 << 20])
CASES = {case.label: case for case in allreduce.cases(S)}


def test_the_machine_is_measured_once_and_auto_chooses_by_that(monkeypatch):
    asked, given, machine, right = [], [], CPU.with_cores(4), allreduce._sync
    monkeypatch.setattr(allreduce, "calibrated", lambda devices: asked.append(devices) or machine)
    monkeypatch.setattr(allreduce, "_sync", lambda *call: given.append(call[2]) or right(*call))
    for cached in (allreduce._cases, allreduce._times):
        monkeypatch.setattr(allreduce, cached.__name__, lru_cache(maxsize=None)(cached.__wrapped__))
    labels = ("2 arrays of 4 bytes, auto", "3 arrays of 1 MiB, ring", "3 arrays of 4 bytes, mxnet-local")
    auto, ring, store = [work.round()[1] for work in [allreduce.set_up(CASES[label], S) for label in labels]]
    assert set(asked) == {(mx.cpu(0), mx.cpu(1))}
    assert given == [machine] * 3
    assert NAMES[auto["choice"]] == auto["chosen"]
    assert NAMES[auto["default_choice"]] == choose([mx.cpu(0), mx.cpu(1)], [1], 4)
    assert ring["chosen"] == "ring"
    for row, n, elements in ((auto, 2, 1), (ring, 3, 1 << 18)):
        seconds = predict(plan(row["chosen"], n, [elements]), 4 * elements, machine)
        assert row["predicted_ms"] == seconds * 1e3
    assert store == {}


def test_one_device_is_not_measured_against_a_model(monkeypatch):
    monkeypatch.setattr(allreduce, "calibrated", lambda devices: CPU)
    s = little(find("allreduce"), devices=[1, 2], sizes=[4])
    ring = next(case for case in allreduce.cases(s) if case.algorithm == "ring")
    assert allreduce.set_up(ring, s).round()[1] == {"chosen": "ring"}
