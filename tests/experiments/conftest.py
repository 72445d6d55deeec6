"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import Experiment
from mxdp.experiments.measure.crew import Crew
from mxdp.launch.guard import die_with_parent

sys.path.insert(0, str(Path(__file__).parent))
import measuring


def pytest_collection_modifyitems(items):
    """What waits for experiments comes last: they run beside the other tests."""
    items.sort(key=lambda item: "measured" in getattr(item, "fixturenames", ()))


@pytest.fixture(scope="session", autouse=True)
def background(request, tmp_path_factory):
    """``background(name)``: the folder and the result of that experiment, run with little work, once for all tests.

    Those that tests of this session ask for run meanwhile, from now on, in another process.
    """
    folder, asked = tmp_path_factory.mktemp("measured"), set()
    started = []

    def start(names):
        asked.update(names)
        command = [sys.executable, Path(__file__).with_name("background.py"), folder, *names]
        started.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=die_with_parent))
        measuring.background.append(started[-1].pid)

    def measure(name):
        if name not in asked:
            start([name])
        while not (folder / name).exists():
            assert any(each.poll() is None for each in started), f"{name} has not come to its end"
            time.sleep(0.1)
        return folder, pickle.loads((folder / name).read_bytes())

    waiting = [item for item in request.session.items if "measured" in getattr(item, "fixturenames", ())]
    params = [item.callspec.params.get("experiment") for item in waiting if hasattr(item, "callspec")]
    if params:
        start(dict.fromkeys(each.name for each in params if isinstance(each, Experiment)))
    yield measure
    for each in started:
        each.terminate()
        each.wait()


@pytest.fixture(autouse=True)
def nothing_is_left_behind(background, monkeypatch):
    """Of what a test has started, nothing runs when it has ended. (Crews of a ``set_up`` end with the harness's child,
    so here with the test.)"""
    before, crews = set(own_processes()), []
    start = Crew.__init__

    def kept(crew, *arguments):
        start(crew, *arguments)
        crews.append(crew)

    monkeypatch.setattr(Crew, "__init__", kept)
    yield
    for crew in crews:
        crew.close()
    until = time.monotonic() + 20
    while (left := own_processes() - before - set(measuring.background)) and time.monotonic() < until:
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
def measured(background):
    return background


@pytest.fixture
def timelines(measured):
    """``timelines(name)``: how many rows and references of that experiment have a timeline."""

    def count(name):
        _, result = measured(name)
        return sum(results.TIMELINE in row["metrics"] for row in result["rows"] + result["references"])

    return count


@pytest.fixture
def importable(monkeypatch):
    """The children import ``faulty`` by name."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))
