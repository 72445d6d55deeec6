"""A rank is killed at a random moment, the launcher starts all again, and the result is that of an undisturbed run."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

MPIEXEC = Path(sys.executable).with_name("mpiexec")
KILLS = int(os.environ.get("MXDP_KILLS", "3"))
TRAINING = """
import sys, zlib, mxdp
out, folder = sys.argv[1:]
world = mxdp.world()
data = mxdp.load("synthetic").take(400, 50)
history = mxdp.train(1, 20, 0.3, 3, kind="cpu", data=data, world=world, checkpoint=folder, checkpoint_every=0.1)
bits = [zlib.crc32(param.asnumpy()) for param in history.device_params[0]]
with open(f"{out}.{world.rank}", "w") as file:
    print(bits, [epoch.loss for epoch in history.epochs], history.test_accuracies, file=file)
"""
SECONDS = 120

pytestmark = pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python: pip install mpi4py mpich")


def start(tmp_path, name, *options):
    script = tmp_path / "training.py"
    script.write_text(TRAINING)
    ranks = [sys.executable, script, tmp_path / name, tmp_path / f"{name}.checkpoints"]
    command = [sys.executable, "-m", "mxdp.launch", "-n", "2", *options, "--", *ranks]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def results(tmp_path, name):
    return [(tmp_path / f"{name}.{rank}").read_text() for rank in range(2)]


def ranks_of(launcher):
    """The processes that train: children of the guards."""
    found = []
    for process in psutil.Process(launcher.pid).children(recursive=True):
        try:
            if "training.py" in " ".join(process.cmdline()) and "guard.py" in " ".join(process.parent().cmdline()):
                found.append(process)
        except (psutil.Error, AttributeError):  # it has just ended
            continue
    return found


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    started = time.monotonic()
    launcher = start(folder, "whole")
    said, _ = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 0, said
    one, other = results(folder, "whole")
    assert one == other
    return one, time.monotonic() - started


@pytest.mark.parametrize("seed", range(KILLS))
def test_the_result_is_that_of_an_undisturbed_run(tmp_path, undisturbed, seed):
    expected, seconds = undisturbed
    chance = random.Random(seed)
    for attempt in range(20):
        launcher, started, processes = start(tmp_path, f"{attempt}", "--restarts", "1"), time.monotonic(), []
        until = started + chance.uniform(0.1, 0.8) * seconds
        while launcher.poll() is None and (len(processes) < 2 or time.monotonic() < until):
            processes = ranks_of(launcher)
            time.sleep(0.02)
        if launcher.poll() is None and len(processes) == 2:
            break
        assert launcher.wait() == 0, launcher.communicate()[0]
        seconds = time.monotonic() - started  # it was faster this time, and has ended before the moment
    chance.choice(processes).kill()
    said, _ = launcher.communicate(timeout=SECONDS)
    assert launcher.returncode == 0, said
    assert "was killed by signal 9 (SIGKILL)" in said
    assert results(tmp_path, f"{attempt}") == [expected] * 2, said
