"""Which runs of a question are shown together: the newest, and those before it that were measured alike."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Mapping, Sequence

from mxdp.errors import plural

EFFORT = ("minutes", "processes", "rounds", "timeout", "data_dir")
"""Settings that say how long to measure, not what."""
PACKAGES = ("mxnet", "mxnet-cu112", "numpy")
"""Of the others, no version is compared."""


def together(
    runs: Sequence[Mapping[str, Any]], across_commits: bool = False
) -> List[Mapping[str, Any]]:
    """The newest run, after those before it that have equal :func:`conditions`."""
    in_order = sorted(runs, key=lambda run: str(run["started"]))
    newest = conditions(in_order[-1], across_commits)
    return [run for run in in_order if conditions(run, across_commits) == newest]


def left_out(runs: Sequence[Mapping[str, Any]], across_commits: bool = False) -> List[str]:
    """What :func:`together` leaves out of these, by its difference, as in "2 runs with MXNET_CPU_TEMP_COPY=4"."""
    newest = conditions(together(runs, across_commits)[-1], across_commits)
    counts: Dict[str, int] = Counter()
    for run in runs:
        own = conditions(run, across_commits)
        names = [name for name in {**newest, **own} if own.get(name) != newest.get(name)]
        counts[
            " and ".join(f"{name}={own[name]}" if name in own else f"no {name}" for name in names)
        ] += 1
    return [
        f"{plural(number, 'run')} with {differences}"
        for differences, number in counts.items()
        if differences
    ]


def conditions(run: Mapping[str, Any], across_commits: bool) -> Dict[str, Any]:
    """What must be equal of runs that are shown together, by name. A result of version 4 knows of its processor only
    the name."""
    environment = run["environment"]
    known = {name: value for name, value in run["settings"].items() if name not in EFFORT}
    known["status"] = run["status"]
    known["GPUs"] = environment["gpus"]
    known["cores"] = environment["cores"]
    known["processor"] = environment["cpu_model"]
    known.update(
        {f"processor's {name}": value for name, value in environment.get("processor", {}).items()}
    )
    known["Python"] = environment["python"]
    known.update(
        {name: version for name, version in environment["versions"].items() if name in PACKAGES}
    )
    # Of mxdp's own variables only MXDP_PREPARE changes how MXNet runs.
    variables = environment["variables"].items()
    known.update(
        {
            name: value
            for name, value in variables
            if name == "MXDP_PREPARE" or not name.startswith("MXDP_")
        }
    )
    if not across_commits:
        known["commit"] = _code(run)
    return known


def _code(run: Mapping[str, Any]) -> str:
    """The commit; outside a checkout mxdp's version. The code of a checkout with changes equals no other."""
    commit = run["environment"]["commit"]
    if not commit:
        return f"mxdp {run['environment']['versions'].get('mxdp')}"
    return f"{commit} at {run['started']}" if commit.endswith("+") else str(commit)


def release(machine: Path) -> Path:
    """The folder of the newest release that was measured on this machine."""
    versions = [folder for folder in machine.iterdir() if re.fullmatch(r"\d+(\.\d+)*", folder.name)]
    return max(versions, key=lambda folder: [int(part) for part in folder.name.split(".")])
