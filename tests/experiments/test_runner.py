from __future__ import annotations

import errno
import math
import os
import signal
import subprocess
import sys
import threading
import time

import faulty
import psutil
import pytest
from measuring import children, kept, lengths, measure

from mxdp.experiments import session
from mxdp.experiments.harness import children as children_module
from mxdp.experiments.harness import results, runner
from mxdp.experiments.harness.children import Child, ChildGone, environment_for
from mxdp.experiments.harness.experiment import Case

pytestmark = pytest.mark.usefixtures("importable")


def test_all_well(tmp_path):
    result = measure(faulty.Good, tmp_path)
    assert (result["status"], result["error"]) == ("ok", None)
    assert [row.label for row in result["rows"]] == ["case 1", "case 2"]
    assert result["rows"][1].case == {"devices": ["made(0)", "made(1)"], "bad": True}
    assert result["rows"][0].samples == [1 + n / 64 for n in (1, 2, 3)]
    assert {"number": 2, "last_number": 3}.items() <= result["rows"][1].metrics.items()
    assert result["rows"][1].rounds == {"repeat": [0] * 3, "number": [1, 2, 3], "last_number": [1, 2, 3]}
    assert result["oracle"] == {"checked": 20, "wrong": 0, "text": "ten numbers"}
    assert [row.oracle for row in result["rows"]] == [{"checked": 10, "wrong": 0}] * 2
    verdict = result["verdict"]
    assert (verdict["holds"], verdict["text"], verdict["explanation"]) == (None, "It ended well.", "It is made up.")
    assert kept(result, tmp_path)
    assert os.listdir(tmp_path) == ["made-good.json"]
    assert children() == []


FAILURES = [
    (faulty.Hangs, "timeout", "case 2: stopped after 3 s: no answer within the time limit while measuring round 2"),
    (
        faulty.IsKilled,
        "failed",
        "was killed (SIGKILL), as the system does when memory runs out, while measuring round 2",
    ),
    (faulty.Raises, "failed", "case 2: RuntimeError: out of luck (while measuring round 2)"),
    (faulty.Explains, "failed", "case 2: the data are gone: put them back (while measuring round 2)"),
    (
        faulty.Exits,
        "failed",
        "case 2: the process ended with exit status 7: glibc says goodbye while measuring round 2",
    ),
    (faulty.Segfaults, "failed", "case 2: the process died of SIGSEGV while measuring round 2"),
    pytest.param(
        faulty.DiesOfARealTimeSignal,
        "failed",
        f"case 2: the process died of signal {getattr(signal, 'SIGRTMIN', 0) + 3} while measuring round 2",
        marks=pytest.mark.skipif(not hasattr(signal, "SIGRTMIN"), reason="this system has no real-time signals"),
    ),
    (faulty.HasATimeThatIsNone, "failed", "case 2: round 2 took [nan] seconds; a time is finite and not negative"),
]


@pytest.mark.parametrize(("cls", "status", "reason"), FAILURES, ids=lambda value: getattr(value, "name", None))
def test_a_case_that_fails_is_reported_and_the_other_goes_on(cls, status, reason, tmp_path):
    result = measure(cls, tmp_path)
    assert result["status"] == status
    assert reason in result["error"]
    assert [len(row.samples) for row in result["rows"]] == [3, 1]
    assert (result["verdict"]["claims"], result["verdict"]["text"]) == ([], "No answer: not every case was measured.")
    assert kept(result, tmp_path)
    assert children() == []


def test_stderr_of_a_failure_is_kept(tmp_path):
    measure(faulty.Raises, tmp_path)
    (log,) = tmp_path.glob("*.stderr.txt")
    assert log.name == "made-raise.case-2.0.stderr.txt"
    assert "Traceback" in log.read_text()


def test_wrong_numbers_are_not_timed(tmp_path):
    result = measure(faulty.IsWrong, tmp_path)
    assert result["status"] == "failed"
    assert "case 2: 3 of 10 numbers differ from the serial run (ten numbers), so it was not timed" in result["error"]
    assert result["oracle"]["wrong"] == 3
    assert [row.label for row in result["rows"]] == ["case 1"]


def test_what_was_not_compared_is_not_timed(tmp_path):
    result = measure(faulty.ChecksNothing, tmp_path)
    assert result["status"] == "failed"
    assert "case 2: nothing was compared with the serial run, so it was not timed" in result["error"]
    assert [row.label for row in result["rows"]] == ["case 1"]


