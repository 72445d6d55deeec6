"""``doctor``: what this machine and installation can and cannot show, each problem with its cure.

MXNet is tried in a child process with a time limit, so that an import that hangs or crashes is an answer too.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, NamedTuple, Tuple

import psutil
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mxdp import cuda, process
from mxdp.datasets.fashion_mnist import DATA_DIR, FILES, FOLDER, cache_root, given_folder
from mxdp.datasets.fetch import failed_download, offline
from mxdp.experiments import book_loop
from mxdp.experiments.lab import provenance

GOOD = "good"
LIMIT = "limit"
PROBLEM = "problem"
"""``limit``: all works, but something can't be shown here. ``problem``: something does not work until it is cured."""
COLOURS = {GOOD: "green", LIMIT: "yellow", PROBLEM: "red"}
NEWEST_TESTED = (3, 13)
DIFFERENCES = Path(__file__).with_name("mxnet_differences.txt")
"""MXNet's own tests that fail on NumPy 2, with reasons; ``tools/mxnet_tests.py`` keeps it true."""

MXNET_ALONE = (
    "module 'numpy' has no attribute 'bool'",
    "`np.PZERO` was removed in the NumPy 2.0 release.",
)
"""How the last line begins with which MXNet's own import fails: on NumPy 1, from 1.24 on, and on NumPy 2."""
IMPORT_SECONDS = 60
MEMORY_WANTED = 4 << 30
"""Four processes of ``epochs``, each with Fashion-MNIST as float32 and LeNet's work space (0.7 GB), and the system."""
SHARED_WANTED = 32 << 20
"""Half of what Docker gives a container."""

PROBE = """
import json, mxdp
from mxdp.backend import mx, np, npx, num_gpus, usable_gpus
devices = mxdp.devices(2, "cpu")
answers = [float((np.ones((8, 8), ctx=d) * 2).sum().item()) for d in devices]
print(json.dumps({"version": mx.__version__, "answers": answers, "gpus": num_gpus(), "usable": len(usable_gpus())}))
"""


class Check(NamedTuple):
    """One thing that was looked at; ``cure`` says what to do, and is empty where there is nothing to do."""

    name: str
    state: str
    found: str
    cure: str = ""


def checks() -> Iterator[Check]:
    """Look at everything. Starts one child process, and waits for it up to a minute."""
    cure = f"mxdp was tested up to Python {'.'.join(map(str, NEWEST_TESTED))}; take that if something fails"
    yield _limit(
        "Python", platform.python_version(), cure, unless=sys.version_info[:2] <= NEWEST_TESTED
    )
    yield from _mxnet()
    versions = provenance.versions()
    yield _numpy(versions["numpy"])
    book = versions.get("d2l", "not installed")
    cure = f"stock-loop needs it: {book_loop.NEEDS['d2l']}"
    yield _limit("d2l", book, cure, unless="d2l" in versions)
    cores = process.cores()
    found = f"{cores} ({provenance.cpu_model()})"
    if cores > 1:
        found += f": up to {cores} devices can work side by side"
    cure = "one core can't show a speed-up from 1 to 2 CPU devices; use two cores or more"
    yield _limit("cores", found, cure, unless=cores > 1)
    yield busy()
    memory = psutil.virtual_memory()
    found = f"{memory.available / 2**30:.1f} GiB free of {memory.total / 2**30:.1f}"
    cure = f"'epochs' needs {MEMORY_WANTED >> 30} GiB; close programs, or use --data digits"
    yield _limit("memory", found, cure, unless=memory.available >= MEMORY_WANTED)
    if os.path.isdir("/dev/shm"):  # macOS has none
        shared = psutil.disk_usage("/dev/shm")
        found = f"{shared.free >> 20} MiB free of {shared.total >> 20}"
        cure = "ranks and DataLoader's workers meet there: remove old files, or start a container with --shm-size=1g"
        yield _limit("/dev/shm", found, cure, unless=shared.free >= SHARED_WANTED)
    yield _variables()
    yield _data()


def busy() -> Check:
    """How busy the machine is with other work; takes half a second."""
    share = psutil.cpu_percent(0.5) / 100
    found = f"{share:.0%} busy with other work"
    cure = "close other programs: they disturb what is measured"
    return _limit("quiet", found, cure, unless=share <= provenance.BUSY)


def _limit(name: str, found: str, cure: str, unless: bool) -> Check:
    """A limit with its cure; good ``unless`` there is one."""
    return Check(name, GOOD, found) if unless else Check(name, LIMIT, found, cure)


