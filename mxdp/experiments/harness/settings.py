"""Settings of an experiment from ``--preset`` and the options. A refusal says what is allowed."""

from __future__ import annotations

import sys
from math import inf
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Sequence, Tuple

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.harness.claims import LOOK_ERRORS
from mxdp.experiments.harness.experiment import Experiment, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Check = Tuple[Callable[[Any], Any], str]
BUILT_IN: Dict[str, Dict[str, Any]] = {
    "quick": dict(repeats=6, rounds=3, budget=0.0, looks=3, patience=60.0, again=False),
    "full": dict(repeats=6, rounds=3, budget=100.0, looks=1, patience=300.0, again=False),
}
"""The presets, and the settings that every experiment has (see :mod:`.measurement`)."""


ABOVE_0 = (lambda value: value > 0, "more than 0")
CHECKS: Mapping[Any, Check] = {
    int: ABOVE_0,
    float: ABOVE_0,
    list: (lambda own: own and all(type(n) in (int, float) and n > 0 for n in own), "one or more numbers above 0"),
    "devices": (
        lambda own: own and all(type(n) is int and n > 0 for n in own) and len(set(own)) == len(own),
        "different numbers of at least 1, as in 1,2",
    ),
    "looks": (lambda looks: 0 < looks <= len(LOOK_ERRORS), f"from 1 to {len(LOOK_ERRORS)}"),
    "seed": (lambda seed: 0 <= seed < 2**32, f"from 0 to {2**32 - 1}"),
    "budget": (lambda budget: 0 <= budget < inf, "0 (no plan) or more seconds"),
}
"""Of a setting of that name, else of that type: a test of the value, and what is allowed, in words."""


def resolve(
    experiments: Sequence[Experiment], preset: str, options: Mapping[str, Any]
) -> Tuple[str, Dict[str, Settings]]:
    """Settings of each experiment, by name, and the preset's name.

    ``options``: from the command line; each must apply to at least one of the experiments.

    Raises:
        UsageError: an unknown preset, experiment or setting, a value of another type, or an option without effect.
    """
    known = [experiment.name for experiment in experiments]
    base = preset if preset in BUILT_IN else "full"
    tables = {} if preset in BUILT_IN else _read(Path(preset), known)
    resolved = {}
    for experiment in experiments:
        settings = {**experiment.presets[base], **BUILT_IN[base], **experiment.presets[base]}
        chosen = {key: value for key, value in options.items() if key in settings}
        for given in (tables.get(experiment.name, {}), chosen):
            settings.update({key: _checked(experiment, key, value) for key, value in given.items()})
        resolved[experiment.name] = settings
        if "rounds" in options:
            settings.update(looks=1, budget=0.0)  # a number that somebody has fixed
    for key in options:
        if not any(key in settings for settings in resolved.values()):
            raise UsageError(
                f"--{key.replace('_', '-')} has no effect on {', '.join(known)}: leave it out, or name an experiment "
                "that uses it"
            )
    return Path(preset).stem, resolved


def _read(path: Path, known: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
    if not path.is_file():
        raise UsageError(
            f"--preset {path}: there is no such preset or file; {did_you_mean(path, [*BUILT_IN, 'a TOML file'])}"
        )
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"--preset {path}: not a TOML file that can be read: {error}") from error
    stray = [key for key, table in tables.items() if not isinstance(table, dict)]
    if stray:
        raise UsageError(f"--preset {path}: {stray[0]!r} stands outside a table; write it under [experiment-name]")
    if not set(tables) & set(known):
        raise UsageError(
            f"--preset {path} has no table for {', '.join(known)}, only for {', '.join(tables) or 'nothing'}"
        )
    return tables


def _checked(experiment: Experiment, key: str, value: Any) -> Any:
    usual = {**experiment.presets["full"], **BUILT_IN["full"]}
    if key not in usual:
        raise UsageError(f"{experiment.name} has no setting {key!r}; it has: {', '.join(usual)}")
    examples = [preset[key] for preset in (usual, *experiment.presets.values()) if preset.get(key) is not None]
    wanted: Any = type(examples[0]) if examples else str
    if wanted is float and type(value) is int:
        value = float(value)
    of_type = (lambda value: type(value) is wanted, f"of type {wanted.__name__}")
    for check in (of_type, CHECKS.get(key, CHECKS.get(wanted)), experiment.checks.get(key)):
        if check and not check[0](value):
            raise UsageError(f"{experiment.name}: {key} must be {check[1]}, not {value!r}")
    return value
