"""What a person has given, checked: numbers, keys and files. What can't be is a UsageError."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Dict, Sequence

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.lab.settings import parse_toml

LEAST = 1e-30
MOST = 1e30
"""Between these two numbers no prediction becomes infinite."""
MOST_WHOLE = 10**9
"""The largest number of samples, devices or cores."""


def whole(value: Any, what: str) -> int:
    """A whole number above 0."""
    if type(value) is not int or not 1 <= value <= MOST_WHOLE:
        limit = "above 0" if type(value) is not int or value < 1 else f"of at most {MOST_WHOLE:,}"
        raise UsageError(f"{what} is a whole number {limit}, not {value!r}")
    return value


def checked_number(value: Any, what: str, zero: bool = True) -> float:
    """A number of at least 0 (above 0 without ``zero``), and not so small or large that a prediction from it would be
    infinite."""
    known = type(value) in (int, float)
    if known and (LEAST <= value <= MOST or (zero and value == 0)):
        return float(value)
    limit = "of at least 0" if zero else "above 0"
    if known and 0 < value < math.inf:
        limit += f", from {LEAST:g} to {MOST:g}"
    raise UsageError(f"{what} is a number {limit}, not {value!r}")


def count(value: Any, what: str, zero: bool = True) -> int:
    """A whole number of at least 0 (above 0 without ``zero``), also written as 7e9."""
    number = checked_number(value, what, zero)
    if not number.is_integer():
        raise UsageError(f"{what} is a whole number, not {value!r}")
    return int(number)


def only(table: Any, keys: Sequence[str], where: str) -> Dict[str, Any]:
    """A table that has some of these keys, and no others: a key that nobody reads would have no effect."""
    if not isinstance(table, dict):
        raise UsageError(f"{where} has {', '.join(keys)}; it is not {table!r}")
    for key in table:
        if key not in keys:
            raise UsageError(
                f"{where} has {', '.join(keys)}, and no {key!r}; {did_you_mean(key, keys)}"
            )
    return table


def read(
    path: Path, parse: Callable[[str], Any] = parse_toml, what: str = "a TOML file that can be read"
) -> Any:
    """What the file says."""
    try:
        return parse(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not {what}: {error}") from None