def _numpy(version: str) -> Check:
    """NumPy's version, and what is known not to work with it."""
    release = [int(number) for number in version.split(".")[:2]]
    cure = f"import mxdp before mxnet; otherwise `import mxnet` ends in: AttributeError: {MXNET_ALONE[release >= [2]]}"
    if release < [2]:
        return _limit("NumPy", version, cure, unless=release < [1, 24])
    known = re.findall("^- (.*)", DIFFERENCES.read_text(encoding="utf-8"), re.M)
    found = "\n".join([f"{version}; what a program of MXNet's may meet on NumPy 2:", *known])
    return Check("NumPy", LIMIT, found, f"{cure}; the failures and their reasons: {DIFFERENCES}")


def _mxnet() -> Iterator[Check]:
    """MXNet and, if it works, the GPUs that it sees."""
    backends = process.installed_backends()
    installed = ", ".join(f"{name} {version}" for name, version in backends.items())
    answer: Dict[str, Any] = {}
    cure = process.install_problem()
    if not cure:
        answer, cure = _probe()
    if not cure and answer["answers"] != [128.0, 128.0]:
        installed += f", which computes {answer['answers']} for 128"
        cure = "install it again"
    if cure:
        yield Check("MXNet", PROBLEM, installed or "not installed", cure)
        return
    yield Check("MXNet", GOOD, f"{installed or answer['version']}; cpu(0) and cpu(1) compute")
    found = f"MXNet sees {answer['gpus']} and can use {answer['usable']}"
    if answer["usable"] >= 2:
        found = f"{answer['usable']} that MXNet can use (mxdp itself was not run on a GPU by its authors)"
        yield Check("GPUs", GOOD, found)
    elif any("-cu" in name for name in backends):
        cure = " ".join(cuda.problems()) or "one GPU is no comparison; use --kind cpu"
        yield Check("GPUs", PROBLEM, found, cure)
    else:
        cure = (
            "experiments use CPU devices; for NVIDIA GPUs of 2016 to 2022: make run BACKEND=cu112"
        )
        yield Check("GPUs", LIMIT, f"{found} (CPU build)", cure)


def _probe() -> Tuple[Dict[str, Any], str]:
    """MXNet's answer from a child, or why there is none."""
    try:
        child = subprocess.run(
            [sys.executable, "-c", PROBE],
            env=process.unprepared(),
            capture_output=True,
            text=True,
            timeout=IMPORT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        why = f"importing MXNet did not end within {IMPORT_SECONDS} s"
        return {}, f"{why}; install it again in a fresh environment"
    if child.returncode:
        message = child.stderr.strip() or f"the import ended with status {child.returncode}"
        return {}, message.splitlines()[-1].split("BackendError: ")[-1]
    return json.loads(child.stdout.splitlines()[-1]), ""


def _variables() -> Check:
    environ = process.unprepared()
    # On a copy, as if MXNet were not loaded yet: what a new process would be told.
    prepared = process.prepare_process(dict(environ), modules={})
    warnings = prepared.warnings + process.concurrency_warnings({**environ, **prepared.set})
    if warnings:
        found = "a setting of yours spoils CPU devices"
        return Check("variables", PROBLEM, found, " ".join(warnings))
    if environ.get("MXDP_PREPARE") == "0":
        found = "MXDP_PREPARE=0: MXNet's own settings"
        return Check("variables", LIMIT, found, "unset it: CPU devices share work space now")
    yours = ", ".join(f"{name}={value}" for name, value in prepared.kept.items())
    return Check("variables", GOOD, yours or "none set by you")


def _data() -> Check:
    folder = given_folder(None) or cache_root()
    for place in (folder / FOLDER, folder):
        if all((place / file.name).is_file() for file in FILES):
            return Check("Fashion-MNIST", GOOD, f"in {folder}")
    if os.environ.get(DATA_DIR):
        cure = f"put the four files there, or unset {DATA_DIR}"
        return Check("Fashion-MNIST", PROBLEM, f"not in {DATA_DIR}={folder}", cure)
    failure = failed_download(folder / FOLDER)
    if failure:
        cure = f"the digits take its place, until the network is back or {DATA_DIR} names a folder with the four files"
        return Check("Fashion-MNIST", LIMIT, failure, cure)
    cure = "it is downloaded when first needed; offline, the digits take its place"
    if offline():
        cure = "MXDP_OFFLINE forbids downloading it: the digits take its place, until you unset it"
    return Check("Fashion-MNIST", LIMIT, "not here yet", cure)


def main(as_json: bool) -> int:
    """Print the checks; exit status 1 if there is a problem."""
    checked = list(checks())
    if as_json:
        print(json.dumps([check._asdict() for check in checked], indent=2))
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(3):
            table.add_column(overflow="fold")  # a path is folded, not cut
        for check in checked:
            cure = f"\n-> {check.cure}" if check.cure else ""
            state = Text(check.state, style=COLOURS[check.state])
            table.add_row(check.name, state, Text(check.found + cure))
        Console().print(table)
    return int(any(check.state == PROBLEM for check in checked))
