from __future__ import annotations

import subprocess
import sys
import time
from types import SimpleNamespace

import psutil
import pytest

from mxdp.experiments.harness import disturbance
from mxdp.experiments.harness.disturbance import Watch, _Counters, disturbed, elsewhere

SPIN = "while True: pass"


def watched(monkeypatch, after):
    counters = iter([_Counters(0.0, 0.0, 0.0, 0.0, 0), _Counters(*after)])
    monkeypatch.setattr(disturbance, "_read", lambda: next(counters))
    monkeypatch.setattr(disturbance, "_quota", lambda: False)
    monkeypatch.setattr(disturbance.process, "cores", lambda: 2)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    watch = Watch()
    watch.round()
    return watch.rounds


def test_what_is_neither_idle_nor_ours_went_elsewhere(monkeypatch):
    # 10 s of two processors: 8 s idle, 7 s ours, 5 s elsewhere, of which the host kept 1.
    rounds = watched(monkeypatch, (10.0, 8.0, 1.0, 7.0, 42))
    assert (rounds["elsewhere"], rounds["stolen"], rounds["page_faults"]) == ([0.25], [0.05], [42])
    assert disturbed(rounds) == [True]


def test_counters_that_run_ahead_are_no_negative_share(monkeypatch):
    assert watched(monkeypatch, (10.0, 8.0, 0.0, 12.5, 0))["elsewhere"] == [0.0]


@pytest.mark.parametrize("spoil", ["quota", "affinity"])
def test_a_part_of_a_machine_can_not_be_told(monkeypatch, spoil):
    counters = iter([_Counters(0.0, 0.0, 0.0, 0.0, 0), _Counters(10.0, 8.0, 1.0, 7.0, 0)])
    monkeypatch.setattr(disturbance, "_read", lambda: next(counters))
    monkeypatch.setattr(disturbance, "_quota", lambda: spoil == "quota")
    monkeypatch.setattr(disturbance.process, "cores", lambda: 1 if spoil == "affinity" else 2)
    monkeypatch.setattr(psutil, "cpu_count", lambda: 2)
    watch = Watch()
    watch.round()
    assert watch.rounds["elsewhere"] == [None]
    assert disturbed(watch.rounds) == [False]


def test_only_if_most_rounds_were_disturbed():
    assert elsewhere({"elsewhere": [0.3, 0.0, 0.4]}) == 0.3
    assert elsewhere({"elsewhere": [0.3, 0.0]}) is None
    assert elsewhere({"elsewhere": [None, None]}) is None
    assert elsewhere({}) is None


@pytest.mark.skipif(psutil.cpu_count() != disturbance.process.cores(), reason="a part of the machine can't be watched")
def test_our_own_work_is_not_elsewhere():
    """A child of ours that spins counts as ours, a process of somebody else's as elsewhere. Between two readings a busy
    machine may do anything, so there are five tries."""
    watch = Watch()
    child = subprocess.Popen([sys.executable, "-c", SPIN])
    spun = psutil.Process(child.pid)
    try:
        for _ in range(5):
            time.sleep(0.3)
            watch.restart()
            began, idle, own = time.monotonic(), psutil.cpu_times().idle, sum(spun.cpu_times()[:2])
            time.sleep(0.5)
            most = (time.monotonic() - began) * psutil.cpu_count()
            idle, own = psutil.cpu_times().idle - idle, sum(spun.cpu_times()[:2]) - own
            watch.round()
            excess = watch.rounds["elsewhere"][-1] - max(0.0, 1 - (idle + own) / most)
            if excess <= 0.05:
                break
    finally:
        child.kill()
        child.wait()
    assert own > 0
    assert excess <= 0.05
    assert watch.rounds["page_faults"][0] >= 0


SPINS = r"""
import os, subprocess, sys, time
code = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True); time.sleep(float({}))"
spin = lambda rest: [sys.executable, "-S", "-c", code.format(rest)]
subprocess.run(spin(0), stdout=subprocess.DEVNULL)
other = subprocess.Popen(spin(60), stdout=subprocess.PIPE)
other.stdout.readline()
print(flush=True)
sys.stdin.read()
other.kill()
other.wait()
"""


def test_work_of_grandchildren_and_of_children_that_have_ended_is_ours():
    """Ranks are children of the harness's children."""
    before = disturbance._read().own
    command = [sys.executable, "-S", "-c", SPINS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        child.stdout.readline()
        found = disturbance._read().own - before
        child.stdin.close()
    assert found > 2 * 0.3 - 0.05


def test_a_processor_that_waits_for_the_disk_is_idle(monkeypatch):
    for times, idle in ((SimpleNamespace(idle=3.0, iowait=2.0, steal=1.0), 5.0), (SimpleNamespace(idle=3.0), 3.0)):
        monkeypatch.setattr(psutil, "cpu_times", lambda times=times: times)
        found = disturbance._read()
        assert (found.idle, found.stolen) == (idle, getattr(times, "steal", 0.0))


def test_page_faults_are_those_of_the_process_itself(monkeypatch, tmp_path):
    (tmp_path / "stat").write_text("7 (a) b) S 1 2 3 4 5 6 100 1000 10 10000 5 6 7\n")
    monkeypatch.setattr(disturbance, "Path", lambda _: tmp_path / "stat")
    assert disturbance._page_faults(7) == 110


def test_now_says_how_busy_it_is():
    assert "busy with other work" in disturbance.now(0.05)