def test_prints_do_not_disturb(tmp_path):
    assert measure(faulty.Prints, tmp_path)["status"] == "ok"
    assert "nor is this" in (tmp_path / "made-print.case-1.0.stderr.txt").read_text()


def test_processes_of_a_case_work_together(tmp_path):
    result = measure(faulty.InTwos, tmp_path)
    assert result["oracle"]["checked"] == 20
    assert result["rows"][0].case["devices"] == ["made(0)", "made(1)"]
    assert result["rows"][0].samples == [3.0] * 3, "the slowest process counts"


@pytest.mark.parametrize("process", [0, 1])
def test_every_process_of_a_case_is_compared(process, tmp_path):
    result = measure(faulty.InTwos, tmp_path, wrong_in=process)
    assert (result["status"], result["rows"]) == ("failed", [])
    assert "together: 3 of 10 numbers differ" in result["error"]


def test_one_timeout_among_failures_is_a_failure(tmp_path):
    result = measure(faulty.FailsAndHangs, tmp_path, timeout=2.0)
    assert result["status"] == "failed"
    assert "case 1: RuntimeError: out of luck" in result["error"]
    assert "case 2: stopped after 2 s" in result["error"]


def test_a_process_that_cannot_be_started_is_its_cases_failure(tmp_path, monkeypatch):
    starts = []

    def start(*arguments, **options):
        starts.append(arguments)
        if len(starts) == 2:
            raise OSError(errno.ENOMEM, "Cannot allocate memory")
        return popen(*arguments, **options)

    popen = subprocess.Popen
    monkeypatch.setattr(children_module.subprocess, "Popen", start)
    result = measure(faulty.Good, tmp_path, devices=[1, 2, 3])
    assert result["status"] == "failed"
    reason = "case 2: its process could not be started: OSError: [Errno 12] Cannot allocate memory"
    assert result["error"] == reason
    assert lengths(result) == {"case 1": 3, "case 3": 3}
    assert kept(result, tmp_path)


def test_a_defect_of_the_runner_itself_keeps_what_was_measured(tmp_path):
    def progress(doing, done, steps):
        if doing == "case 2: round 2 of 3":
            raise ZeroDivisionError("no progress")

    result = runner.run(faulty.Good(), "quick", dict(faulty.Good.presets["quick"]), tmp_path, progress)
    assert (result["status"], result["error"]) == ("failed", "case 2: ZeroDivisionError: no progress")
    assert lengths(result) == {"case 1": 3, "case 2": 1}
    assert kept(result, tmp_path)


def test_an_experiment_that_cannot_predict_is_a_failure(tmp_path):
    result = measure(faulty.CannotPredict, tmp_path)
    assert (result["status"], result["error"]) == ("failed", "KeyError: 'rate'")
    assert kept(result, tmp_path)


def test_cases_of_one_label_are_refused_since_their_times_could_not_be_told_apart(tmp_path):
    result = measure(faulty.Good, tmp_path, devices=[1, 1])
    assert (result["rows"], result["error"]) == (
        [],
        "ValueError: two of its cases have the same label; each needs its own",
    )


def test_rows_that_the_experiment_spoils_are_written_as_they_were_measured(tmp_path):
    result = measure(faulty.SpoilsItsRows, tmp_path)
    assert result["status"] == "failed"
    assert "no result: rows[0].metrics is None, not dict" in result["error"]
    assert lengths(result) == {"case 1": 3, "case 2": 3}
    assert result["rows"][0].metrics == {"number": 2, "last_number": 3}
    assert kept(result, tmp_path)


def test_a_file_that_cannot_be_written_is_said_and_the_result_is_there(tmp_path):
    (tmp_path / "made-good.json").mkdir()
    result = measure(faulty.Good, tmp_path)
    assert result["status"] == "failed"
    assert "made-good.json is a folder" in result["error"]
    assert lengths(result) == {"case 1": 3, "case 2": 3}


def test_numbers_that_json_does_not_know_are_none_as_in_the_file(tmp_path):
    result = measure(faulty.MeasuresNaN, tmp_path)
    assert result["rows"][0].metrics == {"loss": None, "all": [1.0, None], "speedup": 1.0}
    assert kept(result, tmp_path)


def test_labels_that_differ_in_signs_alone_have_logs_of_their_own(tmp_path):
    assert measure(faulty.HasLabelsAlike, tmp_path)["status"] == "ok"
    assert sorted(path.read_text() for path in tmp_path.glob("*.stderr.txt")) == ["+", "a + b", "a - b"]


