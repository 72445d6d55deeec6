"""tools/torture.py: five of its faults (a minute), and what it says of a violation."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
TOOL = ROOT / "tools" / "torture.py"
BESIDE = Path(sys.executable).with_name("mpiexec")
KINDS = ("exit_status", "kill_rank", "stop_rank_short", "strangers", "kill_and_restart")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the tool needs Linux")


@pytest.fixture
def torture(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    spec = importlib.util.spec_from_file_location("torture", TOOL)
    tool = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "torture", tool)
    spec.loader.exec_module(tool)
    monkeypatch.setattr(tool, "undisturbed", lambda ranks, devices: tool.Undisturbed())
    return tool


# Drawn from this seed: two ranks of a device; sys.exit(2) of rank 1 after step 15; a kill while a checkpoint is saved;
# silent strangers and deep lists; and a slow disk for the kill alone, since it takes time.
@pytest.mark.skipif(not BESIDE.exists(), reason="no mpiexec beside this Python: pip install mpi4py mpich")
@pytest.mark.timeout(900)
def test_nothing_is_lost_when_a_training_is_hurt():
    drawn = f"--seed 114045 --faults {len(KINDS)} --kinds {','.join(KINDS)} --ranks 2 --devices 1".split()
    done = subprocess.run([sys.executable, TOOL, *drawn], capture_output=True, text=True, timeout=800)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name} 1" in done.stdout.splitlines()[-2] for name in KINDS)


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


@pytest.mark.parametrize("what", ["process", "temporary file", "shared memory"])
def test_what_is_left_is_a_violation_and_a_process_is_ended(torture, what, tmp_path, monkeypatch):
    monkeypatch.setattr(torture.time, "monotonic", iter(range(0, 1000, 8)).__next__)
    with torture.job_in_folder(torture.random.Random(0), 1, 1) as job:
        left, shared = None, tmp_path / "shared"
        if what == "process":
            left = subprocess.Popen(["sleep", "1000"], env=job.environ())
            while not job.processes():  # Popen returns a moment before the system shows the new program's variables
                pass
        place = f"process {left.pid}" if left else str(job.temporary / "x" if what == "temporary file" else shared)
        if not left:
            Path(place).write_text("")
        (job.folder / "steps.shared.0").write_text(f"{tmp_path / 'given back'} {shared}\n")
        with pytest.raises(torture.Violation, match=f"left behind: {place}$"):
            job.nothing_left()
        monkeypatch.undo()
    assert left is None or left.wait(10) == -9
