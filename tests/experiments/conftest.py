"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

from __future__ import annotations

import os
import pickle
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from filelock import FileLock
from littles import little

from mxdp.experiments.lab import run
from mxdp.experiments.lab.module import find

sys.path.insert(0, str(Path(__file__).parent))


def pytest_collection_modifyitems(items):
    """Who asks first waits for the whole experiment; beside other work some of them take minutes."""
    for item in items:
        if "measured" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(autouse=True)
def nothing_is_left_behind():
    """Of what a test has started, nothing runs when it has ended."""
    before = set(own_processes())
    yield
    until = time.monotonic() + 20
    while (left := own_processes() - before) and time.monotonic() < until:
        time.sleep(0.05)
    said = []
    for pid in left:
        with suppress(psutil.Error):
            process = psutil.Process(pid)
            said.append(f"{pid} ({process.status()}): {' '.join(process.cmdline())}")
            process.kill()
    assert not said


def own_processes():
    """The numbers of the processes that this one has started. psutil would read those of the whole machine."""
    tasks = list(Path("/proc/self/task").glob("*/children"))
    if not tasks:
        return {child.pid for child in psutil.Process().children()}
    found = set()
    for task in tasks:
        with suppress(OSError):  # the thread has ended
            found.update(map(int, task.read_text().split()))
    return found


@pytest.fixture(scope="session")
def measured(tmp_path_factory):
    """``measured(name)``: the folder and the result of that question, run with little work, once for all tests."""
    folder = tmp_path_factory.getbasetemp()
    # Each of pytest-xdist's processes has a folder of its own inside the session's.
    folder = (folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "measured"
    folder.mkdir(exist_ok=True)

    def measure(name):
        kept = folder / f"{name}.pickle"
        with FileLock(folder / f"{name}.lock"):
            if not kept.exists():
                question = find(name)
                result = run.run(question, "quick", little(question), folder, lambda *_: None)
                kept.write_bytes(pickle.dumps(result))
        return folder, pickle.loads(kept.read_bytes())

    return measure


@pytest.fixture
def importable(monkeypatch):
    """The children import ``faulty`` by name."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
