"""A run of one question as a file: ``DIR/<question>/<when it began>.json``, written once and never changed.

It holds what was measured: settings, environment, the prediction, the oracle's counts, a list of values for each number
of each row (one a process), the hashes of the code, and the bounds of the claims as they were then. A file that is
damaged, foreign or of an unknown version is named in one sentence, never half read. JSON has neither NaN nor infinity:
such a value is ``null``.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any, Dict, Iterable, List, Mapping, Sequence, Union

from mxdp.errors import MxdpError, UsageError, plural
from mxdp.experiments.lab import provenance
from mxdp.experiments.lab.module import NAME
from mxdp.plans.show.files import write_beside

SCHEMA_VERSION = 4
TIMELINE = "timeline"
"""The fact in which a row keeps what was recorded (``Timeline.to_json``)."""
EFFORT = ("processes", "rounds", "timeout", "data_dir")
"""Settings that say how long to measure, not what."""
NUMBER, MAYBE = (int, float), (str, type(None))
RESULT: Mapping[str, Any] = {
    **dict.fromkeys(("experiment", "question", "preset", "prediction", "started", "status"), str),
    **dict.fromkeys(("settings", "environment", "sources", "skipped", "oracle", "bounds"), dict),
    "error": MAYBE,
    "elapsed_seconds": NUMBER,
    "elsewhere": list,
    "rows": list,
    "environment.cpu_model": MAYBE,
    "environment.cores": int,
    "environment.versions": dict,
    "environment.commit": MAYBE,
    "oracle.checked": int,
    "oracle.wrong": int,
    "oracle.text": str,
}
ROW = {"label": str, "reference": bool, "case": dict, "devices": list, "facts": dict, "processes": list, "oracle": dict}
"""What a result and each of its rows must have, and of which types; they may have more."""


def write(result: Mapping[str, Any], folder: Union[str, Path]) -> Path:
    """Write ``result``, made :func:`plain`, beside and renamed; its path.

    Raises:
        ValueError: the record is not complete; nothing is written.
        MxdpError: the file can't be written.
    """
    record: Dict[str, Any] = plain(result)
    wrong = problem(record)
    if wrong:
        raise ValueError(f"not a result: {wrong}")
    stamp = re.sub(r"[+-]\d\d:?\d\d$|:", "", record["started"])
    path, again = Path(folder, str(record["experiment"]), f"{stamp}.json"), 1
    while path.exists():  # of another run that began in the same second
        again += 1
        path = path.with_name(f"{stamp}_{again}.json")
    write_beside(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read(path: Union[str, Path]) -> Dict[str, Any]:
    """The result in the file ``path``.

    Raises:
        UsageError: there is no such file, or it is JSON of somebody else's.
        MxdpError: it can't be read, is damaged, or of another version.
    """
    path = Path(path)
    record = _load(path)
    if not _is_result(record):
        raise UsageError(
            f"{path} is no result of mxdp (it has no 'experiment' and 'schema_version'); "
            "give a file that `python -m mxdp.experiments run` wrote."
        )
    if record["schema_version"] != SCHEMA_VERSION:
        raise MxdpError(
            f"{path} is of schema_version {record['schema_version']!r} and this mxdp reads {SCHEMA_VERSION}; "
            "run its experiment again, or use the mxdp that wrote it."
        )
    wrong = problem(record)
    if wrong:
        raise MxdpError(f"{path} is damaged ({wrong}); move it away or run its experiment again.")
    return dict(record)


def read_folder(folder: Union[str, Path]) -> Dict[str, List[Dict[str, Any]]]:
    """By name, sorted, all runs in ``folder`` that can be shown together, oldest first: those that did the same work by
    the same code on a processor of the same kind as the newest. Foreign JSON and other runs are named on stderr.

    Raises:
        UsageError: there is no such folder, or no result in it.
        MxdpError: a file is damaged or of another version; the message names it.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give one that `python -m mxdp.experiments run` wrote.")
    by_name: Dict[str, List[Dict[str, Any]]] = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        if path.name.startswith(".") or path.parent.name == "timelines":
            continue
        if _is_result(_load(path)):
            result = read(path)
            by_name.setdefault(result["experiment"], []).append(result)
        else:
            print(f"{path} is no result of mxdp and is passed over.", file=sys.stderr)
    if not by_name:
        raise UsageError(f"there is no result in {folder}; give a folder that `python -m mxdp.experiments run` wrote.")
    return {name: together(runs) for name, runs in sorted(by_name.items())}


