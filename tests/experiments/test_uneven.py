from __future__ import annotations

import itertools
import os
import subprocess
import time

import psutil
import pytest
from littles import little

from mxdp.experiments.data_parallel import uneven
from mxdp.experiments.data_parallel.lenet_steps import synced_step
from mxdp.experiments.lab import Case, Skipped
from mxdp.experiments.lab.module import Question
from mxdp.experiments.oracle import count

SETTINGS = little(Question(uneven))


@pytest.mark.parametrize(("devices", "weights"), [(2, [[1, 3], [3, 1]]), (3, [[1, 1, 3], [3, 3, 1]])])
def test_its_oracle_weighs_the_shards_both_ways(monkeypatch, devices, weights):
    steps = []
    monkeypatch.setattr(uneven, "synced_step", lambda weights: steps.append(weights) or synced_step(weights))
    checked, wrong = count(uneven.oracle(Case("", devices), little(Question(uneven), devices=[devices])))
    assert (checked, wrong, steps) == (2 * 3 * 129068 * 2 * (2 * devices - 1), 0, weights)


def test_shards_are_measured_beside_a_busy_neighbour_which_this_process_ends_and_waits_for(monkeypatch):
    if len(psutil.Process().cpu_affinity()) < 2:
        pytest.skip("it needs two cores")
    ending = []
    monkeypatch.setattr(uneven.atexit, "register", ending.append)
    before = os.times().children_user
    times = itertools.cycle([1.0, 2.0])
    monkeypatch.setattr(uneven, "timed", lambda push: (push(), next(times))[1])
    try:
        work = uneven.set_up(Case("", 2, split="by speed", busy=True), little(Question(uneven), steps=3))
        (neighbour,) = psutil.Process().children()
        assert neighbour.cpu_affinity() == psutil.Process().cpu_affinity()[1:2]
        assert work.facts["shards"] == "16 + 8"
        assert work.round() == (2.0, {"slower": 0.5})  # the first round took three times
        assert neighbour.cpu_times().user > 0
    finally:
        for end in reversed(ending):
            end()
    assert not neighbour.is_running()
    assert os.times().children_user > before, "else the machine would seem busy with other work"


def test_without_a_core_for_each_device_it_is_skipped(monkeypatch):
    case = next(iter(uneven.cases(SETTINGS)))
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {3}, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", lambda thread, cores: None, raising=False)
    with pytest.raises(Skipped, match="2 devices need a core each, and this process has 1"):
        uneven.set_up(case, SETTINGS)
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(Skipped, match="run it on Linux"):
        uneven.set_up(case, SETTINGS)


def test_the_neighbour_ends_with_its_parent():
    start = (
        f"import os, subprocess; print(subprocess.Popen(['python3', '-c', {uneven.NEIGHBOUR!r}, str(os.getpid())]).pid)"
    )
    done = subprocess.run(["python3", "-c", start], stdout=subprocess.PIPE, text=True, check=True)
    deadline = time.monotonic() + 20
    while psutil.pid_exists(int(done.stdout)) and psutil.Process(int(done.stdout)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
