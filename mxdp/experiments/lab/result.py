"""A run of one question as a file: ``DIR/<question>/<when it began>.json``, written once and never changed.

It holds what was measured: settings, environment (with the commit), the prediction, the oracle's counts, and the
numbers of each row and each process. A file that is damaged, foreign or of an unknown version is named in one sentence,
never half read.
"""

from __future__ import annotations

import json
import math
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Mapping, Union

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.lab.module import NAME
from mxdp.experiments.lab.rows import Record
from mxdp.files import write_beside

SCHEMA_VERSION = 5
READ = (4, 5)
"""The versions that can be read. Version 4 says less of the processor."""
WROTE = "that `python -m mxdp.experiments run` wrote."
MAYBE = (str, type(None))
NUMBER = (int, float)
ROW = dict(
    label=str,
    reference=bool,
    case=dict,
    devices=list,
    facts=dict,
    oracle=dict,
    processes=[dict(seconds=NUMBER)],
)
RESULT = dict(
    experiment=NAME,
    question=str,
    preset=str,
    prediction=str,
    started=str,
    settings=dict,
    skipped=dict,
    status=re.compile("ok|failed|timeout|skipped"),
    error=MAYBE,
    elapsed_seconds=NUMBER,
    elsewhere=list,
    rows=[ROW],
    environment=dict(
        cpu_model=MAYBE,
        cores=int,
        python=str,
        versions=dict,
        variables=dict,
        gpus=list,
        commit=MAYBE,
    ),
    oracle=dict(checked=int, wrong=int, text=str),
)
"""What a result must have: types, of which a value may be, patterns of texts, and these in dicts and lists."""


def write(result: Record, folder: Union[str, Path]) -> Path:
    """Write ``result``, made :func:`plain`, beside and renamed; its path. Raises an MxdpError if it can't."""
    began = re.sub(r"[+-]\d\d:?\d\d$|:", "", result["started"])
    path = Path(folder, result["experiment"], f"{began}.json")
    number = 1
    while path.exists():  # two may have begun in that second
        number += 1
        path = path.with_name(f"{began}_{number}.json")
    text = json.dumps(plain(result), indent=1, ensure_ascii=False, allow_nan=False)
    write_beside(path, f"{text}\n")
    return path


def read(path: Union[str, Path]) -> Record:
    """The result in the file ``path``. Raises a UsageError if there is none or it is JSON of somebody else's, and an
    MxdpError if it can't be read, is damaged, or of another version."""
    try:
        text = Path(path).read_bytes().decode("utf-8")
        record = json.loads(text, parse_constant=int)  # refuses NaN
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}; give one {WROTE}") from error
    except OSError as error:
        raise MxdpError(f"{path} can't be read ({error.strerror or error}).") from error
    except (ValueError, RecursionError) as error:
        raise MxdpError(
            f"{path} is damaged ({error}); move it away or run its experiment again."
        ) from error
    if not isinstance(record, dict) or not {"experiment", "schema_version"} <= set(record):
        raise UsageError(
            f"{path} is no result of mxdp (it has no 'experiment', 'schema_version'); give a file {WROTE}"
        )
    if record["schema_version"] not in READ:
        other = f"{path} is of schema_version {record['schema_version']!r} and this mxdp reads {READ[0]} and {READ[1]}"
        raise MxdpError(f"{other}; run its experiment again, or use the mxdp that wrote it.")
    if wrong := _wrong(record, RESULT, ""):
        raise MxdpError(f"{path} is damaged ({wrong}); move it away or run its experiment again.")
    return record


def _wrong(record: Any, shape: Any, where: str) -> str:
    """Which part of ``record`` is missing or has not this shape, in words; empty if all have."""
    if isinstance(shape, type):
        right = type(record) is shape
    elif isinstance(shape, tuple):
        right = type(record) in shape
    elif isinstance(shape, re.Pattern):
        right = isinstance(record, str) and bool(shape.fullmatch(record))
    else:
        right = isinstance(record, type(shape))
    if not right:
        return f"{where} is {'missing' if record is ... else f'{record!r:.40}'}"
    wrong: List[str] = []
    if isinstance(shape, dict):
        for name, inner in shape.items():
            wrong.append(_wrong(record.get(name, ...), inner, f"{where}.{name}".lstrip(".")))
    if isinstance(shape, list):
        for index, item in enumerate(record):
            wrong.append(_wrong(item, shape[0], f"{where}[{index}]"))
    return next(filter(None, wrong), "")


def read_folder(folder: Path) -> Dict[str, List[Record]]:
    """All runs in ``folder`` by name, sorted, the oldest of each first. Foreign JSON is named on stderr. Raises a
    UsageError if there is no such folder, or no result in it, and what :func:`read` raises."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give one {WROTE}")
    by_name: Dict[str, List[Record]] = {}
    for path in sorted([*folder.glob("*.json"), *folder.glob("*/*.json")]):
        if path.name.startswith(".") or path.parent.name == "timelines":
            continue
        try:
            result = read(path)
        except UsageError as error:
            print(f"Passed over: {error}", file=sys.stderr)
        else:
            by_name.setdefault(result["experiment"], []).append(result)
    if not by_name:
        raise UsageError(f"there is no result in {folder}; give a folder {WROTE}")
    for runs in by_name.values():
        runs.sort(key=lambda run: str(run["started"]))
    return dict(sorted(by_name.items()))


def plain(value: Any) -> Any:
    """``value`` for JSON, which has no NaN and no infinity: these become None, NumPy's scalars and arrays numbers and
    lists, anything else its text, in which what UTF-8 can't encode (of a child's broken output) is spelt out."""
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
