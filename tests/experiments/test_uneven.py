"""A device that is slower than the other: what the claims and the answer say, and what the oracle finds."""

from __future__ import annotations

import os
import subprocess
import time

import psutil
import pytest

from mxdp.experiments.data_parallel.uneven import Uneven
from mxdp.experiments.data_parallel.work import uneven as work
from mxdp.experiments.harness.experiment import Case, Skipped
from mxdp.experiments.measure.oracle import count
from mxdp.scratch import sgd, split_batch
from mxdp.training.step import plain_step

SETTINGS = dict(devices=[2], kind="cpu", seed=0, batch_size=24, steps=1)
CASES = Uneven().cases(SETTINGS)


@pytest.mark.parametrize("devices", [2, 3])
def test_its_oracle_finds_nothing_wrong(devices):
    checked, wrong = count(work.oracle(Case("", devices), {**SETTINGS, "devices": [devices]}))
    assert checked > 0
    assert wrong == 0


def test_its_oracle_finds_a_mean_of_the_shards_means(monkeypatch):
    def averaging(weights):
        def step(X, y, replicas, devices, lr):
            for own_X, own_y, params, device in zip(*split_batch(X, y, devices, weights), replicas, devices):
                plain_step(own_X, own_y, [params], [device], 0.0, lambda: None)
                for param in params:
                    param.grad[:] *= len(X) / (len(devices) * len(own_X))
            for same in zip(*replicas):
                total = sum(param.grad.as_in_ctx(devices[0]) for param in same)
                for param in same:
                    param.grad[:] = total.as_in_ctx(param.ctx)
            for params in replicas:
                sgd(params, lr, len(X))

        return step

    monkeypatch.setattr(work, "synced_step", averaging)
    assert count(work.oracle(Case("", 2), SETTINGS))[1] > 0


def test_a_round_slows_the_last_device_and_leaves_no_process_busy():
    if len(psutil.Process().cpu_affinity()) < 2:
        pytest.skip("it needs two cores")
    children = psutil.Process().children
    try:
        here = work.set_up(Case("", 2, settings={"split": "by speed", "busy": True}), {**SETTINGS, "steps": 3})
        (neighbour,) = children()
        first, second = map(int, here.case["shards"].split(" + "))
        assert first + second == 24
        assert here.round().metrics["slower"] > 0
        time.sleep(0.1)
        ran = neighbour.cpu_times().user
        time.sleep(0.3)
        assert neighbour.cpu_times().user - ran < 0.15
    finally:
        for each in children():
            each.kill()
            each.wait()


def test_without_a_core_for_each_device_it_is_skipped(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: None, raising=False)
    with pytest.raises(Skipped, match="2 devices need a core each, and this process has 1"):
        work.set_up(CASES[0], SETTINGS)
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(Skipped, match="run it on Linux"):
        work.set_up(CASES[0], SETTINGS)


def test_the_neighbour_ends_with_its_parent():
    neighbour = subprocess.Popen(["python3", "-c", work.NEIGHBOUR], stdin=subprocess.PIPE, bufsize=0)
    neighbour.stdin.write(b"1")
    neighbour.stdin.close()
    assert neighbour.wait(20) == 0
