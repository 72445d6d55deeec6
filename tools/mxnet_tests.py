"""Runs MXNet's own tests of release 1.9.1 with two Pythons, and compares.

    git -C mxnet archive 1.9.1 tests/python | tar -x -C /tmp/mxnet-1.9.1
    python tools/mxnet_tests.py /tmp/mxnet-1.9.1 OLD_PYTHON NEW_PYTHON

Each Python has mxdp's requirements, the extra ``test`` and MXNet installed; OLD_PYTHON is, say, 3.11 with NumPy 1.23.
A test that passes with the old one and not with the new one must stand in
``mxdp/experiments/mxnet_differences.txt``, with its reason. The exit status is 1 if one does not.

The test files are older than NumPy 2 too, so they get the NumPy that MXNet gets (:mod:`mxdp.compat`). A small module
stands in for ``nose``, which does not run on today's Python. A test that crashes or takes longer than the limit ends
its process; a new one tries it once more and goes on with the others. Results are kept in ``--out``, and what is
there is not run again.

This file is also the pytest plug-in that the two Pythons load.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import re
import subprocess
import sys
import unittest
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any, Dict, List

ROOT = Path(__file__).resolve().parents[1]
DIFFERENCES = ROOT / "mxdp" / "experiments" / "mxnet_differences.txt"
FILES = (
    "test_kvstore_custom",
    "test_gluon_trainer",
    "test_metric",
    "test_autograd",
    "test_ndarray",
    "test_numpy_ndarray",
    "test_numpy_gluon",
    "test_optimizer",
    "test_gluon",
    "test_numpy_op",
)
LOG = "MXNET_TESTS_LOG"
FOLDERS = "MXNET_TESTS_FOLDERS"


# The plug-in, in the child


def stand_in_for_nose() -> None:
    """Enter a ``nose`` into the loaded modules that has what MXNet's tests use of it."""
    nose, tools = ModuleType("nose"), ModuleType("nose.tools")
    names: Dict[str, Any] = vars(tools)
    case = unittest.TestCase()
    for name in dir(case):
        if name.startswith("assert"):
            names[re.sub("([A-Z])", r"_\1", name).lower()] = getattr(case, name)
    names.update(make_decorator=functools.wraps, raises=raises, ok_=case.assertTrue, eq_=case.assertEqual)
    names["__all__"] = [name for name in names if not name.startswith("__")]
    vars(nose).update(tools=tools, SkipTest=unittest.SkipTest)
    sys.modules.update({"nose": nose, "nose.tools": tools})


def raises(*exceptions: Any) -> Any:
    """nose's decorator: the test passes if it raises one of ``exceptions``."""

    def decorate(test: Any) -> Any:
        @functools.wraps(test)
        def run(*args: Any, **kwargs: Any) -> None:
            try:
                test(*args, **kwargs)
            except exceptions:
                return
            raise AssertionError(f"{test.__name__} raised none of {exceptions}")

        return run

    return decorate


def pytest_configure(config: Any) -> None:
    """Called by pytest in the child, before it imports a test."""
    if LOG not in os.environ:
        return
    import mxdp  # noqa: F401  (lets MXNet be imported)
    from mxdp import compat

    folders = os.environ[FOLDERS].split(os.pathsep)
    tests = [path.stem for folder in folders for path in Path(folder).glob("*.py")]
    sys.meta_path.insert(0, compat.Finder(*tests))
    stand_in_for_nose()


def pytest_collection_modifyitems(items: List[Any]) -> None:
    """Leave out what earlier processes have run; what ended its process has a second chance."""
    log = Path(os.environ[LOG])
    last, starts = outcomes(log), Counter(name for name, outcome, _ in entries(log) if outcome == "crashed")
    items[:] = [item for item in items if last.get(item.name, ["crashed"])[0] == "crashed" and starts[item.name] < 2]


