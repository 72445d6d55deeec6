"""Makes ``import faulty`` work in these tests, as ``MXDP_EXPERIMENTS=faulty`` does in the processes that they start."""

import ctypes
import math
import os
import pickle
import sys
import threading
import time
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from filelock import FileLock
from littles import little

from mxdp.experiments import book_loop
from mxdp.experiments.lab import ranks, run
from mxdp.experiments.lab.module import find
from mxdp.tracing import recording

sys.path.insert(0, str(Path(__file__).parent))
TOGETHER = {
    *("epochs", "loader", "memory-guard", "parallel-evaluation", "profile", "two-jobs", "uneven"),
    "where-the-time-went",
    *([] if find_spec("torch") else ["peers"]),  # in no process MXNet and PyTorch are both loaded
}
"""Here the cases of these questions share a process, too: it takes two seconds to start one."""


def pytest_collection_modifyitems(items):
    """Who asks first waits for the whole experiment; beside other work some of them take minutes."""
    for item in items:
        if "measured" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(900))


@pytest.fixture(autouse=True)
def loads_in_this_process(monkeypatch):
    """The book's loader forks workers, which may hang if MXNet has threads, as here after other tests. Processes that
    tests start fork them, as a user's do."""

    def data_loader(*given, real=book_loop.data_loader):
        from d2l import mxnet as d2l

        with mock.patch.object(d2l, "get_dataloader_workers", return_value=0):
            return real(*given)

    monkeypatch.setattr(book_loop, "data_loader", data_loader)


QUICK = """
import runpy
from mxdp.collectives import calibration
from mxdp.experiments import devices
calibration.TURNS = 2
calibration.calibrate.__defaults__ = ((1 << 19, 1 << 22),)
devices.WARM_UP = 2
from mxdp.experiments.allreduce import arrays
from mxdp.experiments.other_splits import split
arrays.TURNS = 1
split.WARM_UP = 2
runpy.run_module("mxdp.experiments.lab.child", run_name="__main__")
"""


def quick_commands(engine, size, command, environ, real=ranks.commands):
    """To start the usual process, but with few steps of warm-up, and a small calibration: not six seconds."""
    return real(engine, size, [sys.executable, "-c", QUICK, command[-1]], environ)


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
                question.TOGETHER = question.TOGETHER or name in TOGETHER
                with mock.patch.object(ranks, "commands", quick_commands):
                    result = run.run(question, "quick", little(question), folder, lambda *_: None)
                kept.write_bytes(pickle.dumps(result))
        return folder, pickle.loads(kept.read_bytes())

    return measure


@pytest.fixture
def importable(monkeypatch):
    """The children import ``faulty`` by name."""
    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [here, os.environ.get("PYTHONPATH")])))


@pytest.fixture
def hanging(monkeypatch, tmp_path):
    """A file that a process makes when it begins to hang (``littles.hang``). From then on, every time limit is over."""
    path, clock = tmp_path / "hanging", time.monotonic
    monkeypatch.setenv("MXDP_TEST_HANGING", str(path))
    monkeypatch.setattr(ranks, "time", SimpleNamespace(monotonic=lambda: clock() + 1e6 * path.exists()))
    return path


def weight(handles, count):
    """The elements of these arrays of MXNet's C interface, those on ``cpu(1)`` twice, on ``cpu(2)`` thrice."""
    from mxdp.backend import mx

    elements = 0
    rank, sizes = ctypes.c_int(), ctypes.POINTER(ctypes.c_int)()
    kind, device = ctypes.c_int(), ctypes.c_int()
    for at in range(getattr(count, "value", count)):
        mx.base._LIB.MXNDArrayGetShapeEx(ctypes.c_void_p(handles[at]), ctypes.byref(rank), ctypes.byref(sizes))
        mx.base._LIB.MXNDArrayGetContext(ctypes.c_void_p(handles[at]), ctypes.byref(kind), ctypes.byref(device))
        elements += math.prod(sizes[: rank.value]) * (1 + device.value)
    return elements


@pytest.fixture
def virtual(monkeypatch):
    """A clock that fences alone move on: each by a second, and by one more for each call pushed since the last. With
    ``weighs`` also for each element that the calls read. Python's own clock counts the calls. Beside the calls
    ``pending`` it has the ``readers``: how many there were whenever it was read before the next fence."""
    from mxdp.backend import mx, npx

    now = SimpleNamespace(seconds=0, pending=0, calls=0, weighs=False, readers=[], bound={})

    def pushing(*given, push, weigh):
        if threading.current_thread() is threading.main_thread():
            now.calls += 1
            now.pending += 1 + (now.weighs and weigh(*given))
        return push(*given)

    def bind(self, ctx, args, *more, real=mx.sym.Symbol.bind, **options):
        executor = real(self, ctx, args, *more, **options)
        elements = sum(array.size * (1 + array.ctx.device_id) for array in executor.arg_arrays)
        now.bound[executor.handle.value] = elements
        return executor

    def fence(wait=npx.waitall):
        wait()
        now.seconds, now.pending = now.seconds + 1 + now.pending, 0

    def clock():
        if now.pending and threading.current_thread() is threading.main_thread():
            now.readers.append(now.pending)
        return now.seconds

    def of_executor(handle, *_):
        return now.bound[handle.value]

    for call, weigh in {
        "ImperativeInvokeEx": lambda _, count, handles, *__: weight(handles, count),
        "InvokeCachedOpEx": lambda _, count, handles, *__: weight(handles, count),
        "AutogradBackwardEx": lambda count, handles, *_: weight(handles, count),
        "EnginePushSyncND": lambda *_: 0,
        "KVStorePushPull": lambda _, count, __, ___, ____, handles, *_____: weight(handles, count),
        "ExecutorForward": of_executor,
        "ExecutorBackwardEx": of_executor,
    }.items():
        push = getattr(mx.base._LIB, f"MX{call}")
        monkeypatch.setattr(mx.base._LIB, f"MX{call}", partial(pushing, push=push, weigh=weigh))
    monkeypatch.setattr(mx.sym.Symbol, "bind", bind)
    for module in (mx.nd, mx.npx, npx):
        monkeypatch.setattr(module, "waitall", fence)
    monkeypatch.setattr(time, "perf_counter", clock)
    monkeypatch.setattr(time, "thread_time", lambda: now.calls)
    monkeypatch.setattr(recording, "CLOCK_LIMIT", math.inf)
    known = [
        x for key, module in list(sys.modules.items()) if key.startswith("mxdp.exp") for x in vars(module).values()
    ]
    caches = [value.cache_clear for value in known if hasattr(value, "cache_clear")]
    for clear in caches:
        clear()
    yield now
    for clear in caches:
        clear()  # nobody else may predict by this clock
