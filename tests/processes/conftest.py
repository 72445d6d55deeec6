"""Jobs of the launcher without MPI."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from mxdp.launch import guard
from mxdp.launch.guarded import LaunchFailure
from mxdp.launch.job import Launch

SECONDS = 60
"""After which a job that does not end is ended; a limit for busy machines."""

# Starts a guard for each rank, as mpiexec does: STUB.py SIZE HOW COMMAND...
STUB = """
import os, signal, subprocess, sys, time
size, how = int(sys.argv[1]), sys.argv[2]
ranks = [subprocess.Popen(sys.argv[3:], env={**os.environ, "PMI_RANK": str(rank)}) for rank in range(size)]
statuses = [rank.wait() for rank in ranks]
if how == "killed":
    print(*(f"line {number}" for number in range(25)), sep="\\n", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
if how == "hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(1), os.close(2)
    time.sleep(1000)
if how == "well":
    sys.exit(0)
sys.exit(max(map(abs, statuses)))
"""


@pytest.fixture
def job(tmp_path):
    """``job(code, n)`` is a Launch of ``n`` ranks that run ``code`` without MPI."""
    stub = tmp_path / "stub.py"
    stub.write_text(STUB)
    made, watchdogs = [], []

    def start(code, n=2, how="", silent=0, hung=0, logs=None):
        code = "import os, signal, subprocess, sys, time\nrank = int(os.environ['PMI_RANK'])\n" + code
        python = [sys.executable, "-S"]
        words = [*python, stub, str(n), how, *python, guard.__file__, *python, "-u", "-c", code]
        made.append(launched := Launch(words, dict(os.environ), n, "127.0.0.1", silent, hung, logs or {}))
        watchdogs.append(threading.Timer(SECONDS, setattr, (launched, "failure", LaunchFailure(1, "it hung"))))
        watchdogs[-1].start()
        return launched

    yield start
    for launch in watchdogs:
        launch.cancel()
    for launch in made:
        if launch.mpiexec.returncode is None:
            launch.end()
        assert launch.listener.fileno() == -1
        assert launch.connections == {}


@pytest.fixture
def alone():
    """``alone(n)`` is a Launch of ``n`` ranks whose mpiexec has ended, and to which nobody has connected."""
    made = []

    def start(n=2, silent=0, hung=0):
        made.append(Launch(["true"], dict(os.environ), n, "127.0.0.1", silent, hung, {}))
        return made[-1]

    yield start
    for launch in made:
        launch.end()
