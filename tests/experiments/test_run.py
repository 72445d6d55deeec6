"""What becomes of a question whose processes go wrong: a result all the same, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from itertools import chain, repeat
from unittest.mock import Mock

import faulty
import psutil
import pytest
from littles import little

from mxdp.experiments.lab import ranks, result, run
from mxdp.experiments.lab.module import Question
from mxdp.experiments.lab.told import NO_ANSWER, told

QUESTION = Question(faulty)
pytestmark = pytest.mark.usefixtures("importable")


@pytest.fixture
def measure(tmp_path, monkeypatch):
    """``measure(faults, **settings)``: the result of `faulty`, and its rows by label."""
    monkeypatch.setenv("FAULTY_PIDS", str(tmp_path / "pids"))

    def measured(faults="none", together=False, **settings):
        monkeypatch.setenv("FAULTY_TOGETHER", str(int(together)))
        monkeypatch.setattr(faulty, "TOGETHER", together)
        found = run.run(QUESTION, "quick", little(QUESTION, faults=faults, **settings), tmp_path, quiet)
        assert result.read(next((tmp_path / "faulty").glob("*.json"))) == found
        return found, {row["label"]: {**row, "by_name": by_name(row["processes"])} for row in found["rows"]}

    return measured


def by_name(processes):
    """What processes have said, as a list for each name."""
    return {name: [own[name] for own in processes] for name in processes[0]}


def quiet(*_):
    pass


def test_all_well(measure, tmp_path):
    found, rows = measure(processes=3, timeout=float("inf"))  # longer than the system waits
    assert (found["status"], found["error"], found["prediction"]) == ("ok", None, "Good, soon.")
    assert found["oracle"] == {"checked": 3, "wrong": 0, "text": "ones"}  # of the first process alone
    numbers, facts = rows["good"]["by_name"], rows["good"]["facts"]
    assert (numbers["seconds"], numbers["process"]) == ([0.25] * 3, [0, 1, 2])
    assert numbers["entries"] == [{"a": 1.0, "b": 2.0}] * 3
    assert len(set(numbers["pid"])) == 3  # each a process of its own
    assert numbers["nan"] == [None] * 3
    assert numbers["right"] == [True] * 3
    assert (numbers["word"], facts["found"]) == (["x"] * 3, "good")
    assert found["bounds"] == {"It takes at most 0.3 s.": 0.3}
    assert {"mxdp.backend", "faulty"} <= set(found["sources"])
    assert not list((tmp_path / "faulty").glob("*.log"))


REASONS = {
    "raises in oracle": "ZeroDivisionError.*while comparing",
    "raises in set_up": "ZeroDivisionError.*while setting up",
    "raises in round": "ZeroDivisionError.*while measuring round 1",
    "wrong": "3 of 3 numbers differ",
    "unchecked": "nothing was compared",
    "nan time": "it took nan seconds",
    "leaves an error to mxnet in round": "MXNetError.*while measuring",
    "calls exit in oracle": r"it calls sys.exit\(0\).*while comparing",
    "exits in set_up": "exit status 3.*while setting up",
    "leaves in round": "ended without an answer while measuring round 1",
    "is killed in round": "SIGKILL.*memory.*while measuring",
    "crashes in round": "SIGSEGV.* while measuring round 1",
    "wrong rank": "process 1 of 2: 3 of 3 numbers differ",
    "one rank raises in round": "process 1 of 2: ZeroDivisionError",
    "hangs in round": "time limit of .*s while measuring round 1",
    "one rank hangs in round": "time limit",
}
SOFT, ENDING, RANKS = list(REASONS)[:8], list(REASONS)[8:12], list(REASONS)[12:14]
"""Faults that leave a process alive, that end it, and of which the second process of a case dies."""


@pytest.mark.parametrize(
    ("faults", "together"),
    [
        (SOFT + ENDING + RANKS, False),
        *(([fault], False) for fault in ("hangs in round", "one rank hangs in round")),
        (SOFT, True),
        *(([fault], True) for fault in (*ENDING, "hangs in round")),
    ],
)
def test_cases_that_fail_say_why_and_the_other_goes_on(faults, together, measure, tmp_path, hanging):
    found, rows = measure(",".join(faults), together)
    assert found["status"] == ("timeout" if "hangs" in faults[0] else "failed")
    sentences = re.split(f"; (?=(?:{'|'.join([*faults, 'good'])}): )", found["error"])
    reasons = dict(sentence.split(": ", 1) for sentence in sentences if not sentence.startswith("good: "))
    assert list(reasons) == faults
    for fault, reason in reasons.items():
        assert re.search(REASONS[fault], reason), fault
    assert told(QUESTION, [found]).sentence in ("", NO_ANSWER)
    if together and faults == ["exits in set_up"]:  # before the other one's round
        assert "good: the process shared with exits in set_up is gone" in found["error"]
    else:
        assert len(rows["good"]["by_name"]["seconds"]) == 1
    assert not set(faults) & set(rows)
    logs = {path.stem for path in (tmp_path / "faulty").glob("*.log")}
    assert logs == ({"good"} if together else {fault.replace(" ", "-") for fault in faults})


def test_prints_and_forks_disturb_nothing(measure, tmp_path):
    found, rows = measure("prints in round,forks in set_up")
    assert found["status"] == "ok"
    assert len(rows) == 3
    assert len({row["facts"]["rate"] for row in rows.values()}) == 1  # what the first case has measured, all have
    pid = int((tmp_path / "pids").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_what_can_not_be_done_here_is_skipped_and_said(measure):
    found, rows = measure("skips in set_up,needs")
    assert (found["status"], list(rows)) == ("ok", ["good"])
    assert found["skipped"] == {
        "skips in set_up": "a GPU is missing: buy one",
        "needs": "no_such is not installed: `make`",
    }


def test_cases_that_are_lost_take_no_turn_from_those_after_them(measure):
    _, rows = measure("skips in set_up,raises in set_up,well", processes=2)
    assert [(label, len(row["by_name"]["seconds"])) for label, row in rows.items()] == [("good", 2), ("well", 2)]


@pytest.mark.parametrize(
    ("faults", "reason"),
    [("expect", "no idea"), ("alike", "the same label"), ("cases", "it calls sys.exit(enough)")],
)
def test_a_defect_of_the_question_is_told(faults, reason, measure):
    found, rows = measure(faults)
    assert (found["status"], rows) == ("failed", {})
    assert reason in found["error"]


@pytest.mark.parametrize(
    ("faults", "why"), [("tell", "RuntimeError: speechless"), ("tell no more", r"it calls sys.exit\(3\)")]
)
def test_a_question_that_can_not_tell_loses_no_number(faults, why, measure):
    found, rows = measure(faults)
    about = told(QUESTION, [found])
    assert (found["status"], len(rows["good"]["by_name"]["seconds"])) == ("ok", 1)
    assert re.match(rf"No answer: not every case was measured. \(.*{why}", about.sentence)
    assert "seconds" in [column.name for column in about.columns]


def test_two_checkouts_that_are_compared_take_turns_and_turns_at_being_first(tmp_path, monkeypatch):
    order = []
    monkeypatch.setattr(run.Run, "once", lambda one, number, *_: order.append((number, "AB"[runs.index(one)])))
    runs = [run.Run(QUESTION, "quick", little(QUESTION, processes=3), tmp_path) for _ in "AB"]
    run.measure(runs, quiet)
    assert order == [(0, "A"), (0, "B"), (1, "B"), (1, "A"), (2, "A"), (2, "B")]


def test_a_process_that_can_not_be_started_is_its_cases_failure(measure, monkeypatch):
    def full(*_, **__):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "Popen", full)
    found, _ = measure()
    assert "its process could not be started" in found["error"]


def test_a_file_that_can_not_be_written_is_said_and_hides_no_interrupt(tmp_path, monkeypatch):
    (tmp_path / "faulty").write_text("in the way")
    found = run.run(QUESTION, "quick", little(QUESTION), tmp_path, quiet)
    assert found["status"] == "failed"
    assert str(tmp_path / "faulty") in found["error"]

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run.run(QUESTION, "quick", little(QUESTION), tmp_path, quiet)


@pytest.fixture
def hangs(tmp_path, hanging):
    """The command that measures `faulty`, and hangs in its second case."""
    (tmp_path / "hangs.toml").write_text('[faulty]\nfaults = "hangs in round"\n')
    command = [sys.executable, "-m", "mxdp.experiments", "run", "faulty", "--preset", str(tmp_path / "hangs.toml")]
    environ = {**os.environ, "MXDP_EXPERIMENTS": "faulty"}
    running = subprocess.Popen([*command, "--out", str(tmp_path / "out")], env=environ)
    until = time.monotonic() + 100
    while not hanging.exists() and time.monotonic() < until:
        time.sleep(0.1)
    yield running
    running.kill()
    running.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_and_its_like_keep_what_was_measured(number, hangs, tmp_path):
    hangs.send_signal(number)
    while hangs.poll() is None:  # a second one must not cost the report
        hangs.send_signal(signal.SIGINT)
        time.sleep(0.01)
    assert hangs.wait(60) == 1
    found = json.loads(next((tmp_path / "out" / "faulty").glob("*.json")).read_text())
    assert "interrupted by the user" in found["error"]
    assert [row["label"] for row in found["rows"]] == ["good"]
    assert (tmp_path / "out" / "report.html").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_waits_until_nothing_holds_a_lock(number, tmp_path, monkeypatch):
    """Seen on a busy machine: SIGTERM in the middle of Popen.wait left its lock taken, and the end waited for ever."""
    happened = []

    def wait_for(*given):
        signal.raise_signal(number)
        happened.append("goes on")
        try:
            given[-1]()
        finally:
            signal.raise_signal(signal.SIGINT)
            happened.append("ends its processes")

    def ends(got, _):
        happened.append(got)
        raise KeyboardInterrupt

    monkeypatch.setattr(ranks, "wait_for", wait_for)
    before = signal.signal(number, ends)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run(QUESTION, "quick", little(QUESTION), tmp_path, quiet)
        assert signal.getsignal(number) is ends
    finally:
        signal.signal(number, before)
    assert happened == ["goes on", "ends its processes", number]
    assert "interrupted by the user" in next((tmp_path / "faulty").glob("*.json")).read_text()


def test_nothing_is_left_running_when_the_runner_itself_is_killed(hangs):
    children = psutil.Process(hangs.pid).children(recursive=True)
    assert children
    hangs.kill()
    hangs.wait()
    assert not psutil.wait_procs(children, timeout=20)[1]


@pytest.mark.parametrize("at", range(5))
def test_a_process_may_end_at_any_moment_between_two_looks_at_it(at, monkeypatch, tmp_path):
    """Seen: one that ended just after a look made the whole measurement fail with a StopIteration."""
    processes = [Mock(**{"poll.side_effect": chain([None] * at, repeat(0))}) for _ in "ab"]
    monkeypatch.setattr(ranks, "running", lambda *_: nullcontext(processes))
    assert ranks.wait_for(([((), {})] * 2, []), 9.0, tmp_path / "log", None, lambda: None) is None


def test_a_process_that_was_waited_for_does_not_keep_the_others_alive():
    with ranks.running([(["sleep", "1000"], dict(os.environ))] * 2, subprocess.DEVNULL) as started:
        started[0].kill()
        psutil.wait_procs([psutil.Process(started[0].pid)], 5)
    assert all(one.returncode is not None for one in started)
