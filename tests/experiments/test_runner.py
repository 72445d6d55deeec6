from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest
from faulty import (
    ChecksNothing,
    Exits,
    Explains,
    Good,
    Hangs,
    InTwos,
    IsKilled,
    IsWrong,
    Prints,
    Raises,
    Segfaults,
    ShowsItsEnvironment,
)

from mxdp.experiments import results, runner


@pytest.fixture(autouse=True)
def importable(monkeypatch):
    """The children import these experiments by name."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))


def measure(cls, folder, **changes):
    return runner.run(cls(), "quick", {**cls.presets["quick"], **changes}, folder)


def children():
    return psutil.Process().children(recursive=True)


def test_all_well(tmp_path):
    result = measure(Good, tmp_path)
    assert (result["status"], result["error"]) == ("ok", None)
    assert [row["label"] for row in result["rows"]] == ["case 1", "case 2"]
    assert result["rows"][1]["case"] == {"devices": ["made(0)", "made(1)"], "bad": True}
    assert result["rows"][0]["seconds"] == results.summary([1 + n / 64 for n in (1, 2, 3)])
    assert result["rows"][1]["metrics"]["number"] == 3
    assert result["oracle"] == {"checked": 20, "wrong": 0, "text": "ten numbers"}
    assert result["verdict"] == {"holds": True, "text": "It ended well."}
    assert results.read(tmp_path / "made-good.json") == result
    assert os.listdir(tmp_path) == ["made-good.json"]
    assert children() == []


FAILURES = [
    (Hangs, "timeout", "case 2: stopped after 3 s: no answer within the time limit while measuring round 2"),
    (IsKilled, "failed", "was killed (SIGKILL), as the system does when memory runs out, while measuring round 2"),
    (Raises, "failed", "case 2: RuntimeError: out of luck (while measuring round 2)"),
    (Explains, "failed", "case 2: the data are gone: put them back (while measuring round 2)"),
    (Exits, "failed", "case 2: the process ended with exit status 7: glibc says goodbye while measuring round 2"),
    (Segfaults, "failed", "case 2: the process died of SIGSEGV while measuring round 2"),
]


@pytest.mark.parametrize(("cls", "status", "reason"), FAILURES, ids=lambda value: getattr(value, "name", None))
def test_a_case_that_fails_is_reported_and_the_other_goes_on(cls, status, reason, tmp_path):
    result = measure(cls, tmp_path)
    assert result["status"] == status
    assert reason in result["error"]
    assert [len(row["seconds"]["samples"]) for row in result["rows"]] == [3, 1]
    assert result["verdict"] == {"holds": None, "text": "No verdict: not every case was measured."}
    assert results.read(tmp_path / f"{cls.name}.json") == result
    assert children() == []


def test_stderr_of_a_failure_is_kept(tmp_path):
    measure(Raises, tmp_path)
    (log,) = tmp_path.glob("*.stderr.txt")
    assert log.name == "made-raise.case-2.0.stderr.txt"
    assert "Traceback" in log.read_text()


def test_wrong_numbers_are_not_timed(tmp_path):
    result = measure(IsWrong, tmp_path)
    assert result["status"] == "failed"
    assert "case 2: 3 of 10 numbers differ from the serial run (ten numbers), so it was not timed" in result["error"]
    assert result["oracle"]["wrong"] == 3
    assert [row["label"] for row in result["rows"]] == ["case 1"]


def test_what_was_not_compared_is_not_timed(tmp_path):
    result = measure(ChecksNothing, tmp_path)
    assert result["status"] == "failed"
    assert "case 2: nothing was compared with the serial run, so it was not timed" in result["error"]
    assert [row["label"] for row in result["rows"]] == ["case 1"]


def test_prints_do_not_disturb(tmp_path):
    assert measure(Prints, tmp_path)["status"] == "ok"
    assert "nor is this" in (tmp_path / "made-print.case-1.0.stderr.txt").read_text()


def test_processes_of_a_case_work_together(tmp_path):
    result = measure(InTwos, tmp_path)
    assert result["oracle"]["checked"] == 20
    assert result["rows"][0]["case"]["devices"] == ["made(0)", "made(1)"]


def test_each_case_has_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MXDP_TEST_GONE", "still here")
    plain, changed = (row["case"] for row in measure(ShowsItsEnvironment, tmp_path)["rows"])
    assert plain == {
        "devices": ["made(0)"], "bad": False,
        "OMP_NUM_THREADS": "1", "MXNET_CPU_TEMP_COPY": "1000", "MXDP_TEST_GONE": "still here",
    }  # fmt: skip
    assert (changed["OMP_NUM_THREADS"], changed["MXDP_TEST_GONE"]) == ("3", None)


def test_rounds_take_turns(tmp_path):
    seen = []
    runner.run(
        Good(),
        "quick",
        dict(Good.presets["quick"]),
        tmp_path,
        lambda doing, done, steps: seen.append((doing, done, steps)),
    )
    assert [doing for doing, _, _ in seen if "round" in doing] == [
        f"case {case}: round {number} of 3" for number in (1, 2, 3) for case in (1, 2)
    ]
    assert [done for _, done, _ in seen] == list(range(10))
    assert {steps for _, _, steps in seen} == {10}


def test_an_interrupt_keeps_what_was_measured_and_stops_the_children(tmp_path):
    def interrupt(doing, done, steps):
        if doing == "case 1: round 3 of 3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(Good(), "quick", dict(Good.presets["quick"]), tmp_path, interrupt)
    result = results.read(tmp_path / "made-good.json")
    assert (result["status"], result["error"]) == ("failed", "interrupted by the user")
    assert [len(row["seconds"]["samples"]) for row in result["rows"]] == [2, 2]
    assert children() == []


def test_the_time_limit_counts_all_of_a_cases_turns(tmp_path):
    started = time.monotonic()
    result = measure(Hangs, tmp_path, timeout=1.5)
    assert result["status"] == "timeout"
    assert "stopped after 1.5 s" in result["error"]
    assert time.monotonic() - started < 20


def test_nothing_is_left_running_when_the_runner_itself_is_killed(tmp_path):
    code = (
        "import faulty; from mxdp.experiments import runner; from pathlib import Path\n"
        "settings = dict(faulty.Hangs.presets['quick'], timeout=60.0)\n"
        f"runner.run(faulty.Hangs(), 'quick', settings, Path({str(tmp_path)!r}))"
    )
    if not sys.platform.startswith("linux"):
        pytest.skip("prctl is Linux's")
    victim = subprocess.Popen([sys.executable, "-c", code])
    try:
        orphans = wait_for(lambda: len(found := psutil.Process(victim.pid).children()) == 2 and found)
        victim.kill()
        victim.wait(10)
        wait_for(lambda: not any(orphan.is_running() and orphan.status() != psutil.STATUS_ZOMBIE for orphan in orphans))
    finally:
        victim.kill()


def wait_for(condition, seconds=20):
    pause = threading.Event()
    for _ in range(seconds * 20):
        if value := condition():
            return value
        pause.wait(0.05)
    raise AssertionError(f"not within {seconds} s: {condition}")
