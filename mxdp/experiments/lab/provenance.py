"""Where a result comes from: machine, versions, commit, and the code that was measured. Imports no MXNet.

A result is *older* than the code where a module that its processes had imported has another :func:`fingerprint` today.
An edited comment costs no hours of measurement; nor does what a question tells or expects, which is said anew wherever
a result is shown; nor a change that :data:`HELD` lists, whose reason is shown instead. Only the program writes hashes.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import math
import os
import platform
import re
import subprocess
import sys
import time
import tokenize
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

import psutil

from mxdp import process

MEASURED = ("mxnet", "mxnet-cu112", "numpy")
"""The packages without which no result would be what it is."""
PACKAGES = (*MEASURED, "mxdp", "d2l", "matplotlib", "scikit-learn", "mpi4py", "mpich", "horovod", "torch")
ROOT = Path(__file__).resolve().parents[3]
UNCOUNTED = re.compile(
    r"mxdp\.(errors|launch\.guarded|plans\.show|experiments\.(show|lab\.(module|provenance|result|rows|settings|told)))\b"
)
"""Modules that are imported where something is measured, and only word, judge or draw."""
AFTERWARDS = re.compile(r"def _?(tell|expect|draw)(_\w*)?\(|(LITTLE|SOURCE|COMPARED|TOUR|CHECKS)\b")
"""How the functions and constants of a question begin that don't decide what is measured."""
HELD = "experiments/reference/held.json"
"""Changes of modules that are held to be without effect on what was measured: for each reason, names with the hashes
before and after. ``tools/tables.py --hold`` writes it."""
BUSY = 0.1
"""A larger share of the processors' time that goes elsewhere disturbs a measurement."""


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    with contextlib.suppress(OSError):
        if found := re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M):
            return found[1].strip()
    return platform.processor() or platform.machine()


def versions() -> Dict[str, str]:
    """Version of each installed package that the results depend on."""
    installed = {}
    for package in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            installed[package] = metadata.version(package)
    return installed


def commit() -> Optional[str]:
    """The commit of the checkout that mxdp runs from, with ``+`` if it has changes (new results among those that are
    committed are none); None outside a checkout."""

    def git(*words: str) -> str:
        return subprocess.check_output(["git", *words], cwd=ROOT, stderr=subprocess.DEVNULL, text=True, timeout=10)

    with contextlib.suppress(OSError, subprocess.SubprocessError):
        if git("ls-files", "--", str(Path(__file__).resolve())):
            changed = git("status", "--porcelain", "-uno", "--", ":/", ":(top,exclude)experiments/reference")
            return git("rev-parse", "--short=12", "HEAD").strip() + ("+" if changed else "")
    return None


def environment(variables: Mapping[str, str], devices: Iterable[str]) -> Dict[str, Any]:
    """The ``environment`` of a result, with the variables and the devices' names that a process has reported."""
    threads = variables.get("OMP_NUM_THREADS", "")
    return {
        **dict(cpu_model=cpu_model(), cores=process.cores(), memory_bytes=psutil.virtual_memory().total),
        **dict(platform=platform.platform(), python=platform.python_version(), versions=versions(), commit=commit()),
        "threads": int(threads) if threads.isdigit() else None,
        "gpus": sorted({name for name in devices if name.startswith(("gpu", "cuda"))}),
        "variables": dict(variables),
    }


def sources(modules: Iterable[str], since: float) -> Dict[str, str]:
    """These modules, each with its :func:`fingerprint`. It is empty, and never equals today's, if the file was written
    after ``since`` (seconds, as ``time.time``): processes may have run what it held before."""
    return {name: today(name, since) for name in sorted(set(modules)) if not UNCOUNTED.match(name)}


def changes(result: Mapping[str, Any], installed: Optional[Mapping[str, str]] = None) -> List[str]:
    """What has changed since ``result`` was measured: modules, and packages of :data:`MEASURED`, of which other
    versions are ``installed`` (by default, here)."""
    then, now = result["environment"]["versions"], versions() if installed is None else installed
    changed = [name for name, was in carried(result["sources"])[0].items() if not was or was != today(name)]
    changed += [package for package in MEASURED if then.get(package) != now.get(package)]
    return changed if result["sources"] else ["the code (it was not recorded)"]


def carried(sources: Mapping[str, str]) -> Tuple[Dict[str, str], List[str]]:
    """``sources`` with each hash that :data:`HELD` lists replaced by the one after the change, and the reasons that
    apply. A module that is gone since is left out."""
    now, reasons, path = dict(sources), [], ROOT / HELD
    for held in json.loads(path.read_text(encoding="utf-8")) if path.exists() else ():
        after = {name: new for name, old, new in held["changes"] if now.get(name) == old}
        now = {name: code for name, code in {**now, **after}.items() if code or name not in after}
        reasons += [held["reason"]] if after else []
    return now, reasons


def today(module: str, since: float = math.inf) -> str:
    """The fingerprint of its text, without importing it. A teacher's own is imported already."""
    path = ROOT.joinpath(*module.split("."), "__init__.py")
    path = path if path.exists() else path.parent.with_suffix(".py")
    if not module.startswith("mxdp."):
        path = Path(getattr(sys.modules.get(module), "__file__", None) or "")
    return fingerprint(path.read_text(encoding="utf-8")) if path.is_file() and path.stat().st_mtime <= since else ""


@lru_cache(maxsize=None)
def fingerprint(text: str) -> str:
    """A hash of a module's code, equal on all releases of Python. Comments, docstrings and empty lines don't count, nor
    what a question has :data:`AFTERWARDS`.

    >>> fingerprint("def f():\\n    'It adds.'\\n\\n    return 1  # one") == fingerprint("def f():\\n    return 1")
    True
    """
    lines, tree = text.split("\n"), ast.parse(text)
    texts = [node for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)]
    left_out: List[Any] = [node for node in texts if not lines[node.lineno - 1][: node.col_offset].strip()]
    if "\ndef tell(" in text:
        left_out += [node for node in tree.body if AFTERWARDS.match(lines[node.lineno - 1])]
    for node in left_out:
        lines[node.lineno - 1 : node.end_lineno] = [""] * (node.end_lineno - node.lineno + 1)
    for token in tokenize.generate_tokens(iter([f"{line}\n" for line in lines]).__next__):
        if token.type == tokenize.COMMENT:
            lines[token.start[0] - 1] = lines[token.start[0] - 1][: token.start[1]]
    kept = "\n".join(line.rstrip() for line in lines if line.strip())
    return hashlib.sha256(kept.encode("utf-8")).hexdigest()[:12]


def since_now() -> Callable[[], Optional[float]]:
    """A function that returns the share of the processors' time that has gone elsewhere since now; None where a part of
    the machine is ours only, of which the counters say nothing."""

    def ours_or_idle() -> float:
        """Seconds that were idle, of this process, or of its children that have ended."""
        times = psutil.cpu_times()
        return float(times.idle + getattr(times, "iowait", 0.0) + sum(os.times()[:4]))

    began, before, processors = time.monotonic(), ours_or_idle(), psutil.cpu_count() or 1

    def elsewhere() -> Optional[float]:
        passed, counted = processors * (time.monotonic() - began), ours_or_idle() - before
        whole = passed > 0 and process.cores() >= processors
        return round(min(1.0, max(0.0, 1 - counted / passed)), 4) if whole else None

    return elsewhere
