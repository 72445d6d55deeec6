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


def record(name="fake", **changes):
    """A result as it is in a file: two rows and a reference, in three processes."""
    environment = {
        "cpu_model": "Example <CPU>", "cores": 2, "memory_bytes": 8 << 30, "platform": "Linux", "python": "3.11.7",
        "versions": {"mxnet": "1.9.1", "numpy": "1.23.5"}, "commit": "0123456789ab", "threads": 1, "gpus": [],
        "variables": {"OMP_NUM_THREADS": "1"},
    }  # fmt: skip

    def row(label, devices, seconds, reference=False, **numbers):
        return {
            "label": label, "reference": reference, "devices": [f"cpu({n})" for n in range(devices)],
            "case": {"devices": devices, "processes": 1, "engine": ""}, "facts": {"word": "x"},
            "processes": [{"seconds": s, **{key: x[n] for key, x in numbers.items()}} for n, s in enumerate(seconds)],
            "oracle": {"checked": 617, "wrong": 0},
        }  # fmt: skip

    found = {
        "schema_version": 4, "experiment": name, "question": "Is it <b>faster</b> & [bold]right[/bold]?",
        "preset": "quick", "settings": {"devices": [1, 2], "lr": 0.2, "data_dir": None, "processes": 3},
        "environment": environment, "sources": {"mxdp.timing": "0"}, "prediction": "2.0 on 2 cores",
        "started": "2025-01-02T03:04:05+00:00", "elapsed_seconds": 12.5, "status": "ok", "error": None, "skipped": {},
        "oracle": {"checked": 1234, "wrong": 0, "text": "every [red] gradient"}, "bounds": {},
        "elsewhere": [0.0, 0.31, None],
        "rows": [
            row("1 device", 1, [2.0, 1.0, 4.0], accuracy=[0.83] * 3),
            row("2 devices", 2, [1.0, 0.5, 2.0], accuracy=[0.84] * 3),
            row("ceiling", 1, [0.9, 0.9, 0.9], reference=True),
        ],
    }  # fmt: skip
    return {**found, **changes}
