"""Settings of a question from ``--preset`` and the options. A refusal says what is allowed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.lab.module import COMMON, Question, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ABOVE_0 = (lambda value: value > 0, "more than 0")
CHECKS: Mapping[Any, Tuple[Callable[[Any], Any], str]] = {
    int: ABOVE_0,
    float: ABOVE_0,
    list: (lambda ns: ns and all(type(n) in (int, float) and n > 0 for n in ns), "one or more numbers above 0"),
    "devices": (
        lambda ns: ns and all(type(n) is int and n > 0 for n in ns) and len({*ns}) == len(ns),
        "different numbers of at least 1, as in 1,2",
    ),
    "kind": (lambda kind: kind in ("auto", "cpu", "gpu"), "auto, cpu or gpu"),
    "seed": (lambda seed: 0 <= seed < 2**32, f"from 0 to {2**32 - 1}"),
}
"""Of a setting of that name, else of that type: a test of the value, and what is allowed, in words."""


def resolve(questions: Sequence[Question], preset: str, options: Mapping[str, Any]) -> Tuple[str, Dict[str, Settings]]:
    """The preset's name, and settings of each question, by name. ``options``: from the command line; each must apply to
    at least one of the questions. Raises a UsageError about an unknown preset, question or setting, a value of another
    type, or an option without effect."""
    known = [question.name for question in questions]
    base, tables = (preset, {}) if preset in COMMON else ("full", _read(Path(preset), known))
    resolved = {}
    for question in questions:
        settings = Settings(question.preset(base))
        chosen = {key: value for key, value in options.items() if key in settings}
        for given in (tables.get(question.name, {}), chosen):
            settings.update({key: _checked(question, key, value) for key, value in given.items()})
        resolved[question.name] = settings
    if idle := [key for key in options if not any(key in settings for settings in resolved.values())]:
        option = f"--{idle[0].replace('_', '-')} has no effect on {', '.join(known)}"
        raise UsageError(f"{option}: leave it out, or name an experiment that uses it")
    return Path(preset).stem, resolved


def _read(path: Path, known: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    near = did_you_mean(path, [*COMMON, "a TOML file"])
    if not path.is_file():
        raise UsageError(f"--preset {path}: there is no such preset or file; {near}")
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--preset {path}: not a TOML file that can be read: {error}") from error
    if stray := [key for key, table in tables.items() if not isinstance(table, dict)]:
        raise UsageError(f"--preset {path}: {stray[0]!r} stands outside a table; write it under [experiment-name]")
    if not set(tables) & set(known):
        others = ", ".join(tables) or "nothing"
        raise UsageError(f"--preset {path} has no table for {', '.join(known)}, only for {others}")
    return tables


def _checked(question: Question, key: str, value: Any) -> Any:
    full, quick = question.preset("full"), question.preset("quick")
    if key not in full:
        raise UsageError(f"{question.name} has no setting {key!r}; it has: {', '.join(full)}")
    wanted: Any = next((type(preset[key]) for preset in (full, quick) if preset.get(key) is not None), str)
    if wanted is float and type(value) is int:
        value = float(value)
    of_type = (lambda value: type(value) is wanted, f"of type {wanted.__name__}")
    for check in (of_type, CHECKS.get(key, CHECKS.get(wanted)), question.CHECKS.get(key)):
        if check and not check[0](value):
            raise UsageError(f"{question.name}: {key} must be {check[1]}, not {value!r}")
    return value
