from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=60)
@given(st.integers(1, 9), st.integers(1, 12), st.floats(0, 13), st.booleans(), st.sampled_from([False, None, 10**9]))
def test_a_job_is_whole_or_cut_into_the_fewest_slices_that_fit_or_refused(size, products, fits, cut, limit):
    """With ``limit`` False it is what there is room for; else the machine has this room, and a limit above, or none."""
    room = 512 * size + int(fits * 4 * (size * size + 65 * size))
    most = (room - 512 * size) // (4 * (size * size + 65 * size))
    limit = room if limit is False else limit
    with mock.patch.object(memory, "available_bytes", return_value=10**12 if limit == room else room):
        if most < (1 if cut else products):
            with pytest.raises(MemoryShortage, match="one slice needs" if cut else "this job needs"):
                slices_of(BigResults(size, products), CPU, limit, cut)
            return
        pieces = slices_of(BigResults(size, products), CPU, limit, cut)
    assert [number for piece in pieces for number in range(*piece)] == list(range(products))
    assert len(pieces) == -(-products // most)
    assert max(stop - start for start, stop in pieces) <= most
