"""Runs MXNet's own tests of release 1.9.1 with two Pythons, and compares.

    git -C mxnet archive 1.9.1 tests/python | tar -x -C /tmp/mxnet-1.9.1
    python tools/mxnet_tests.py /tmp/mxnet-1.9.1 OLD_PYTHON NEW_PYTHON

Each Python has mxdp's requirements, the extra ``test``, ``pynose`` and MXNet installed; OLD_PYTHON is, say, 3.11 with
NumPy 1.23. A test that passes with the old one and not with the new one must stand in
``mxdp/experiments/mxnet_differences.txt``, with its reason. The exit status is 1 if one does not.

The test files are older than NumPy 2 too, so they get the NumPy that MXNet gets (:mod:`mxdp.compat`). pytest-xdist goes
on in a new process after a test that crashes or takes longer than the limit. Results are kept in ``--out``, and what is
there is not run again.

This file is also the pytest plug-in that the two Pythons load.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Tuple
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[1]
DIFFERENCES = ROOT / "mxdp" / "experiments" / "mxnet_differences.txt"
FILES = (
    *("test_kvstore_custom", "test_gluon_trainer", "test_metric", "test_autograd", "test_ndarray"),
    *("test_numpy_ndarray", "test_numpy_gluon", "test_optimizer", "test_gluon", "test_numpy_op"),
)
FOLDERS = "MXNET_TESTS_FOLDERS"
PASSED = "passed", ""


def pytest_configure(config: Any) -> None:
    """Called by pytest in the child, before it imports a test."""
    if FOLDERS in os.environ:
        import mxdp  # noqa: F401  (lets MXNet be imported)
        from mxdp import compat

        folders = os.environ[FOLDERS].split(os.pathsep)
        tests = [path.stem for folder in folders for path in Path(folder).glob("*.py")]
        sys.meta_path.insert(0, compat.Finder(*tests))


def run(python: str, folder: Path, name: str, report: Path, limit: int) -> Dict[str, Tuple[str, str]]:
    """Run one file of tests, unless its report is there. Returns test to outcome and reason."""
    if not report.exists():
        folders = [str(folder / "tests" / "python" / part) for part in ("unittest", "common")]
        environment = {**os.environ, FOLDERS: os.pathsep.join(folders), "MXNET_TEST_SEED": "1"}
        environment.update(MXNET_MODULE_SEED="1", PYTHONPATH=str(ROOT))
        part = report.with_suffix(".part")
        command = [os.path.abspath(python), "-m", "pytest", "-q", "--assert=plain", "-p", "tools.mxnet_tests"]
        command += ["-p", "no:cacheprovider", "-n", "1", "--max-worker-restart=1000", f"--timeout={limit}"]
        command += ["--timeout-method=thread", "-c", os.devnull, f"--junitxml={part}", f"{folders[0]}/{name}.py"]
        done = subprocess.run(command, env=environment, cwd=str(folder), capture_output=True, text=True)
        if done.returncode not in (0, 1) or not part.exists():
            raise SystemExit(f"{name} does not run with {python}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
        part.replace(report)
    return {
        case.get("name", ""): next(((problem.tag, problem.get("message", "")) for problem in case), PASSED)
        for case in ElementTree.parse(report).iter("testcase")
    }


def main() -> int:
    """Run and compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path, help="holds tests/python of MXNet's release 1.9.1")
    parser.add_argument("old", help="a Python")
    parser.add_argument("new", help="another")
    parser.add_argument("--files", nargs="+", default=FILES, metavar="test_x", help="these alone")
    parser.add_argument("--limit", type=int, default=300, help="seconds for a test")
    parser.add_argument("--out", type=Path, default=Path("runs/mxnet-tests"), help="the results so far")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    listed = re.findall(r"^(test_\w+::\S+)", DIFFERENCES.read_text(encoding="utf-8"), re.M)
    status, folder = 0, options.folder.resolve()
    for name in options.files:
        old, new = (
            run(python, folder, name, (options.out / f"{name}.{side}.xml").resolve(), options.limit)
            for side, python in (("old", options.old), ("new", options.new))
        )
        passed = [f"{list(outcomes.values()).count(PASSED)} of {len(outcomes)}" for outcomes in (old, new)]
        print(f"{name}: {passed[0]} pass with the old, {passed[1]} with the new", flush=True)
        for test in (test for test, outcome in old.items() if outcome == PASSED != new.get(test)):
            known = f"{name}::{test}" in listed
            outcome, reason = new.get(test, ("missing", ""))
            print(f"  {test}: {outcome}, {'listed' if known else 'NOT LISTED'}\n    {reason[:300]!r}", flush=True)
            status = status if known else 1
    return status


if __name__ == "__main__":
    sys.exit(main())
