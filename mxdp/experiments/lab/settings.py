"""Settings of a question from ``--preset`` and the options. A refusal says what is allowed."""

from __future__ import annotations

import sys
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.lab.module import COMMON, Question, Settings, changed

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

parse_toml: Callable[[str], Dict[str, Any]] = tomllib.loads
Check = Tuple[Callable[[Any], Any], str]


def _whole(values: Sequence[Any]) -> bool:
    return bool(values) and all(type(n) is int and n > 0 for n in values)


CHECKS: Mapping[Any, Check] = {
    int: (lambda value: value > 0, "more than 0"),
    float: (lambda value: value > 0, "more than 0"),
    list: (_whole, "one or more whole numbers above 0"),
    (list, float): (
        lambda values: values and all(type(n) in (int, float) and n > 0 for n in values),
        "one or more numbers above 0",
    ),
    "devices": (
        lambda values: _whole(values) and len(set(values)) == len(values),
        "different numbers of at least 1, as in 1,2",
    ),
    "kind": (lambda kind: kind in ("auto", "cpu", "gpu"), "auto, cpu or gpu"),
    "seed": (lambda seed: 0 <= seed < 2**32, f"from 0 to {2**32 - 1}"),
}
"""What a setting of that name, or else of that type, must meet: a test of the value, and what is allowed, in words.
The type ``list, float`` is a list with fractions in a preset."""


def resolve(
    questions: Sequence[Question], preset: str, options: Mapping[str, Any]
) -> Tuple[str, Dict[str, Settings]]:
    """The preset's name, and settings of each question, by name. ``options``: from the command line. Raises a
    UsageError about an unknown preset, question or setting, a wrong value, or an option that no question has."""
    resolved: Dict[str, Settings] = {}
    base = preset
    tables: Mapping[str, Any] = {}
    if preset not in COMMON:
        base = "full"
        tables = _read(Path(preset), [question.name for question in questions])
    for question in questions:
        s = Settings(question.preset(base))
        own = {key: value for key, value in options.items() if key in s}
        for given in (tables.get(question.name, {}), own):
            if "minutes" in given and "processes" in given:
                raise UsageError(f"{question.name}: give minutes or processes, not both")
            checked = {key: _checked(question, key, value) for key, value in given.items()}
            s.update(changed(s, checked))
        resolved[question.name] = s
    for key in options:
        if not any(key in s for s in resolved.values()):
            option = f"--{key.replace('_', '-')} has no effect on {', '.join(resolved)}"
            raise UsageError(f"{option}: leave it out, or name an experiment that uses it")
    return Path(preset).stem, resolved


def _read(path: Path, known: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    if not path.is_file():
        near = did_you_mean(path, [*COMMON, "a TOML file"])
        raise UsageError(f"--preset {path}: there is no such preset or file; {near}")
    try:
        tables = parse_toml(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # no text, no TOML, or nested too deeply
        raise UsageError(f"--preset {path}: not a TOML file that can be read: {error}") from error
    if stray := [key for key, table in tables.items() if not isinstance(table, dict)]:
        raise UsageError(
            f"--preset {path}: {stray[0]!r} stands outside a table; write it under [experiment-name]"
        )
    if not set(tables) & set(known):
        others = ", ".join(tables) or "nothing"
        raise UsageError(f"--preset {path} has no table for {', '.join(known)}, only for {others}")
    return tables


def _checked(question: Question, key: str, value: Any) -> Any:
    presets = [question.preset("full"), question.preset("quick"), *COMMON.values()]
    if key not in presets[0]:
        raise UsageError(f"{question.name} has no setting {key!r}; it has: {', '.join(presets[0])}")
    usual = [preset[key] for preset in presets if preset.get(key) is not None]
    wanted: Any = type(usual[0]) if usual else str
    if wanted is float and type(value) is int:
        value = float(value)
    kind = wanted
    if wanted is list and float in map(type, chain(*usual)):
        kind = (list, float)
    of_type: Check = (lambda value: type(value) is wanted, f"of type {wanted.__name__}")
    usual_check = CHECKS.get(key, CHECKS.get(kind))
    for check in (of_type, usual_check, question.CHECKS.get(key)):
        if check and not check[0](value):
            raise UsageError(f"{question.name}: {key} must be {check[1]}, not {value!r}")
    return value
