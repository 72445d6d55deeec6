"""Where a result comes from: machine, versions, commit, and the code that was measured. Asks the system and pip, not
MXNet.

A result is *older* than the code where a module that its processes had imported is another today (:func:`changes`).
A module counts by its :func:`fingerprint`, so that an edited comment costs no hours of measurement; nor does what a
question tells or expects, since that is said anew wherever a result is shown. Only the program writes these hashes.
"""

from __future__ import annotations

import ast
import hashlib
import io
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
from typing import Any, Dict, Iterable, List, Mapping, Optional

import psutil

from mxdp import process

PACKAGES = (
    *("mxdp", "mxnet", "mxnet-cu112", "numpy", "d2l", "matplotlib", "scikit-learn"),
    *("mpi4py", "mpich", "horovod", "torch"),
)
MEASURED = ("mxnet", "mxnet-cu112", "numpy")
"""Of these the packages without which no result would be what it is."""
ROOT = Path(__file__).resolve().parents[3]
UNCOUNTED = tuple(
    f"mxdp.{name}"
    for name in (
        *("errors", "plans.show", "experiments.show"),
        *(f"experiments.lab.{name}" for name in ("module", "provenance", "result", "rows", "settings", "told")),
    )
)
"""Modules that are imported where something is measured, and only word, judge or draw."""
BUSY = 0.1
"""A larger share of the processors' time that goes elsewhere disturbs a measurement."""
AFTERWARDS = re.compile(r"_?(tell|expect|draw)(_.*)?|LITTLE|SOURCE|COMPARED|TOUR|CHECKS|SLIDE_PANEL")
"""Functions and constants of a question that don't decide what is measured, by name."""


def cpu_model() -> str:
    """The processor's name, as the system gives it."""
    try:
        named = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        named = None
    return named.group(1).strip() if named else platform.processor() or platform.machine()


def versions() -> Dict[str, str]:
    """Version of each installed package that the results depend on."""
    installed = {}
    for package in PACKAGES:
        try:
            installed[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return installed


def commit() -> Optional[str]:
    """The commit of the checkout that mxdp runs from, with ``+`` if it has changes; None outside a checkout.

    New results among those that are committed are no change of the code.
    """

    def git(*words: str) -> str:
        answer = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip()

    try:
        if not git("ls-files", "--", str(Path(__file__).resolve())):
            return None
        changed = git("status", "--porcelain", "-uno", "--", ":/", ":(top,exclude)experiments/reference")
        return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.SubprocessError):
        return None


def environment(variables: Mapping[str, str], devices: Iterable[str]) -> Dict[str, Any]:
    """The ``environment`` of a result, with the variables and the devices' names that a process has reported."""
    threads = variables.get("OMP_NUM_THREADS", "")
    return {
        "cpu_model": cpu_model(),
        "cores": process.cores(),
        "memory_bytes": psutil.virtual_memory().total,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "versions": versions(),
        "commit": commit(),
        "threads": int(threads) if threads.isdigit() else None,
        "gpus": sorted({name for name in devices if name.startswith(("gpu", "cuda"))}),
        "variables": dict(variables),
    }


def sources(modules: Iterable[str], since: float) -> Dict[str, str]:
    """These modules, each with its :func:`fingerprint`.

    A file written after ``since`` (seconds, as ``time.time``) has an empty one, which never equals today's: processes
    may have run what it held before.
    """
    files = {name: _file(name) for name in sorted(set(modules)) if not name.startswith(UNCOUNTED)}
    return {
        name: _today(name) if path.is_file() and path.stat().st_mtime <= since else "" for name, path in files.items()
    }


def changes(result: Mapping[str, Any], installed: Optional[Mapping[str, str]] = None) -> List[str]:
    """What has changed since ``result`` was measured: modules, and packages of :data:`MEASURED`, of which other
    versions are ``installed`` (by default, here)."""
    then, now = result["environment"]["versions"], versions() if installed is None else installed
    changed = [name for name, was in result["sources"].items() if not was or was != _today(name)]
    changed += [package for package in MEASURED if then.get(package) != now.get(package)]
    return changed if result["sources"] else ["the code (it was not recorded)"]


def _today(module: str) -> str:
    path = _file(module)
    return fingerprint(path.read_text(encoding="utf-8")) if path.is_file() else ""


def _file(module: str) -> Path:
    """Where its text is, without importing it. A teacher's own is imported already."""
    if not module.startswith("mxdp."):
        return Path(getattr(sys.modules.get(module), "__file__", None) or "")
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@lru_cache(maxsize=None)
def fingerprint(text: str) -> str:
    """A hash of a module's code, equal on all releases of Python. Comments, docstrings and empty lines don't
    count, nor does what a question has :data:`AFTERWARDS`.

    >>> fingerprint("def f():\\n    'It adds.'\\n\\n    return 1  # one") == fingerprint("def f():\\n    return 1")
    True
    """
    lines = io.StringIO(text).readlines()
    tree = ast.parse(text)
    if any(isinstance(node, ast.FunctionDef) and node.name == "tell" for node in tree.body):
        for node in tree.body:
            targets = getattr(node, "targets", [getattr(node, "target", node)])
            names = [getattr(one, "id", getattr(one, "name", "")) for one in targets]
            if all(map(AFTERWARDS.fullmatch, names)):
                lines[node.lineno - 1 : node.end_lineno] = ["\n"] * ((node.end_lineno or 0) - node.lineno + 1)
    tokens = [token for token in tokenize.generate_tokens(iter(lines).__next__) if token.type != tokenize.NL]
    left_out = [token for token in tokens if token.type == tokenize.COMMENT]
    code = [token for token in tokens if token.type != tokenize.COMMENT]
    # A docstring is a statement of its own. (The last token stands for what is before the first.)
    starts = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for before, token, after in zip([code[-1], *code], code, code[1:]):
        if token.type == tokenize.STRING and before.type in starts and after.type == tokenize.NEWLINE:
            left_out.append(token)
    for token in sorted(left_out, key=lambda token: token.start, reverse=True):
        (first, left), (last, right) = token.start, token.end
        lines[first - 1 : last] = [lines[first - 1][:left] + lines[last - 1][right:]]
    kept = "\n".join(line.rstrip() for line in lines if line.strip())
    return hashlib.sha256(kept.encode("utf-8")).hexdigest()[:12]


class Counters:
    """The machine's counters at a moment, to see what else than mxdp it does until another."""

    def __init__(self) -> None:
        times, ours = psutil.cpu_times(), os.times()
        self.clock, self.idle = time.monotonic(), times.idle + getattr(times, "iowait", 0.0)
        self.ours = sum(ours[:4])  # with children that have ended

    def elsewhere(self) -> Optional[float]:
        """The share of the processors' time that went elsewhere since; None where a part of the machine is ours only,
        of which the counters say nothing."""
        now, processors = Counters(), psutil.cpu_count() or 1
        most = processors * (now.clock - self.clock)
        if most <= 0 or process.cores() < processors:
            return None
        return round(min(1.0, max(0.0, 1 - (now.idle - self.idle + now.ours - self.ours) / most)), 4)


def busy_now(seconds: float = 0.5) -> str:
    """How busy the machine is without us, in a sentence; takes ``seconds``."""
    share = psutil.cpu_percent(seconds) / 100
    text = f"This machine's {psutil.cpu_count()} processors are {share:.0%} busy with other work"
    return f"{text}: times will be disturbed." if share > BUSY else f"{text}."
