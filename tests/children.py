"""Python processes of tests that need one without this process's modules and variables."""

import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from mxdp import process

ROOT = Path(__file__).resolve().parents[1]

needs_mxnet_alone = pytest.mark.skipif(
    numpy.lib.NumpyVersion(numpy.__version__) >= "1.24.0", reason="MXNet can't be imported with this NumPy before mxdp"
)


def child(code, *options, path=(), arguments=(), folder=None, limit=120, **environ):
    """A finished Python process in ``folder``: its own ``environ``, none of ours; ``path`` before the usual modules."""
    ours = set(process.describe()) - {"MXDP_TEST_MARK"}  # by which conftest.py finds what it leaves behind
    clean = {name: value for name, value in os.environ.items() if name not in ours}
    clean["PYTHONPATH"] = os.pathsep.join([*map(str, path), str(ROOT)])
    return subprocess.run(
        [sys.executable, *options, "-c", code, *map(str, arguments)],
        env={**clean, **environ},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=limit,
    )


def printed(code, **more):
    """The output of a :func:`child` that must end well."""
    done = child(code, **more)
    assert done.returncode == 0, done.stderr
    return done.stdout


def distribution(folder, name, version):
    (folder / f"{name}-{version}.dist-info").mkdir()
    (folder / f"{name}-{version}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n")