def test_a_child_has_nothing_of_mxdps_own_preparation():
    prepared = {"HOME": "/here", "OMP_NUM_THREADS": "1", "MXNET_CPU_TEMP_COPY": "400"}
    prepared["MXDP_PREPARED"] = "OMP_NUM_THREADS,MXNET_CPU_TEMP_COPY"
    # The second is what the user has set since.
    assert environment_for(Case("x"), prepared) == {"HOME": "/here", "MXNET_CPU_TEMP_COPY": "400"}


def test_what_a_child_has_started_ends_with_it(tmp_path):
    result = measure(faulty.StartsOthers, tmp_path)
    assert lengths(result) == {"case 1": 3, "case 2": 1}
    wait_for(lambda: not any(runs(row.case["started"]) for row in result["rows"]))


def test_a_child_may_end_by_itself(tmp_path):
    assert measure(faulty.EndsByItself, tmp_path)["status"] == "ok"
    assert [path.read_text() for path in tmp_path.glob("*.stderr.txt")] == ["the end\n"] * 2


def test_the_number_of_a_process_that_was_waited_for_is_not_used_again(tmp_path, monkeypatch):
    """Hours later it may be a stranger's."""
    killed = []
    monkeypatch.setattr(children_module.os, "killpg", lambda *arguments: killed.append(arguments))
    with Child(faulty.Good(), {}, dict(os.environ), tmp_path / "log") as child:
        child._process.kill()
        with pytest.raises(ChildGone):
            child.answer("waiting", time.monotonic() + 60)
        child.stop()
    assert len(killed) == 1


@pytest.mark.parametrize("end", [Child.stop, Child.close])
def test_a_child_that_has_ended_leaves_no_descriptor(tmp_path, end):
    before = sorted(os.listdir("/dev/fd"))
    child = Child(faulty.Good(), {}, dict(os.environ), tmp_path / "log")
    assert len(os.listdir("/dev/fd")) == len(before) + 2
    end(child)
    assert sorted(os.listdir("/dev/fd")) == before


def test_each_case_has_its_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("MXDP_TEST_GONE", "still here")
    plain, changed = (row.case for row in measure(faulty.ShowsItsEnvironment, tmp_path)["rows"])
    assert plain == {
        "devices": ["made(0)"], "bad": False,
        "OMP_NUM_THREADS": "1", "MXNET_CPU_TEMP_COPY": "128", "MXDP_TEST_GONE": "still here",
    }  # fmt: skip
    assert (changed["OMP_NUM_THREADS"], changed["MXDP_TEST_GONE"]) == ("3", None)


@pytest.mark.parametrize(("fails", "found_by"), [(None, ["case 1"] * 3), (1, ["case 2"] * 2)])
def test_what_the_first_case_shares_all_later_ones_have(tmp_path, fails, found_by):
    rows = measure(faulty.Shares, tmp_path, fails=fails)["rows"]
    assert [row.case["found_by"] for row in rows] == found_by
    assert len({row.case["pid"] for row in rows}) == len(rows)


def test_rounds_take_turns(tmp_path):
    seen = []
    runner.run(
        faulty.Good(),
        "quick",
        dict(faulty.Good.presets["quick"]),
        tmp_path,
        lambda doing, done, steps: seen.append((doing, done, steps)),
    )
    assert [doing for doing, _, _ in seen if "round" in doing] == [
        f"case {case}: round {number} of 3" for number in (1, 2, 3) for case in (1, 2)
    ]
    assert [done for _, done, _ in seen] == list(range(10))
    assert {steps for _, _, steps in seen} == {10}


FOUR = [f"case {n}" for n in (1, 2, 3, 4)]


def test_cases_together_share_a_child_and_an_instance_and_take_turns(tmp_path):
    result = measure(faulty.LightGood, tmp_path)
    assert (result["status"], result["error"]) == ("ok", None)
    assert [row.label for row in result["rows"]] == FOUR
    assert len({row.case["pid"] for row in result["rows"]}) == 1
    assert result["rows"][3].metrics["turns"] == FOUR * 3
    assert result["rows"][1].metrics["turns"] == (FOUR * 3)[:10]
    assert result["rows"][1].samples == [0.5] * 3
    assert result["oracle"]["checked"] == 40
    assert os.listdir(tmp_path) == ["made-light-good.json"]
    assert children() == []


