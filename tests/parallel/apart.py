"""Runs work in a process of its own. Once an operator has used oneDNN's temporary space, all later ones ask for as
much, and MXNet counts it for cpu(0). So the memory that is counted depends on what ran before."""

from __future__ import annotations

import json
import os
import subprocess
import sys


def results(module, function, cases):
    """``function(*case)`` of that test module for each case, one after the other; as JSON brings it back."""
    code = (
        f"import json, sys, {module}\n"
        f"for case in json.loads(sys.argv[1]): print(json.dumps({module}.{function}(*case)))"
    )
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(cases)],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    return dict(zip(cases, map(json.loads, done.stdout.splitlines())))
