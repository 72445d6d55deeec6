"""Where a result comes from: machine, versions, commit, and the code that was measured. Asks the system and pip, not
MXNet.

A result is *older* than the code where a module that its child processes had imported is another today
(:func:`changes`). The children report these modules when they are ready, since an import may depend on the case. The
file of the question is one of them: its cases and settings decide numbers. A module counts by its
:func:`fingerprint`, so that an edited comment costs no hours of measurement; nor does another bound or picture, since
:func:`~mxdp.experiments.report.words.today` judges what was measured anew wherever a result is shown.
"""

from __future__ import annotations

import ast
import hashlib
import io
import platform
import re
import subprocess
import sys
import tokenize
from functools import lru_cache
from importlib import metadata
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence

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
MEASURED = ("mxnet", "mxnet-cu112", "numpy")
"""Of these the packages without which no result would be what it is."""
NO_RESULTS = ("--", ":/", ":(top,exclude)experiments/reference")
ROOT = Path(__file__).resolve().parents[3]
UNCOUNTED = tuple(
    f"mxdp.{name}"
    for name in (
        "errors",
        "experiments.report",
        "experiments.other_splits.panels",
        "experiments.harness.claims",
        "experiments.harness.experiment",
        "experiments.harness.provenance",
        "experiments.harness.rows",
        "experiments.harness.schema",
    )
)
"""Modules that children import, but whose work is to say, judge and draw: they decide no measured number."""
AFTERWARDS = {
    *("question", "how_to_read", "claims", "checks", "little", "slide_panel"),
    *("finish", "answer", "explanation", "columns", "more_columns", "answering", "draw"),
}
"""What an experiment has for that, too, and for its tests."""


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
    """The commit of the checkout that mxdp runs from, with ``+`` if it has changes; None outside a checkout.

    New results among those that are committed are no change of the code.
    """
    here = Path(__file__).resolve().parent

    def git(*words: str) -> str:
        answer = subprocess.run(["git", *words], cwd=here, capture_output=True, text=True, timeout=10, check=True)
        return answer.stdout.strip()

    try:
        tracked = git("ls-files", "--", str(Path(__file__).resolve()))
        return (
            git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain", "-uno", *NO_RESULTS) else "")
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


def sources(ready: Iterable[Mapping[str, Any]], since: float) -> Dict[str, str]:
    """The modules that the children had imported when they were ready, each with its :func:`fingerprint`.

    A file written after ``since`` (seconds, as ``time.time``) has an empty one, which never equals today's: children
    may have run what it held before.
    """
    names = {name for each in ready for name in each["modules"] if not name.startswith(UNCOUNTED)}
    files = {name: _file(name) for name in sorted(names)}
    return {
        name: _today(name) if path.is_file() and path.stat().st_mtime <= since else "" for name, path in files.items()
    }


def changes(result: Mapping[str, Any], versions: Mapping[str, str]) -> List[str]:
    """What has changed since ``result`` was measured: modules, and those packages of :data:`MEASURED` that are not as
    in ``versions``. Empty if nothing has."""
    if "sources" not in result:
        return ["the code (it was not recorded)"]
    then = result["environment"]["versions"]
    counted = {name: was for name, was in result["sources"].items() if not name.startswith(UNCOUNTED)}
    changed = [name for name, was in counted.items() if not was or was != _today(name)]
    return changed + [package for package in MEASURED if then.get(package) != versions.get(package)]


def _today(module: str) -> str:
    path = _file(module)
    return fingerprint(path.read_text(encoding="utf-8")) if path.is_file() else ""


def _file(module: str) -> Path:
    """Where its text is, without importing it: mxdp's modules load MXNet. A teacher's own is imported already."""
    if not module.startswith("mxdp."):
        return Path(getattr(sys.modules.get(module), "__file__", None) or "")
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@lru_cache(maxsize=None)
def fingerprint(text: str) -> str:
    """A hash of a module's code, equal on all releases of Python. Comments, docstrings and empty lines don't count, nor
    does what an experiment has :data:`AFTERWARDS`.

    >>> fingerprint("def f():\\n    'It adds.'\\n\\n    return 1  # one") == fingerprint("def f():\\n    return 1")
    True
    """
    lines = io.StringIO(text).readlines()
    for each in _afterwards(text):
        lines[each.lineno - 1 : each.end_lineno] = ["\n"] * (each.end_lineno - each.lineno + 1)
    tokens = [each for each in tokenize.generate_tokens(iter(lines).__next__) if each.type != tokenize.NL]
    told = [each for each in tokens if each.type == tokenize.COMMENT]
    code = [each for each in tokens if each.type != tokenize.COMMENT]
    # A docstring is a statement of its own. (The last token stands for what is before the first.)
    starts = (tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    for before, each, after in zip([code[-1], *code], code, code[1:]):
        if each.type == tokenize.STRING and before.type in starts and after.type == tokenize.NEWLINE:
            told.append(each)
    for each in sorted(told, key=lambda each: each.start, reverse=True):
        (first, left), (last, right) = each.start, each.end
        lines[first - 1 : last] = [lines[first - 1][:left] + lines[last - 1][right:]]
    kept = "\n".join(line.rstrip() for line in lines if line.strip())
    return hashlib.sha256(kept.encode("utf-8")).hexdigest()[:12]


def _afterwards(text: str) -> List[Any]:
    """The statements of :data:`AFTERWARDS` in the experiments of a module."""
    found = []
    for each in ast.parse(text).body:
        if isinstance(each, ast.ClassDef) and "experiment" in [getattr(one, "id", "") for one in each.decorator_list]:
            for own in each.body:
                targets = getattr(own, "targets", [getattr(own, "target", own)])
                names = {getattr(one, "id", getattr(one, "name", "")) for one in targets}
                found += [own] if names <= AFTERWARDS else []
    return found