def test_only_cases_of_one_environment_and_one_process_are_together(tmp_path):
    result = measure(faulty.LightMixed, tmp_path)
    assert [row.label for row in result["rows"]] == ["a", "b", "in twos", "c", "d", "e"]
    a, b, twos, c, d, e = (row.case["pid"] for row in result["rows"])
    assert (a, b) == (c, d)
    assert len({a, b, twos, e}) == 4
    assert result["rows"][2].case["devices"] == ["made(0)"] * 2
    assert {path.name: path.read_text() for path in tmp_path.glob("*.stderr.txt")} == {
        "made-light-mixed.0.stderr.txt": "a: None\nc: None\n",
        "made-light-mixed.1.stderr.txt": "b: other\nd: other\n",
        "made-light-mixed.2.stderr.txt": "e: third\n",
        "made-light-mixed.in-twos.0.stderr.txt": "in twos: None\n",
        "made-light-mixed.in-twos.1.stderr.txt": "in twos: None\n",
    }


def test_a_case_that_raises_lets_the_others_of_its_child_go_on(tmp_path):
    result = measure(faulty.LightRaises, tmp_path)
    assert result["status"] == "failed"
    assert result["error"] == "case 2: RuntimeError: out of luck (while measuring round 2)"
    assert lengths(result) == {"case 1": 3, "case 2": 1, "case 3": 3, "case 4": 3}
    assert len({row.case["pid"] for row in result["rows"]}) == 1
    log = (tmp_path / "made-light-raise.0.stderr.txt").read_text()
    assert log.startswith("case 2, round:\nTraceback")


def test_an_answer_that_json_cannot_hold_is_that_cases_failure_and_closes_its_run(tmp_path):
    result = measure(faulty.LightSaysWhatJsonCannot, tmp_path)
    reason = "case 2: TypeError: Object of type object is not JSON serializable (while measuring round 1)"
    assert result["error"] == reason
    assert lengths(result) == {"case 1": 3, "case 3": 3, "case 4": 3}
    assert result["rows"][2].metrics["turns"] == ["case 2 was closed"]


def test_what_a_case_left_to_mxnet_is_not_the_next_ones_error(tmp_path):
    result = measure(faulty.LightFailsLate, tmp_path)
    assert result["error"] == "case 2: RuntimeError: out of luck (while measuring round 1)"
    assert lengths(result) == {"case 1": 3, "case 3": 3, "case 4": 3}
    log = (tmp_path / "made-light-late.0.stderr.txt").read_text()
    assert log.index("case 2, round:") < log.index("RuntimeError: out of luck") < log.index("np_normal")


def test_one_reason_of_several_cases_is_told_once(tmp_path):
    result = measure(faulty.LightAllRaise, tmp_path)
    doing = "(while comparing with the serial run)"
    first, second = result["error"].split("; ")
    assert first == f"case 1 (and 2 more cases): no data {doing}"
    assert second.startswith("case 3: no data in ")
    assert result["rows"] == []


ENDS = [
    (faulty.LightExits, "failed", "the process ended with exit status 7 while measuring round 2"),
    (faulty.LightHangs, "timeout", "stopped after 3 s: no answer within the time limit while measuring round 2"),
]


@pytest.mark.parametrize(("cls", "status", "reason"), ENDS, ids=lambda value: getattr(value, "name", None))
def test_a_child_that_is_lost_ends_all_its_cases_and_says_so_once(cls, status, reason, tmp_path):
    result = measure(cls, tmp_path)
    assert result["status"] == status
    assert result["error"] == f"case 2: {reason}; case 3 (and 2 more cases): the process shared with case 2 is gone"
    assert lengths(result) == {"case 1": 2, "case 2": 1, "case 3": 1, "case 4": 1}
    assert result["verdict"]["holds"] is None
    assert kept(result, tmp_path)
    assert children() == []


def test_cases_that_were_done_when_their_child_was_lost_are_whole(tmp_path):
    result = measure(faulty.LightExits, tmp_path, rounds=2, devices=[1, 2])
    assert result["error"] == "case 2: the process ended with exit status 7 while measuring round 2"
    assert lengths(result) == {"case 1": 2, "case 2": 1}


def test_no_case_is_said_to_be_compared_in_a_child_that_is_lost(tmp_path):
    seen = []
    settings = dict(faulty.LightDiesEarly.presets["quick"])
    result = runner.run(
        faulty.LightDiesEarly(), "quick", settings, tmp_path, lambda doing, done, steps: seen.append(doing)
    )
    death = "case 2: the process ended with exit status 7 while comparing with the serial run"
    assert result["error"] == f"{death}; case 3 (and 2 more cases): the process shared with case 2 is gone"
    assert result["rows"] == []
    assert seen == [
        "case 1: comparing with the serial run", "case 1: warming up", "case 2: comparing with the serial run",
    ]  # fmt: skip