def pytest_runtest_logstart(nodeid: str) -> None:
    """A test that never gets an outcome ended its process."""
    note(nodeid, "crashed", "it ended its process, or took too long")


def pytest_runtest_logreport(report: Any) -> None:
    """Note the outcome of a test; of its set-up and tear-down only if it is no success."""
    if report.when == "call" or report.outcome != "passed":
        said = getattr(getattr(report.longrepr, "reprcrash", None), "message", str(report.longrepr or ""))
        note(report.nodeid, report.outcome, said)


def note(nodeid: str, outcome: str, reason: str) -> None:
    """Add a line to the log."""
    with open(os.environ[LOG], "a", encoding="utf-8") as log:
        log.write(json.dumps([nodeid.partition("::")[2], outcome, reason[:600]]) + "\n")


# The comparison


def entries(log: Path) -> List[List[str]]:
    """The lines of the log: test, outcome and reason."""
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()] if log.exists() else []


def outcomes(log: Path) -> Dict[str, List[str]]:
    """Test to outcome and reason; the last word about a test counts."""
    return {name: [outcome, reason] for name, outcome, reason in entries(log)}


def run(python: str, folder: Path, name: str, log: Path, limit: int) -> Dict[str, List[str]]:
    """Run one file of tests to its end, in as many processes as it takes."""
    python = os.path.abspath(python)
    folders = os.pathsep.join(str(folder / "tests" / "python" / part) for part in ("unittest", "common"))
    environment = {**os.environ, LOG: str(log), FOLDERS: folders, "MXNET_TEST_SEED": "1", "MXNET_MODULE_SEED": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "tools")])
    file = folder / "tests" / "python" / "unittest" / f"{name}.py"
    options = ["-q", "--assert=plain", "-p", "mxnet_tests", "-p", "no:cacheprovider", f"--timeout={limit}"]
    command = [python, "-m", "pytest", *options, "--timeout-method=thread", "-c", os.devnull, str(file)]
    while True:
        before = len(entries(log))
        done = subprocess.run(command, env=environment, cwd=str(folder), capture_output=True, text=True)
        if done.returncode in (0, 1, 5) and "Timeout" not in done.stdout[-300:] + done.stderr[-300:]:
            return outcomes(log)
        if len(entries(log)) == before:
            raise SystemExit(f"{name} does not run with {python}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")


def known() -> List[str]:
    """The tests that the list of differences names: its lines that begin with a file's name."""
    text = DIFFERENCES.read_text(encoding="utf-8") if DIFFERENCES.exists() else ""
    return re.findall(r"^(test_\w+::\S+)", text, re.M)


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description="MXNet's own tests with two Pythons.")
    parser.add_argument("folder", type=Path, help="holds tests/python of MXNet's release 1.9.1")
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--files", nargs="+", default=FILES, metavar="test_x")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a test")
    parser.add_argument("--out", type=Path, default=Path("runs/mxnet-tests"), help="what was found so far")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    unexplained, excused, folder = 0, known(), given.folder.resolve()
    for name in given.files:
        logs = [(given.out / f"{name}.{side}.jsonl").resolve() for side in ("old", "new")]
        old, new = [run(python, folder, name, log, given.limit) for python, log in zip((given.old, given.new), logs)]
        passed = [sum(outcome == "passed" for outcome, _ in found.values()) for found in (old, new)]
        print(
            f"{name}: {passed[0]} of {len(old)} pass with the old, {passed[1]} of {len(new)} with the new", flush=True
        )
        for test, (outcome, _) in old.items():
            now, reason = new.get(test, ["missing", ""])
            if outcome == "passed" != now:
                listed = f"{name}::{test}" in excused
                unexplained += not listed
                print(f"  {test}: {now}, {'listed' if listed else 'NOT LISTED'}\n    {reason[:300]!r}", flush=True)
    return int(unexplained > 0)


if __name__ == "__main__":
    sys.exit(main())
