"""Where a result comes from: machine, versions, commit. Asks the system and pip, not MXNet."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Mapping, Optional, Sequence

import psutil

from mxdp import process

PACKAGES = (
    "mxdp",
    "mxnet",
    "mxnet-cu112",
    "numpy",
    "d2l",
    "matplotlib",
    "scikit-learn",
    "mpi4py",
    "mpich",
    "horovod",
    "torch",
)


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found.group(1).strip() if found else platform.processor() or platform.machine()


def versions() -> Dict[str, str]:
    """Version of each installed package that the results depend on."""
    found = {}
    for package in PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def commit() -> Optional[str]:
    """The commit of the checkout that mxdp runs from, with ``+`` if it has changes; None outside a checkout."""
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        answer = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip()

    try:
        tracked = git("ls-files", "--", str(Path(__file__).resolve()))
        return (
            git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno") else "")
            if tracked
            else None
        )
    except (OSError, subprocess.SubprocessError):
        return None


def describe() -> Dict[str, Any]:
    """The ``environment`` of a result, without what only a child knows (its MXNet variables, its GPUs)."""
    return {
        "cpu_model": cpu_model(),
        "cores": process.cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
        "commit": commit(),
    }


def measured(ready: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """:func:`describe`, with what the children have said when they were ready: GPUs, and the first one's variables."""
    variables = ready[0]["variables"] if ready else {}
    threads = variables.get("OMP_NUM_THREADS", "")
    return {
        **describe(),
        "threads": int(threads) if threads.isdigit() else None,
        "gpus": sorted({name for each in ready for name in each["devices"] if name.startswith(("gpu", "cuda"))}),
        "variables": variables,
    }
