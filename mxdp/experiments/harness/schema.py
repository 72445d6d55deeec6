"""The format of a result: :data:`RESULT`."""

from __future__ import annotations

import math
import re
from typing import Any, Optional

SCHEMA_VERSION = 3
"""2: a row has ``rounds``. 3: a verdict has claims; a row says how sure its intervals are."""
STATUSES = ("ok", "failed", "timeout", "skipped")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""What an experiment may be called: the name becomes a file's name and a part of identifiers in the report."""

# A type, a tuple of allowed types, a dict (of at least these keys) or a list of one shape.
NULL = type(None)
NUMBER = (int, float)
SECONDS = {"median": NUMBER, "min": NUMBER, "max": NUMBER, "samples": [NUMBER]}
ROW = {"label": str, "case": dict, "seconds": SECONDS, "metrics": dict, "rounds": dict, "confidence": NUMBER}
CLAIM = {
    "name": str,
    "sentence": str,
    "source": str,
    "bound": NUMBER,
    "least": bool,
    "holds": (bool, NULL),
    "measured": [{"label": str, "median": (*NUMBER, NULL), "low": (*NUMBER, NULL), "high": (*NUMBER, NULL)}],
}
ENVIRONMENT = {
    "cpu_model": (str, NULL),
    "cores": int,
    "memory_bytes": (int, NULL),
    "platform": str,
    "python": str,
    "versions": dict,
    "threads": (int, NULL),
    "gpus": list,
    "variables": dict,
    "commit": (str, NULL),
}
RESULT = {
    "schema_version": int,
    "experiment": str,
    "question": str,
    "source": str,
    "prediction": str,
    "how_to_read": str,
    "preset": str,
    "settings": dict,
    "environment": ENVIRONMENT,
    "started": str,
    "elapsed_seconds": NUMBER,
    "status": str,
    "error": (str, NULL),
    "rows": [ROW],
    "references": [ROW],
    "oracle": {"checked": int, "wrong": int, "text": str},
    "looks": int,
    "disturbance": dict,
    "verdict": {
        "holds": (bool, NULL),
        "text": str,
        "claims": [CLAIM],
        "busy": (*NUMBER, NULL),
        "noise": (dict, NULL),
    },
}


def problem(result: Any) -> Optional[str]:
    """What is wrong with ``result`` as a record of this version; None if nothing is."""
    found = _mismatch(result, RESULT, "")
    if found:
        return found
    if result["schema_version"] != SCHEMA_VERSION:
        return f"its schema_version is {result['schema_version']}, and this mxdp knows {SCHEMA_VERSION}"
    if not NAME.fullmatch(result["experiment"]):
        return f"experiment {result['experiment']!r} is not a name of letters, digits, '-' and '_'"
    if result["status"] not in STATUSES:
        return f"status {result['status']!r} is none of {', '.join(STATUSES)}"
    sources = result.get("sources", {})  # the first results of version 3 have none
    if not isinstance(sources, dict) or not all(isinstance(each, str) for each in sources.values()):
        return "sources is not an object whose values are texts"
    for part in ("rows", "references"):
        for index, row in enumerate(result[part]):
            seconds = row["seconds"]
            if not seconds["samples"]:
                return f"{part}[{index}].seconds.samples is empty"
            low, high = seconds["min"], seconds["max"]
            # A NaN fails too.
            within = all(low <= sample <= high for sample in seconds["samples"])
            if not (within and 0 <= low <= seconds["median"] <= high < math.inf):
                return f"{part}[{index}].seconds is not 0 <= min <= median <= max, with all samples between"
    return None


def _mismatch(value: Any, shape: Any, where: str) -> Optional[str]:
    """Where and how ``value`` first differs from ``shape``; None if it does not."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return f"{where or 'the record'} is not an object"
        for key, inner in shape.items():
            name = f"{where}.{key}" if where else key
            found = f"{name} is missing" if key not in value else _mismatch(value[key], inner, name)
            if found:
                return found
        return None
    if isinstance(shape, list):
        if not isinstance(value, list):
            return f"{where} is not a list"
        return next(filter(None, (_mismatch(item, shape[0], f"{where}[{i}]") for i, item in enumerate(value))), None)
    allowed = shape if isinstance(shape, tuple) else (shape,)
    # True is an int to Python, but a count of true is a mistake.
    if (isinstance(value, bool) and bool not in allowed) or not isinstance(value, allowed):
        return f"{where} is {value!r:.40}, not {' or '.join('null' if t is NULL else t.__name__ for t in allowed)}"
    return None
