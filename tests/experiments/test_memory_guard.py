from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from mxdp import memory
from mxdp.backend import mx
from mxdp.errors import MemoryShortage
from mxdp.experiments.automatic_parallelism import memory_guard
from mxdp.experiments.automatic_parallelism.memory_guard import BigResults, run_job, slices_of
from mxdp.experiments.lab.module import Settings
from mxdp.experiments.memory_use import grown
from mxdp.experiments.oracle import count
from mxdp.experiments.timelines import recorded
from mxdp.tracing import Timeline

SETTINGS = Settings(devices=[1], kind="cpu", seed=0, size=400, products=40, limit_bytes=10_000_000)
CASES = {case.way: case for case in memory_guard.cases(SETTINGS)}
JOB = BigResults(400, 40)
CPU = mx.cpu(0)
SMALL = BigResults(size=6, products=5)


def leaves_one_out(job, device, seed, pieces):
    return run_job(job, device, seed, [*pieces[:-1], (pieces[-1][0] - 1, pieces[-1][1] - 1)])


@pytest.mark.parametrize("way", ["sliced", "fits"])
def test_the_oracle_catches_a_slice_that_is_off_by_one(monkeypatch, way):
    monkeypatch.setattr(memory_guard, "run_job", leaves_one_out)
    assert count(memory_guard.oracle(CASES[way], SETTINGS))[1] > 0


def test_the_oracle_catches_a_guard_that_lets_all_pass(monkeypatch):
    monkeypatch.setattr(memory, "check_fits", lambda needed, device, limit: None)
    monkeypatch.setattr(memory, "slices", lambda items, item_bytes, available: [(0, items)])
    wrong = {way: count(memory_guard.oracle(case, SETTINGS))[1] for way, case in CASES.items()}
    assert wrong == {"fits": 0, "refused": 1, "sliced": 1}


def test_the_slices_are_recorded():
    ready = memory_guard.set_up(CASES["sliced"], SETTINGS)
    at_once = ready.round()[1]["at_once"]
    events = Timeline.from_json(recorded(ready.record, [CPU])["timeline"]).events
    assert sum(event.name == "FullyConnected" for event in events) == 40
    waits = [event.end for event in events if event.name == "MXNDArrayWaitAll"]
    products = [[event for event in events if event.name == "FullyConnected" and event.end <= end] for end in waits]
    assert [len(each) for each in products[:3]] == [at_once * n for n in (1, 2, 3)]
    assert memory_guard.set_up(CASES["fits"], SETTINGS).record is None


def attempted(way, **changes):
    """What a row would say after a round."""
    return memory_guard.set_up(CASES[way], Settings({**SETTINGS, **changes})).round()[1]


def check_bytes():
    refused, sliced, whole = map(attempted, ("refused", "sliced", "fits"))
    assert (refused["at_once"], refused["predicted_bytes"]) == (0, JOB.needed(40))
    assert refused["measured_bytes"] < 2 << 20
    assert refused["said"].startswith("this job needs 30.0 MB and may take 10.0 MB of the ")
    for found, at_once in ((sliced, 10), (whole, 40)):
        assert (found["at_once"], found["said"], found["predicted_bytes"]) == (at_once, "", JOB.needed(at_once))
        assert abs(found["measured_bytes"] / JOB.needed(at_once) - 1) < 0.15
    assert sliced["predicted_bytes"] <= SETTINGS["limit_bytes"]
    job = BigResults(size=1000, products=20)
    for pieces, at_once in (([(0, 20)], 20), ([(0, 10), (10, 20)], 10)):
        taken = [grown(lambda pieces=pieces: run_job(job, CPU, 0, pieces)) for _ in range(3)]
        assert job.needed(at_once) * 0.9 < min(taken) < job.needed(at_once) * 1.1


def test_in_a_process_whose_heap_holds_nothing_else_jobs_take_the_bytes_that_were_predicted():
    """What other tests have freed stays in the heap of their process, and is used again unseen."""
    code = f"import sys; sys.path.insert(0, {str(Path(__file__).parent)!r}); import {__name__} as t; t.check_bytes()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_job_that_does_not_fit_is_refused_or_cut():
    assert slices_of(SMALL, CPU, None, cut=False) == slices_of(SMALL, CPU, SMALL.needed(5), cut=True) == [(0, 5)]
    with pytest.raises(MemoryShortage):
        slices_of(SMALL, CPU, SMALL.needed(5) - 1, cut=False)
    assert slices_of(SMALL, CPU, SMALL.needed(5) - 1, cut=True) == [(0, 3), (3, 5)]
    assert slices_of(SMALL, CPU, SMALL.needed(2), cut=True) == [(0, 2), (2, 4), (4, 5)]
    with pytest.raises(MemoryShortage, match="one slice needs"):
        slices_of(SMALL, CPU, SMALL.needed(1) - 1, cut=True)


@pytest.mark.parametrize("limit", [None, 10**9])
def test_without_a_limit_the_machine_is_one(limit, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda device: SMALL.needed(2))
    assert slices_of(SMALL, CPU, limit, cut=True) == [(0, 2), (2, 4), (4, 5)]
