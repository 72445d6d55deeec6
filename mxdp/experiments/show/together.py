"""Which runs of a question are shown together: the newest, and those before it that were measured alike."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Sequence

from mxdp.errors import plural
from mxdp.experiments.lab.rows import Record

EFFORT = ("minutes", "processes", "rounds", "timeout", "data_dir")
"""Settings that say how long to measure, not what."""
PACKAGES = ("mxnet", "mxnet-cu112", "numpy")
"""The packages whose versions are compared."""


def together(runs: Sequence[Record], across_commits: bool = False) -> List[Record]:
    """The newest run, after those before it that have equal :func:`conditions`."""
    in_order = sorted(runs, key=lambda run: str(run["started"]))
    newest = conditions(in_order[-1], across_commits)
    return [run for run in in_order if conditions(run, across_commits) == newest]


def left_out(runs: Sequence[Record], across_commits: bool = False) -> List[str]:
    """What :func:`together` leaves out of these, by its difference, as in "2 runs with MXNET_CPU_TEMP_COPY=4"."""
    newest = conditions(together(runs, across_commits)[-1], across_commits)
    counts: Dict[str, int] = Counter()
    for run in runs:
        own = conditions(run, across_commits)
        differences = []
        for name in {**newest, **own}:
            if own.get(name) != newest.get(name):
                differences.append(f"{name}={own[name]}" if name in own else f"no {name}")
        if differences:
            counts[" and ".join(differences)] += 1
    return [f"{plural(number, 'run')} with {what}" for what, number in counts.items()]


def conditions(run: Record, across_commits: bool) -> Dict[str, Any]:
    """What must be equal of runs that are shown together, by name. A result of version 4 knows of its processor only
    the name."""
    environment = run["environment"]
    known = {name: value for name, value in run["settings"].items() if name not in EFFORT}
    known["status"] = run["status"]
    known["GPUs"] = environment["gpus"]
    known["cores"] = environment["cores"]
    known["processor"] = environment["cpu_model"]
    for name, value in environment.get("processor", {}).items():
        known[f"processor's {name}"] = value
    known["Python"] = environment["python"]
    for name, version in environment["versions"].items():
        if name in PACKAGES:
            known[name] = version
    for name, value in environment["variables"].items():
        # Of mxdp's own variables only this one changes how MXNet runs.
        if name == "MXDP_PREPARE" or not name.startswith("MXDP_"):
            known[name] = value
    if not across_commits:
        known["commit"] = _code(run)
    return known


def _code(run: Record) -> str:
    """The commit; outside a checkout mxdp's version. The code of a checkout with changes equals no other."""
    commit = run["environment"]["commit"]
    if not commit:
        return f"mxdp {run['environment']['versions'].get('mxdp')}"
    return f"{commit} at {run['started']}" if commit.endswith("+") else str(commit)


def release(machine: Path) -> Path:
    """The folder of the newest release that was measured on this machine."""
    versions = [folder for folder in machine.iterdir() if re.fullmatch(r"\d+(\.\d+)*", folder.name)]
    return max(versions, key=lambda folder: [int(part) for part in folder.name.split(".")])