def test_the_time_limit_is_each_cases_own_in_a_shared_child(tmp_path):
    assert measure(faulty.LightIsSlow, tmp_path)["error"] is None


def test_wrong_numbers_of_one_case_leave_the_others_of_its_child_timed(tmp_path):
    result = measure(faulty.LightIsWrong, tmp_path)
    reason = "case 2: 3 of 10 numbers differ from the serial run (ten numbers), so it was not timed"
    assert (result["status"], result["error"]) == ("failed", reason)
    assert (result["oracle"]["checked"], result["oracle"]["wrong"]) == (40, 3)
    assert lengths(result) == {"case 1": 3, "case 3": 3, "case 4": 3}
    assert result["rows"][2].metrics["turns"] == ["case 1", "case 3", "case 4"] * 3


def test_an_interrupt_keeps_what_was_measured_and_stops_the_children(tmp_path):
    def interrupt(doing, done, steps):
        if doing == "case 1: round 3 of 3":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        runner.run(faulty.Good(), "quick", dict(faulty.Good.presets["quick"]), tmp_path, interrupt)
    result = results.read(tmp_path / "made-good.json")
    assert (result["status"], result["error"]) == ("failed", "interrupted by the user")
    assert [len(row.samples) for row in result["rows"]] == [2, 2]
    assert children() == []


def test_the_time_limit_counts_all_of_a_cases_turns(tmp_path):
    result = measure(faulty.IsSlow, tmp_path)
    assert result["status"] == "timeout"
    assert "case 1: stopped after 2.5 s" in result["error"]


@pytest.mark.parametrize("timeout", [1e10, math.inf])
def test_a_time_limit_may_be_longer_than_the_system_waits(timeout, tmp_path, monkeypatch):
    monkeypatch.setattr(children_module, "LONGEST_WAIT", 0.1)
    result = measure(faulty.LightIsSlow, tmp_path, timeout=timeout, devices=[1])
    assert (result["status"], lengths(result)) == ("ok", {"case 1": 3})


def test_nothing_is_left_running_when_the_runner_itself_is_killed(tmp_path):
    code = (
        "import faulty; from mxdp.experiments.harness import runner; from pathlib import Path\n"
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


def runs(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def wait_for(condition, seconds=20):
    pause = threading.Event()
    for _ in range(seconds * 20):
        if value := condition():
            return value
        pause.wait(0.05)
    raise AssertionError(f"not within {seconds} s: {condition}")


def test_an_experiment_whose_module_is_not_there_is_skipped_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(faulty.Good, "needs", {"json": "never", "no_such_module": "`pip install it`"}, raising=False)
    result = measure(faulty.Good, tmp_path)
    assert (result["status"], result["error"]) == ("skipped", "no_such_module is not installed: `pip install it`")
    assert (result["rows"], result["verdict"]["holds"]) == ([], None)
    assert kept(result, tmp_path)
    settings = {"made-good": dict(faulty.Good.presets["quick"])}
    assert session.run([faulty.Good()], "quick", settings, tmp_path, as_json=True)


@pytest.mark.parametrize("again", [False, True])
def test_a_case_that_can_not_be_is_skipped_and_the_others_are_measured(tmp_path, again):
    result = measure(faulty.HereAndThere, tmp_path, again=again)
    assert (result["status"], result["error"]) == ("ok", None)
    assert [row.label for row in result["rows"]] == ["case 3"]
    assert result["verdict"]["text"] == "It ended well."
    assert result["verdict"]["explanation"] == "It is made up."
    assert result["verdict"]["skipped"] == [
        "Skipped: case 1 (no_such_module is not installed: `pip install it`).",
        "Skipped: case 2 (there is no GPU).",
    ]


def test_without_any_case_that_can_be_the_experiment_is_skipped(tmp_path, monkeypatch):
    monkeypatch.setattr(faulty.HereAndThere, "cases", lambda self, settings: faulty.Made.cases(self, {"devices": [2]}))
    result = measure(faulty.HereAndThere, tmp_path)
    assert (result["status"], result["error"]) == ("skipped", "there is no GPU")
    assert result["verdict"]["text"].startswith("No answer")
