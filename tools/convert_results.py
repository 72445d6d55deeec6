"""Turn results of schema_version 3 into results of today's (:mod:`mxdp.experiments.lab.result`): once, until all are
measured anew.

    python tools/convert_results.py FROM TO [NAME...]

``FROM`` has a folder for each machine, with a file for each question. Of the rounds of a process the median is kept, or
whatever :func:`mxdp.experiments.lab.rows.by_name` makes of them. A row's case is that of the same label in today's
module. The hashes of the code were of other files, so each is recorded as empty: such a result is older than any code.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Sequence

from mxdp.experiments.lab import result
from mxdp.experiments.lab.module import Case, Question, Settings, discover
from mxdp.experiments.lab.rows import by_name, middle

ENVIRONMENT = {"memory_bytes": None, "threads": None, "gpus": [], "variables": {}}

SUMMED_UP = ("tasks", "busy", "curve", "allreduce_by_parameters")
"""Dicts of numbers, of whose rounds only the median or the last was kept: here one process has it, the others none."""


def converted(old: Mapping[str, Any], question: Question) -> Dict[str, Any]:
    """The result in today's form. Numbers that ``tell`` computes anew are kept, too; it overwrites them."""
    recorded = dict(old["settings"])
    if isinstance(recorded.get("processes"), list):  # today's is how often a case is measured
        recorded["ranks"] = recorded.pop("processes")
    settings = Settings({**question.preset("full"), **recorded})
    cases = {case.label: case for case in question.cases(settings)}
    rows = [(row, False) for row in old["rows"]] + [(row, True) for row in old["references"]]
    kept = ("experiment", "question", "preset", "prediction", "started", "elapsed_seconds")
    return {
        "schema_version": result.SCHEMA_VERSION,
        **{key: old[key] for key in (*kept, "status", "error", "oracle")},
        "settings": recorded,
        "environment": {**ENVIRONMENT, **old["environment"]},
        "sources": dict.fromkeys(old.get("sources", {}), ""),
        "skipped": {},
        "bounds": {claim["sentence"]: claim["bound"] for claim in old["verdict"]["claims"]},
        "elsewhere": old.get("disturbance", {}).get("elsewhere", []),
        "rows": [_row(row, reference, cases.get(row["label"])) for row, reference in rows],
    }


def _row(row: Mapping[str, Any], reference: bool, case: Optional[Case]) -> Dict[str, Any]:
    samples = row["seconds"]["samples"]
    processes = row["rounds"].get("repeat") or range(len(samples))
    rounds: Dict[Any, List[Dict[str, Any]]] = {}
    for number, (process, seconds) in enumerate(zip(processes, samples)):
        own = {name: values[number : number + 1] for name, values in row["rounds"].items()}
        own = {name: values[0] for name, values in own.items() if values and name != "repeat"}
        rounds.setdefault(process, []).append({**own, "seconds": seconds})
    said = [by_name(own, middle) for own in rounds.values()]
    settings = dict(row["case"])
    devices = settings.pop("devices")
    if case:
        known = {"devices": case.devices, "processes": case.processes, "engine": case.engine, **case.settings}
        settings = {**settings, **known}
    else:
        print(f"no case is called {row['label']!r} today", file=sys.stderr)
        settings = {"devices": len(devices), "processes": 1, "engine": "", **settings}
    more = {name: value for name, value in row["metrics"].items() if name not in row["rounds"]}
    for name in set(more) & {*SUMMED_UP}:
        said[0][name] = more.pop(name)
    return {
        "label": row["label"],
        "reference": reference,
        "case": settings,
        "devices": devices,
        "facts": more,
        "processes": said,
        "oracle": row["oracle"],
    }


def main(source: Path, target: Path, names: Sequence[str]) -> None:
    """Write a new file for each old one of these questions, or of all."""
    known = discover()
    for path in sorted(source.glob("*/*.json")):
        if path.stem in known and (not names or path.stem in names):
            old = json.loads(path.read_text(encoding="utf-8"))
            folder = target / path.parent.name
            shutil.rmtree(folder / path.stem, ignore_errors=True)
            print(result.write(converted(old, known[path.stem]), folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:])