def together(runs: Sequence[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """The newest run, after those before it that did the same work; the others are named on stderr."""
    in_order = sorted(runs, key=lambda run: str(run["started"]))
    alike = [run for run in in_order if _work(run) == _work(in_order[-1])]
    if len(alike) < len(in_order):
        left = plural(len(in_order) - len(alike), "run")
        print(f"{in_order[0]['experiment']}: {left} of other code, settings or machines left out.", file=sys.stderr)
    return alike


def _work(run: Mapping[str, Any]) -> Any:
    settings = {name: value for name, value in run["settings"].items() if name not in EFFORT}
    return settings, run["sources"], run["environment"]["cpu_model"], run["environment"]["cores"], run["status"]


def due(name: str, preset: str, folder: Path) -> str:
    """Why ``folder`` has no result of that question with this preset by today's code, in words; empty if it has one.

    Raises:
        MxdpError: a file can't be read or is damaged.
    """
    runs = sorted((read(path) for path in (folder / name).glob("*.json")), key=lambda run: str(run["started"]))
    if not runs:
        return "not measured yet"
    if runs[-1]["preset"] != preset:
        return f"measured with the preset {runs[-1]['preset']}"
    if runs[-1]["status"] != "ok":
        return f"its result is {runs[-1]['status']}"
    changed = provenance.changes(runs[-1])
    more = f" and {plural(len(changed) - 1, 'more')}" if changed[1:] else ""
    return f"measured before a change of {changed[0]}{more}" if changed else ""


def problem(result: Any) -> str:
    """What is wrong with ``result`` as a record of this version; empty if nothing is."""
    wrong = _lacks(result, RESULT, "")
    if wrong:
        return wrong
    if not NAME.fullmatch(result["experiment"]):
        return f"experiment {result['experiment']!r} is not a name of letters, digits, '-' and '_'"
    if result["status"] not in ("ok", "failed", "timeout", "skipped"):
        return f"status {result['status']!r} is unknown"
    for index, row in enumerate(result["rows"]):
        wrong = _lacks(row, ROW, f"rows[{index}].")
        if wrong:
            return wrong
        seconds = [values.get("seconds") for values in row["processes"] if isinstance(values, dict)]
        if not seconds or not all(type(value) in (int, float) for value in seconds):
            return f"rows[{index}].processes has other than a dict with seconds for each"
    return ""


def _lacks(record: Any, shape: Mapping[str, Any], where: str) -> str:
    """Which part of this shape the record lacks, or has of another type, in words; empty if it has all."""
    for path, kind in shape.items():
        inner = record
        for name in path.split("."):
            if not isinstance(inner, dict) or name not in inner:
                return f"{where}{path} is missing"
            inner = inner[name]
        # True is an int to Python, but a count of true is a mistake.
        if not isinstance(inner, kind) or (isinstance(inner, bool) and kind is not bool):
            return f"{where}{path} is {inner!r:.40}"
    return ""


def slugs(labels: Iterable[str]) -> Dict[str, str]:
    """A name for each label that files and HTML identifiers can hold: small letters, digits and ``-``, each name once.

    >>> slugs(["2 devices", "2 Devices!", "+"])
    {'2 devices': '2-devices', '2 Devices!': '2-devices-2', '+': 'case'}
    """
    names: Dict[str, str] = {}
    for label in labels:
        short = slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "case"
        number = 1
        while slug in names.values():
            number += 1
            slug = f"{short}-{number}"
        names[label] = slug
    return names


def plain(value: Any) -> Any:
    """``value`` for JSON: NumPy's scalars and arrays become numbers and lists, NaN and infinity None, anything else its
    text, in which characters that UTF-8 can't encode (of a child's broken output) are spelt out."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")


def _load(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes().decode("utf-8"), parse_constant=_no_constant)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}; give one that `python -m mxdp.experiments run` wrote.") from error
    except OSError as error:
        raise MxdpError(f"{path} can't be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        raise MxdpError(f"{path} is damaged ({error}); move it away or run its experiment again.") from error


def _no_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _is_result(record: Any) -> bool:
    return isinstance(record, dict) and "experiment" in record and "schema_version" in record
