"""What becomes of a question whose processes go wrong: a result all the same, and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import faulty
import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from littles import little

from mxdp.experiments.lab import ranks, result, run
from mxdp.experiments.lab.module import Case, Question, Settings
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


STARTED = "the process ended without an answer while starting"
ROOM = "its process could not be started: BlockingIOError: [Errno 11] no room while starting"
ENDS = {
    "hangs": (("timeout", "too long"), "too long while measuring round 1"),
    "dies": (("failed", "it died"), "it died while measuring round 1"),
    "says nothing": (None, STARTED),
    "is not started": (OSError(11, "no room"), ROOM),
    "fails": (None, "broken"),
    "skips": (None, "none here"),
}
"""What goes wrong: how the processes end, and what is said of it."""
ANSWERS = {"fails": {"failed": [1.5, "broken"]}, "skips": {"skipped": "none here"}}
ROUND = st.fixed_dictionaries({"seconds": st.floats(0, 9), "loss": st.floats(0, 9)})
PROCESS = st.lists(st.lists(ROUND, min_size=2, max_size=2), min_size=3, max_size=3)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), st.lists(PROCESS, max_size=3), st.sampled_from([None, *ENDS]), st.integers(0, 2))
def test_a_row_has_a_value_for_each_process_that_measured_and_else_a_reason(tmp_path, size, turns, end, last):
    """Instead of processes: what ``size`` ranks answer is drawn; then something goes wrong in one of them."""
    case = Case("a case", 2, size, needs={})
    one = run.Run(Question(faulty), "quick", little(QUESTION, rounds=2, timeout=30.0), tmp_path / "logs")
    with mock.patch.object(faulty, "cases", return_value=[case]):
        one.begin()
    one._clock -= 1000
    ended, reason = ENDS.get(end, (None, None))
    turns = turns + [None] * (end is not None)
    for number, measured in enumerate(turns):

        def waits(to_start, limit, log, folder, tick, measured=measured, number=number):
            order = Path(to_start[0][0][0][-1])
            asked = json.loads(order.read_text())
            assert (limit, asked["number"], asked["compare"], asked["rounds"]) == (30.0, number, number == 0, 2)
            tick()
            log.write_text("printed")
            if isinstance(ended, OSError) and not measured:
                raise ended
            for rank in range(size * (bool(measured) or end != "says nothing")):
                lines = [{"doing": "measuring round 1"}]
                if measured:
                    lines = [{"oracle": {"checked": 5, "wrong": rank}}] * (not number)
                    lines += [{"ready": {"devices": [f"d{rank}"], "facts": {"rank": rank}, "variables": {}}}]
                    lines += [{"round": each} for each in measured[rank]]
                elif rank == last % size:
                    lines += [ANSWERS.get(end, lines[0])]
                text = "".join(json.dumps({"case": 0, **line}) + "\n" for line in lines)
                order.with_name(f"answer-{rank}").write_text(text + '{"cut')
            return None if measured else ended

        with mock.patch.object(ranks, "wait_for", waits):
            one.once(number, [case], tmp_path, lambda doing: None)
    found = one.so_far()
    values = [measured for measured in turns if measured]
    status = {"hangs": "timeout", "skips": "skipped", None: "ok"}.get(end, "failed")
    assert (found["status"], len(found["elsewhere"])) == (status, len(turns))
    assert found["elapsed_seconds"] == pytest.approx(1000, abs=100)
    assert found["error"] == (f"a case: {reason}" if status not in ("ok", "skipped") else reason)
    assert found["skipped"] == ({"a case": reason} if end == "skips" else {})
    assert one.groups() == ([[case]] if end is None else [])
    assert (tmp_path / "logs" / "a-case.log").exists() or status in ("ok", "skipped")
    assert len(found["rows"]) == (bool(values) and end != "skips")
    for row in found["rows"]:
        for own, measured in zip(row["processes"], values):
            slowest = [max(each["seconds"] for each in at_once) for at_once in zip(*measured[:size])]
            loss = sum(each["loss"] for each in measured[0]) / 2
            assert own == {"seconds": pytest.approx(sum(slowest) / 2), "loss": pytest.approx(loss)}
        assert len(row["processes"]) == len(values)
        assert (row["oracle"], row["facts"]) == ({"checked": 5 * size, "wrong": size * (size - 1) // 2}, {"rank": 0})
        assert row["devices"] == [f"d{rank}" for rank in range(size)]


REASONS = {
    "raises in oracle": "ZeroDivisionError.*while comparing",
    "raises in set_up": "ZeroDivisionError.*while setting up",
    "wrong": "3 of 3 numbers differ",
    "unchecked": "nothing was compared",
    "nan time": "it took nan seconds",
    "leaves an error to mxnet in round": "MXNetError.*while measuring",
    "calls exit in oracle": r"it calls sys.exit\(0\).*while comparing",
    "exits in set_up": "exit status 3.*while setting up",
    "leaves in round": "ended without an answer while measuring round 1",
    "wrong rank": "process 1 of 2: 3 of 3 numbers differ",
    "crashes in round": "SIGSEGV.* while measuring round 1",
    "hangs in round": "time limit of .*s while measuring round 1",
}
SOFT, HARD = list(REASONS)[:7], list(REASONS)[7:11]
"""Faults that leave a process alive, and that end it."""


@pytest.mark.parametrize(
    ("faults", "together"), [(HARD, False), (SOFT, True), *(([fault], True) for fault in (*HARD[:2], "hangs in round"))]
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


def test_prints_forks_and_what_can_not_be_done_here_disturb_nothing(measure, tmp_path):
    """Each measures in a process of its own, and the first one alone compares. The limit is endless."""
    faults = "prints in round,forks in set_up,skips in set_up,needs"
    found, rows = measure(faults, processes=2, timeout=float("inf"))
    assert (found["status"], list(rows)) == ("ok", ["good", "prints in round", "forks in set_up"])
    assert found["skipped"] == {
        "skips in set_up": "a GPU is missing: buy one",
        "needs": "no_such is not installed: `make`",
    }
    pid = int((tmp_path / "pids").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert (found["error"], found["prediction"], rows["good"]["oracle"]["checked"]) == (None, "Good, soon.", 3)
    numbers = rows["good"]["by_name"]
    assert (numbers["process"], numbers["entries"]) == ([0, 1], [{"a": 1.0, "b": 2.0}] * 2)
    assert len(set(numbers["pid"])) == 2
    assert not list((tmp_path / "faulty").glob("*.log"))


@pytest.mark.parametrize(
    ("faults", "reason"), [("expect", "no idea"), ("alike", "the same label"), ("cases", "it calls sys.exit(enough)")]
)
def test_a_defect_of_the_question_is_told(faults, reason, measure):
    found, rows = measure(faults)
    assert (found["status"], rows) == ("failed", {})
    assert reason in found["error"]


def test_a_question_that_can_not_tell_loses_no_number(measure):
    found, rows = measure("tell")
    assert (found["status"], len(rows["good"]["by_name"]["seconds"])) == ("ok", 1)
    for faults, why in (("tell", "RuntimeError: speechless"), ("tell no more", r"it calls sys.exit\(3\)")):
        about = told(QUESTION, [{**found, "settings": {**found["settings"], "faults": faults}}])
        assert re.match(rf"No answer: not every case was measured. \(.*{why}", about.sentence)
        assert "seconds" in [column.name for column in about.columns]


SECONDS = st.integers(1, 400).map(lambda eighths: eighths / 8)


@given(
    SECONDS, st.sampled_from([None, 0.5, 1.0, 5.0]), st.integers(1, 5), st.lists(st.booleans(), min_size=2, max_size=4)
)
def test_when_to_stop_depends_on_the_clock_or_the_count_and_on_nothing_that_was_measured(seconds, minutes, most, lost):
    """Cases ``lost`` in the first turn take no later one. Two runs take turns, and take turns at being first."""
    done, now = [], SimpleNamespace(seconds=0.0)
    limited = Settings({**QUESTION.preset("quick"), "minutes": minutes, "processes": None if minutes else most})
    cases = [Case(str(at)) for at in range(len(lost))]

    def once(one, number, group, *_):
        (case,) = group
        done.append((number, case.label, runs.index(one)))
        now.seconds += seconds
        if lost[int(case.label)]:
            one.skipped[case.label] = "lost"

    said = []
    runs = [run.Run(QUESTION, "quick", limited, Path()) for _ in "AB"]
    with mock.patch.object(run.Run, "once", once), mock.patch.object(
        run, "time", SimpleNamespace(monotonic=lambda: now.seconds)
    ), mock.patch.object(faulty, "cases", return_value=cases):
        run.measure(runs, lambda *told: said.append(told))
    left = [case.label for case, gone in zip(cases, lost) if not gone]
    turns, passed = 1, seconds * 2 * len(cases)
    while left and (passed * (turns + 1) / turns <= 60 * minutes if minutes else turns < most):
        passed += seconds * 2 * len(left)
        turns += 1
    expected = [(0, case.label, at) for case in cases for at in (0, 1)]
    for turn in range(1, turns):
        expected += [(turn, label, at) for label in left for at in ((1, 0) if turn % 2 else (0, 1))]
    assert done == expected
    assert runs[0].draw == runs[1].draw
    of_how_much = (passed, 60 * minutes) if minutes else (len(done), most * 2 * len(left if turns > 1 else cases))
    assert said[-1][1:3] == of_how_much


def test_a_file_that_can_not_be_written_is_said_and_hides_no_interrupt(tmp_path, monkeypatch):
    (tmp_path / "faulty").write_text("in the way")
    for interrupt in (None, KeyboardInterrupt):
        monkeypatch.setattr(run, "measure", mock.Mock(side_effect=interrupt))
        with pytest.raises(interrupt) if interrupt else nullcontext():
            found = run.run(QUESTION, "quick", little(QUESTION), tmp_path, quiet)
    assert found["status"] == "failed"
    assert str(tmp_path / "faulty") in found["error"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_ctrl_c_and_its_like_keep_what_was_measured_and_leave_nothing_running(number, hanging, tmp_path, monkeypatch):
    """It hangs in its second case. A second signal must not cost the report; only SIGKILL does."""
    (tmp_path / "hangs.toml").write_text('[faulty]\nfaults = "hangs in round"\n')
    monkeypatch.setenv("MXDP_EXPERIMENTS", "faulty")
    command = [sys.executable, "-m", "mxdp.experiments", "run", "faulty", "--preset", str(tmp_path / "hangs.toml")]
    with subprocess.Popen([*command, "--out", str(tmp_path / "out")]) as running:
        until = time.monotonic() + 100
        while not hanging.exists() and time.monotonic() < until:
            time.sleep(0.1)
        children = psutil.Process(running.pid).children(recursive=True)
        running.send_signal(number)
        while running.poll() is None:
            running.send_signal(signal.SIGINT)
            time.sleep(0.01)
    assert children
    assert not psutil.wait_procs(children, timeout=20)[1]
    if number == signal.SIGKILL:
        return
    assert running.returncode == 1
    found = json.loads(next((tmp_path / "out" / "faulty").glob("*.json")).read_text())
    assert "interrupted by the user" in found["error"]
    assert [row["label"] for row in found["rows"]] == ["good"]
    assert (tmp_path / "out" / "report.html").exists()


def test_ctrl_c_waits_until_nothing_holds_a_lock(tmp_path, monkeypatch):
    """Seen on a busy machine: SIGTERM in the middle of Popen.wait left its lock taken, and the end waited for ever."""
    happened = []

    def wait_for(*given):
        signal.raise_signal(signal.SIGTERM)
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
    before = signal.signal(signal.SIGTERM, ends)
    try:
        with pytest.raises(KeyboardInterrupt):
            run.run(QUESTION, "quick", little(QUESTION), tmp_path, quiet)
        assert signal.getsignal(signal.SIGTERM) is ends
    finally:
        signal.signal(signal.SIGTERM, before)
    assert happened == ["goes on", "ends its processes", signal.SIGTERM]
    assert "interrupted by the user" in next((tmp_path / "faulty").glob("*.json")).read_text()


def test_a_process_that_was_waited_for_does_not_keep_the_others_alive():
    with ranks.running([(["sleep", "1000"], dict(os.environ))] * 2, subprocess.DEVNULL) as started:
        started[0].kill()
        psutil.wait_procs([psutil.Process(started[0].pid)], 5)
    assert all(one.returncode is not None for one in started)
