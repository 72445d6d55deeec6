"""Settings of an experiment from ``--preset`` and the options. A refusal says what is allowed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Dict, Mapping, Sequence, Tuple

from mxdp.errors import UsageError, did_you_mean
from mxdp.experiments.harness.claims import LOOK_ERRORS
from mxdp.experiments.harness.experiment import Experiment, Settings

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BUILT_IN: Dict[str, Dict[str, Any]] = {
    "quick": dict(looks=3, patience=60.0, repeats=1, again=False),
    "full": dict(looks=3, patience=300.0, repeats=6, again=True),
}
"""The presets, and the settings that every experiment has (see :mod:`.measurement`)."""


def resolve(
    experiments: Sequence[Experiment], preset: str, options: Mapping[str, Any]
) -> Tuple[str, Dict[str, Settings]]:
    """Settings of each experiment, by name, and the preset's name.

    ``options``: from the command line; each must apply to at least one of the experiments.

    Raises:
        UsageError: an unknown preset, experiment or setting, a value of another type, or an option without effect.
    """
    if preset in BUILT_IN:
        overrides: Mapping[str, Mapping[str, Any]] = {}
        base, name = preset, preset
    else:
        overrides, name = _read(Path(preset), [experiment.name for experiment in experiments]), Path(preset).stem
        base = "full"
    resolved = {}
    for experiment in experiments:
        settings = {**experiment.presets[base], **BUILT_IN[base], **experiment.presets[base]}
        for key, value in overrides.get(experiment.name, {}).items():
            settings[key] = _checked(experiment, key, value)
        for key, value in options.items():
            if key in settings:
                settings[key] = _checked(experiment, key, value)
        resolved[experiment.name] = settings
        if "rounds" in options:
            settings["looks"] = 1  # a number that somebody has fixed
    for key in options:
        if not any(key in settings for settings in resolved.values()):
            names = ", ".join(resolved)
            raise UsageError(
                f"--{key.replace('_', '-')} has no effect on {names}: leave it out, or name an experiment that uses it"
            )
    return name, resolved


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
    if type(value) is not wanted:
        raise UsageError(f"{experiment.name}: {key} is of type {wanted.__name__}, not {value!r}")
    if key == "devices" and (
        not value or any(type(n) is not int or n < 1 for n in value) or len(set(value)) < len(value)
    ):
        raise UsageError(
            f"{experiment.name}: devices must be different numbers of at least 1, as in 1,2; not {value!r}"
        )
    if wanted in (int, float) and key != "seed" and not value > 0:
        raise UsageError(f"{experiment.name}: {key} must be more than 0, not {value!r}")
    if wanted is list and not (value and all(type(each) in (int, float) and each > 0 for each in value)):
        raise UsageError(f"{experiment.name}: {key} must be one or more numbers above 0, not {value!r}")
    checks = {"looks": (lambda value: value <= len(LOOK_ERRORS), f"at most {len(LOOK_ERRORS)}"), **experiment.checks}
    passes, allowed = checks.get(key, (lambda value: True, ""))
    if not passes(value):
        raise UsageError(f"{experiment.name}: {key} must be {allowed}, not {value!r}")
    return value
