"""tools/torture.py: three of its faults (half a minute), that it sees each broken promise, and what it says of one."""

import contextlib
import importlib
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

TOOL = Path(__file__).resolve().parents[1] / "tools" / "torture.py"
BESIDE = Path(sys.executable).with_name("mpiexec")
KINDS = ("kill_rank", "strangers", "kill_and_restart")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tool needs Linux")


@pytest.fixture
def torture(monkeypatch):
    monkeypatch.syspath_prepend(str(TOOL.parent))
    monkeypatch.delitem(sys.modules, "torture", raising=False)
    tool = importlib.import_module("torture")
    monkeypatch.setattr(tool, "undisturbed", lambda ranks, devices: tool.Undisturbed())
    return tool


# Drawn from this seed: two ranks of a device; a kill while a checkpoint is saved, on a slow disk; silent strangers and
# deep lists.
@pytest.mark.skipif(not BESIDE.exists(), reason="no mpiexec beside this Python: pip install mpi4py mpich")
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_a_training_is_hurt():
    drawn = f"--seed 1102 --faults {len(KINDS)} --kinds {','.join(KINDS)} --ranks 2 --devices 1".split()
    done = subprocess.run([sys.executable, TOOL, *drawn], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name} 1" in done.stdout.splitlines()[-2] for name in KINDS)


SENTENCE = "mxdp.launch: rank {} failed with exit status 3"


def whole_training(job):
    """What is left of a training of two ranks that nothing has disturbed."""
    job.known = type(job.known)("abc", 1.0, ["2.npz", "3.npz", "4.npz"], 10)
    job.out, job.err = job.folder / "out.1", job.folder / "err.1"
    job.out.write_text("".join(f"[{rank}] digest abc\n" for rank in range(job.ranks)))
    job.err.write_text("[mpiexec] not a word of the launcher's\n")
    for name in ("1.npz", *job.known.checkpoints, "checkpoints.lock"):
        (job.checkpoints / name).write_text("")
    job.launcher = SimpleNamespace(status=0)
    job.launcher.wait = lambda limit: job.launcher.status


def rewrite(name, old, new):
    def change(job):
        file = getattr(job, name)
        file.write_text(file.read_text().replace(old.format(job.rank), new.format(1 - job.rank)))

    return change


def left_in_memory(job):
    (job.folder / "steps.shared.0").write_text(f"{job.folder / 'given back'} {job.out}\n")


def left_running(job):
    """The job's folder ends it (the fixture nothing_left looks)."""
    subprocess.Popen(["sleep", "1000"], env=job.environ())
    while not job.processes():  # Popen returns a moment before the system shows the new program's variables
        pass


NEVER = mock.Mock(side_effect=subprocess.TimeoutExpired("launcher", 1))
WRONG = {
    "another result": (rewrite("out", "[{}] digest abc", "[{}] digest abd"), "another result"),
    "no result": (rewrite("out", "[{}] digest abc\n", ""), "another result"),
    "twice": (rewrite("out", "[{}] digest abc\n", "[0] digest abc\n[1] digest abc\n"), "another result"),
    "lost checkpoint": (lambda job: (job.checkpoints / "4.npz").unlink(), "the checkpoints are"),
    "lost in the middle": (lambda job: (job.checkpoints / "3.npz").unlink(), "the checkpoints are"),
    "one too many": (lambda job: (job.checkpoints / "5.npz").touch(), "the checkpoints are"),
    "half a checkpoint": (lambda job: (job.checkpoints / "4.npz.part").touch(), "left in the folder"),
    "a word": (lambda job: job.err.write_text(SENTENCE.format(0)), "on stderr is not one sentence"),
    "never ends": (lambda job: setattr(job.launcher, "wait", NEVER), "the launcher has not ended within"),
    "a status": (lambda job: setattr(job.launcher, "status", 1), "exit status 1 in place of 0"),
    "shared memory": (left_in_memory, "left behind: .*out"),
    "process": (left_running, "left behind: process"),
    "temporary": (lambda job: (job.temporary / "x").touch(), "left behind: .*x"),
}


@pytest.fixture
def job(torture, monkeypatch):
    monkeypatch.setattr(torture.time, "monotonic", iter(range(0, 1000, 8)).__next__)
    with torture.job_in_folder(torture.random.Random(os.urandom(8)), 2, 1) as job:
        yield job
        monkeypatch.undo()


@pytest.mark.parametrize("wrong", WRONG)
def test_a_whole_training_passes_and_each_broken_promise_of_it_is_a_violation(wrong, torture, job):
    whole_training(job)
    job.check_end([0], "nothing")
    assert job.complete
    change, said = WRONG[wrong]
    change(job)
    with pytest.raises(torture.Violation, match=said):
        job.check_end([0], "nothing")


def test_a_training_that_was_ended_says_so_in_one_sentence_with_the_victims_rank(torture, job):
    whole_training(job)
    expected = [2, 3], f"RANK {torture.FAILED}"
    job.check_end(*expected, late=True)  # the fault may have come after the end
    assert job.complete
    own, other = (SENTENCE.format(rank) for rank in (job.rank, 1 - job.rank))
    job.complete = False
    for status, line, said in (
        (3, own, None),
        (3, other, "not one sentence with"),
        (3, "", "not one sentence with"),
        (3, f"Traceback {own}", "not one sentence with"),
        (4, own, "exit status 4 in place of 2 or 3"),
    ):
        job.launcher.status = status
        job.err.write_text(line)
        with pytest.raises(torture.Violation, match=said) if said else contextlib.nullcontext():
            job.check_end(*expected)
        assert not job.complete


def test_a_violation_ends_it_and_the_command_repeats_the_fault_alone(torture, monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(torture.tempfile, "tempdir", None)
    drawn = []

    def luck(job):
        drawn.append((job.ranks, job.rank, job.devices, job.chance.random()))
        (job.folder / "out.1").write_text("its output")
        job.complete = drawn[-1][-1] < 0.8
        if not job.complete:
            raise torture.Violation("bad luck")

    monkeypatch.setattr(torture, "KINDS", {"luck": luck, "bad_luck": luck})
    assert torture.main(["--faults", "100", "--seed", "3"]) == 1
    *_, line, again = capsys.readouterr().out.splitlines()
    assert "VIOLATION: bad luck" in line
    assert line.split()[0] == again.split()[-1] == str(len(drawn))
    assert (Path(again.split()[4].rstrip(";")) / "out.1").read_text() == "its output"
    command = again.split("torture.py ")[1].split()
    assert torture.main(command) == 1
    assert drawn[-1] == drawn[-2]
    assert [path.name for path in tmp_path.iterdir() if "fault" not in os.listdir(path)] == []
