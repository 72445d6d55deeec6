"""What becomes of a question whose processes go wrong: a result all the same, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
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
    assert not list((tmp_path / "faulty").glob("*.log"))


def pairs(values):
    """The answers of a process: rounds, each with these numbers."""
    return [{"case": 0, "round": {"seconds": seconds, **more}} for seconds, more in values]


ROUND = st.tuples(st.floats(0, 9), st.dictionaries(st.sampled_from(["loss", "peak"]), st.floats(0, 9), max_size=2))
PROCESS = st.one_of(
    st.tuples(st.just("measures"), st.lists(st.lists(ROUND, min_size=2, max_size=2), min_size=3, max_size=3)),
    st.tuples(
        st.sampled_from(["hangs", "dies", "says nothing", "is not started", "fails", "skips"]), st.integers(0, 2)
    ),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.integers(1, 3), st.lists(PROCESS, min_size=1, max_size=4))
def test_a_row_has_a_value_for_each_process_that_measured_and_else_a_reason(tmp_path, size, processes):
    """Instead of processes: what they answer is drawn, of ``size`` ranks; who doesn't measure is the last one."""
    case = Case("a case", 2, size, needs={})
    one = run.Run(Question(faulty), "quick", little(QUESTION, rounds=2, timeout=30.0), tmp_path / "logs")
    values, failure, skipped = [], None, None
    with mock.patch.object(faulty, "cases", return_value=[case]), mock.patch.object(faulty, "TOGETHER", True):
        one.begin()
    for number, (what, how) in enumerate(processes):

        def waits(to_start, limit, log, folder, tick, what=what, how=how, number=number):
            order = Path(to_start[0][0][0][-1])
            asked = json.loads(order.read_text())
            assert (limit, asked["number"], asked["compare"], asked["rounds"]) == (30.0, number, number == 0, 2)
            assert len(asked["cases"]) == 1
            tick()
            log.write_text("printed")
            if what == "is not started":
                raise OSError(11, "no room")
            for rank in range(size):
                lines = [{"case": 0, "doing": "measuring round 1"}]
                if what == "measures":
                    facts = {"rank": rank}
                    lines = [{"case": 0, "oracle": {"checked": 5, "wrong": rank}}] * (not number)
                    lines += [{"case": 0, "ready": {"devices": [f"d{rank}"], "facts": facts, "variables": {}}}]
                    lines += pairs(how[rank])
                elif what in ("fails", "skips") and rank == how % size:
                    lines.append({"case": 0, "skipped": "none here"} if what == "skips" else
                                 {"case": 0, "failed": [1.5, "broken"]})  # fmt: skip
                if what != "says nothing":
                    text = "".join(json.dumps(line) + "\n" for line in lines) + '{"cut'
                    order.with_name(f"answer-{rank}").write_text(text)
            return {"hangs": ("timeout", "too long"), "dies": ("failed", "it died")}.get(what)

        with mock.patch.object(ranks, "wait_for", waits):
            one.once(number, [case], tmp_path, lambda doing: None)
        if what == "measures":
            together = [max(at_once, key=lambda own: own[0])[0] for at_once in zip(*how[:size])]
            first = [more for _, more in how[0]]
            row = {"seconds": sum(together) / 2}
            for name in {**first[0], **first[1]}:
                known = [more[name] for more in first if name in more]
                row[name] = sum(known) / len(known)
            values.append(row)
            continue
        doing = "starting" if what in ("says nothing", "is not started") else "measuring round 1"
        failure = {
            "hangs": ("timeout", f"too long while {doing}"),
            "dies": ("failed", f"it died while {doing}"),
            "fails": ("failed", "broken"),
            "is not started": (
                "failed",
                f"its process could not be started: BlockingIOError: [Errno 11] no room while {doing}",
            ),
        }.get(what, ("failed", f"the process ended without an answer while {doing}"))
        if what == "skips":
            failure, skipped = None, {"a case": "none here"}
        break
    found = one.so_far()
    (row,) = found["rows"] or [None]
    assert (row is not None) == (bool(values) and not skipped)
    if row:
        assert row["processes"] == [{name: pytest.approx(value) for name, value in own.items()} for own in values]
        assert (row["oracle"], row["facts"]) == ({"checked": 5 * size, "wrong": size * (size - 1) // 2}, {"rank": 0})
        assert row["devices"] == [f"d{rank}" for rank in range(size)]
    assert found["skipped"] == (skipped or {})
    status = failure[0] if failure else "skipped" if skipped else "ok"
    assert (found["status"], len(found["elsewhere"])) == (status, number + 1)
    assert found["error"] == (f"a case: {failure[1]}" if failure else "none here" if skipped else None)
    assert one.groups() == ([] if failure or skipped else [[case]])
    assert (tmp_path / "logs" / "a-case.log").exists() or not failure


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
        (SOFT[:1] + ENDING + RANKS, False),
        *(([fault], False) for fault in ("hangs in round", "one rank hangs in round")),
        (SOFT, True),
        *(([fault], True) for fault in (*ENDING[:2], "hangs in round")),
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
    pid = int((tmp_path / "pids").read_text())
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_what_can_not_be_done_here_is_skipped_and_said(measure):
    found, rows = measure("skips in set_up,needs")
    assert (found["status"], list(rows)) == ("ok", ["good"])
    assert found["skipped"] == {
        "skips in set_up": "a GPU is missing: buy one",
        "needs": "no_such is not installed: `make`",
    }


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


SECONDS = st.integers(1, 400).map(lambda eighths: eighths / 8)


@given(
    SECONDS, st.sampled_from([None, 0.5, 1.0, 5.0]), st.integers(1, 5), st.lists(st.booleans(), min_size=2, max_size=4)
)
def test_when_to_stop_depends_on_the_clock_or_the_count_and_on_nothing_that_was_measured(seconds, minutes, most, lost):
    """Cases ``lost`` in the first turn take no later one, and none from those after them. Two runs take turns, and take
    turns at being first."""
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
    words = ["1 process", *(f"{count} processes" for count in range(2, turns + 1))]
    assert [told[0] for told in said] == [f"{count} of each case" for count in words]
    of_how_much = (passed, 60 * minutes) if minutes else (len(done), most * 2 * len(left if turns > 1 else cases))
    assert said[-1][1:3] == of_how_much


def test_a_question_of_which_no_case_is_left_ends_at_once(measure, monkeypatch):
    monkeypatch.setattr(faulty, "cases", lambda s: [Case("a", fault="skips in set_up")])
    found, _ = measure(processes=None, minutes=60.0)
    assert (found["status"], len(found["elsewhere"])) == ("skipped", 1)


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


def test_a_process_that_was_waited_for_does_not_keep_the_others_alive():
    with ranks.running([(["sleep", "1000"], dict(os.environ))] * 2, subprocess.DEVNULL) as started:
        started[0].kill()
        psutil.wait_procs([psutil.Process(started[0].pid)], 5)
    assert all(one.returncode is not None for one in started)
