"""A result as a file: ``DIR/<experiment>.json``, one for each experiment. :data:`.schema.RESULT` is its format.

A file that is damaged, foreign or of an unknown version is named in one sentence, never half read.

JSON has neither NaN nor infinity. A metric may be either (a loss may diverge), so :func:`plain` turns them into
``null``, which tables show as a dash. A *time* that is not finite is a defect and is refused.
"""

from __future__ import annotations

import json
import math
import re
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Union

from mxdp.errors import MxdpError, UsageError
from mxdp.experiments.harness.rows import Row
from mxdp.experiments.harness.schema import SCHEMA_VERSION, problem
from mxdp.plans.show.files import write_beside

TIMELINE = "timeline"
"""The metric in which a row keeps what was recorded (``Timeline.to_json``)."""


def combined(values: Sequence[Any]) -> Any:
    """What a row says of a metric that had these values in its rounds, of which None means that it had none.

    The median of numbers; of dicts that of each entry; of booleans whether all were true; of anything else the last.

    >>> combined([3, 1, 2]), combined([{"a": 1.0}, {"a": 2.0}]), combined([True, False]), combined(["x", "y"])
    (2, {'a': 1.5}, False, 'y')
    """
    known = [value for value in values if value is not None]
    if not known or all(value == known[0] for value in known):
        return known[0] if known else None
    if all(isinstance(value, bool) for value in known):
        return all(known)
    if all(isinstance(value, (int, float)) for value in known):
        return math.nan if any(map(math.isnan, known)) else statistics.median(known)
    if all(isinstance(value, dict) for value in known):
        keys = dict.fromkeys(key for value in known for key in value)
        return {key: combined([value.get(key) for value in known]) for key in keys}
    return known[-1]


def write(result: Dict[str, Any], folder: Union[str, Path]) -> Path:
    """Write ``result``, made :func:`plain`, to ``folder/<experiment>.json``; the folder is made if it is missing.

    Raises:
        ValueError: the record is not complete (see :func:`problem`); nothing is written.
        MxdpError: the file can't be written.
    """
    record = plain(result)
    wrong = problem(record)
    if wrong:
        raise ValueError(f"not a result: {wrong}")
    path = Path(folder) / f"{record['experiment']}.json"
    write_beside(path, json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def read(path: Union[str, Path]) -> Dict[str, Any]:
    """The result in the file ``path``.

    Raises:
        UsageError: there is no such file, or it is JSON of somebody else's.
        MxdpError: it can't be read, is damaged, of another version, or not called after its experiment.
    """
    path = Path(path)
    record = _load(path)
    if not _ours(record):
        raise UsageError(
            f"{path} is no result of mxdp (it has no 'experiment' and 'schema_version'); "
            "give a file that `python -m mxdp.experiments run` wrote."
        )
    return _checked(record, path)


def read_folder(folder: Union[str, Path], note: Optional[Callable[[str], None]] = None) -> List[Dict[str, Any]]:
    """All results in ``folder``, sorted by name. Hidden files are ignored. So is foreign JSON, of which ``note`` gets a
    sentence (standard error by default).

    Raises:
        UsageError: there is no such folder, or no result in it.
        MxdpError: a file is damaged or of another version; the message names it.
    """
    folder, found = Path(folder), []
    for path in files(folder):
        record = _load(path)
        if _ours(record):
            found.append(_checked(record, path))
        else:
            (note or partial(print, file=sys.stderr))(f"{path} is no result of mxdp and is passed over.")
    if not found:
        raise UsageError(f"there is no result in {folder}; give a folder that `python -m mxdp.experiments run` wrote.")
    return sorted(found, key=lambda result: str(result["experiment"]))


def files(folder: Path) -> List[Path]:
    """The JSON files of ``folder``, sorted, without hidden ones. Raises a UsageError if there is no such folder."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; give one that `python -m mxdp.experiments run` wrote.")
    return sorted(path for path in folder.glob("*.json") if not path.name.startswith("."))


def slugs(labels: Iterable[str]) -> Dict[str, str]:
    """A name for each label that files and HTML identifiers can hold: small letters, digits and ``-``, each name once.

    >>> slugs(["2 devices", "2 Devices!", "+"])
    {'2 devices': '2-devices', '2 Devices!': '2-devices-2', '+': 'case'}
    """
    found: Dict[str, str] = {}
    for label in labels:
        plain = slug = re.sub(r"[^a-z0-9]+", "-", label.lower()).strip("-") or "case"
        number = 1
        while slug in found.values():
            number += 1
            slug = f"{plain}-{number}"
        found[label] = slug
    return found


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


def _ours(record: Any) -> bool:
    return isinstance(record, dict) and "experiment" in record and "schema_version" in record


def _checked(record: Dict[str, Any], path: Path) -> Dict[str, Any]:
    version = record["schema_version"]
    if version != SCHEMA_VERSION:
        raise MxdpError(
            f"{path} is of schema_version {version!r} and this mxdp reads {SCHEMA_VERSION}; "
            "run its experiment again, or use the mxdp that wrote it."
        )
    wrong = problem(record)
    if wrong:
        raise MxdpError(f"{path} is damaged ({wrong}); move it away or run its experiment again.")
    # The report writes the picture beside it under the same name.
    if record["experiment"] != path.stem:
        raise MxdpError(
            f"{path} holds the experiment {record['experiment']!r}; rename it to {record['experiment']}.json."
        )
    return loaded(record)


def loaded(record: Dict[str, Any]) -> Dict[str, Any]:
    """A result's file with its rows as :class:`.rows.Row`."""
    return {**record, **{part: [Row.from_json(row) for row in record[part]] for part in ("rows", "references")}}


def plain(value: Any) -> Any:
    """``value`` for JSON: NumPy's scalars and arrays become numbers and lists, NaN and infinity None, anything else its
    text, in which characters that UTF-8 can't encode (of a child's broken output) are spelt out."""
    if isinstance(value, Row):
        value = value.to_json()
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, (int, float)):
        return value
    return str(value).encode("utf-8", "backslashreplace").decode("utf-8")
