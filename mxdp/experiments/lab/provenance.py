"""Where a result comes from: machine, versions, variables and commit. Imports no MXNet.

A number belongs to a commit. What has changed since is a question for ``compare``, which measures both.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Optional

import psutil

import mxdp
from mxdp import process
from mxdp.processor import cpuinfo

PACKAGES = (
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
ROOT = Path(__file__).resolve().parents[3]
BUSY = 0.1
"""A larger share of the processors' time that goes elsewhere disturbs a measurement."""


def cpu_model() -> str:
    """The processor's name, as the system gives it. Processors of one name may differ: see :func:`processor`."""
    return cpuinfo("model name") or platform.processor() or platform.machine()


def processor() -> Dict[str, str]:
    """The processor's vendor, family and model, and its widest vectors; empty texts where the system doesn't say."""
    flags = cpuinfo("flags").split()
    vectors = {"avx512f": "AVX-512", "avx2": "AVX2"}
    return {
        "vendor": cpuinfo("vendor_id"),
        "family": cpuinfo("cpu family"),
        "model": cpuinfo("model"),
        "vectors": next((name for flag, name in vectors.items() if flag in flags), ""),
    }


def versions() -> Dict[str, str]:
    """mxdp's version, and that of each installed package that the results depend on."""
    installed = {"mxdp": mxdp.__version__}
    for package in PACKAGES:
        with suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def commit() -> Optional[str]:
    """The commit of the checkout that mxdp runs from, with ``+`` if it has changes (new results among those that are
    committed are none); None outside a checkout."""

    def git(*words: str) -> str:
        return subprocess.check_output(
            ["git", *words], cwd=ROOT, stderr=subprocess.DEVNULL, text=True, timeout=10
        )

    with suppress(OSError, subprocess.SubprocessError):
        if git("ls-files", "--", str(Path(__file__).resolve())):
            changed = git(
                "status", "--porcelain", "-uno", "--", ":/", ":(top,exclude)experiments/reference"
            )
            head = git("rev-parse", "--short=12", "HEAD").strip()
            return f"{head}+" if changed else head
    return None


def environment(variables: Mapping[str, str], devices: Iterable[str]) -> Dict[str, Any]:
    """The ``environment`` of a result, with the variables and the devices' names that a process has reported."""
    return {
        "cpu_model": cpu_model(),
        "processor": processor(),
        "cores": process.cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
        "commit": commit(),
        "gpus": sorted({name for name in devices if name.startswith(("gpu", "cuda"))}),
        "variables": without_paths(variables),
    }


def without_paths(values: Mapping[str, Any]) -> Dict[str, Any]:
    """These variables or settings with ``set`` for each path: a result names no folder of its machine."""
    told = dict(values)
    for name, value in values.items():
        named = value and name.lower().endswith(("dir", "path", "home", "file"))
        if named or os.sep in str(value):
            told[name] = "set"
    return told


def since_now() -> Callable[[], Optional[float]]:
    """A function that returns the share of the processors' time that has gone elsewhere since now; None where a part of
    the machine is ours only, of which the counters say nothing."""

    def ours_or_idle() -> float:
        """Seconds that were idle, of this process, or of its children that have ended."""
        times = psutil.cpu_times()
        return float(times.idle + getattr(times, "iowait", 0.0) + sum(os.times()[:4]))

    processors = psutil.cpu_count() or 1
    began = time.monotonic()
    before = ours_or_idle()

    def elsewhere() -> Optional[float]:
        passed = processors * (time.monotonic() - began)
        if passed <= 0 or process.cores() < processors:
            return None
        share = 1 - (ours_or_idle() - before) / passed
        return round(min(1.0, max(0.0, share)), 4)

    return elsewhere
