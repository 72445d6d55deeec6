"""What a run draws and leaves out; and what a test leaves behind: no process, nor one of its processes' own; no network
namespace, no shared memory."""

import faulthandler
import gc
import os
import random
import re
import signal
import subprocess
import time
import uuid
from pathlib import Path

import hypothesis
import psutil
import pytest

MARK = "MXDP_TEST_MARK"
STDERR = pytest.StashKey()
NAMESPACES, SHARED = Path("/run/netns"), Path("/dev/shm")
SECONDS = 30
"""In which what a test has started must be gone."""
# A shell without job control starts a background command with Ctrl-C ignored, and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
HERE = Path(__file__).parent
STARTING = {
    ".": "processes exercises book",
    "test_*.py": "compat errors lessons live makefile moved_loop options package plugin readme torture",
    "experiments/test_*.py": """case_ranks catalog golden main many_processes memory_use oracles resnet run split""",
}
"""Folders and files of tests that start processes or train for long: ``--quick`` leaves them out."""
hypothesis.settings.register_profile("drawn", deadline=None, print_blob=True)
hypothesis.settings.register_profile("same", deadline=None, derandomize=True, database=None)
children = []
"""This process's before the test's first start of a process, in one list; none, where the test starts none. To list
them takes longer than most tests."""


def pytest_addoption(parser):
    parser.addoption("--quick", action="store_true", help="leave out the tests that start processes or train for long")


@pytest.hookimpl(tryfirst=True)  # before hypothesis reads its seed
def pytest_configure(config):
    """Without a profile, what hypothesis draws is other in each run; ``--hypothesis-profile=same`` is CI's."""
    config.stash[STDERR] = os.dup(2)  # pytest reads the tests' own
    options = config.option
    if options.hypothesis_profile is None:
        options.hypothesis_profile = "drawn"
    if options.hypothesis_profile == "drawn" and options.hypothesis_seed is None:
        options.hypothesis_seed = str(random.SystemRandom().randrange(10**6))


def pytest_collection_finish(session):
    """A crash in C shows where it happened. (What MXNet's handler, which came with its import, says of it is lost.)"""
    faulthandler.enable(session.config.stash[STDERR])


def pytest_report_header(config):
    seed = config.option.hypothesis_seed
    return "every run draws the same" if seed is None else f"drawn with --hypothesis-seed={seed}"


def pytest_ignore_collect(collection_path, config):
    if not config.getoption("--quick"):
        return None
    for pattern, names in STARTING.items():
        for name in names.split():
            if collection_path == HERE / (name if pattern == "." else pattern.replace("*", name)):
                return True
    return None


def starting():
    if not children:
        children.append(psutil.Process().children(recursive=True))


def noted(self, *arguments, real=subprocess.Popen._execute_child, **options):
    starting()
    return real(self, *arguments, **options)


subprocess.Popen._execute_child = noted
os.register_at_fork(before=starting)


def processes(mark, before):
    """Those that have the mark in their environment, as grandchildren have; and this process's new children."""
    running = [child for child in psutil.Process().children(recursive=True) if child not in before]
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process not in running:
                running.append(process)
        except psutil.Error:  # it has just ended, or is another user's
            continue
    return [process for process in running if alive(process)]


def alive(process):
    try:  # multiprocessing starts one tracker for the whole run
        return process.status() != psutil.STATUS_ZOMBIE and "multiprocessing.resource_tracker" not in str(
            process.cmdline()
        )
    except psutil.Error:
        return False


def nobodys():
    """Namespaces of mxdp's whose process has ended, or is this one; and shared memory.

    MPICH's has no owner: beside another worker's tests nobody knows whose it is, so there it counts in ``-n 0`` alone.
    """
    beside = "PYTEST_XDIST_WORKER" in os.environ
    leftovers = set() if not SHARED.exists() else {p for p in SHARED.iterdir() if not (beside and "mpich" in p.name)}
    for path in NAMESPACES.glob("mxdp-*"):
        pid = int(re.findall(r"\d+", path.name)[0])
        if pid == os.getpid() or not psutil.pid_exists(pid):
            leftovers.add(path)
    return leftovers


def in_use(path):
    """Does a process hold this shared memory?"""
    for maps in Path("/proc").glob("[0-9]*/maps"):
        try:
            if str(path) in maps.read_text():
                return True
        except OSError:
            continue
    return False


@pytest.fixture
def no_garbage():
    """For a test that fills the stack: Python 3.8 aborts where a finalizer of other tests' garbage then runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch):
    """One for all tests; of those that start processes, it waits for what they have left, and names it."""
    mark, files = uuid.uuid4().hex, nobodys()
    monkeypatch.setenv(MARK, mark)
    children.clear()
    yield
    until = time.monotonic() + SECONDS
    while children:
        left = processes(mark, children[0])
        paths = [path for path in nobodys() - files if not in_use(path)]
        if not (left or paths):
            return
        if time.monotonic() > until:
            names = [f"process {process.pid}: {process.name()}" for process in left] + [str(path) for path in paths]
            for process in left:
                process.kill()
            pytest.fail(f"left behind: {', '.join(names)}")
        time.sleep(0.05)
