"""Runs an experiment (:mod:`.measurement`) and writes one JSON file, whatever happens."""

from __future__ import annotations

import datetime
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence

from mxdp.errors import MxdpError, UsageError, described, plural
from mxdp.experiments.harness import provenance, results, schema
from mxdp.experiments.harness.experiment import Experiment, Result, Settings
from mxdp.experiments.harness.measurement import Failure, Measurement, Progress


def run(
    experiment: Experiment, preset: str, settings: Settings, folder: Path, progress: Optional[Progress] = None
) -> Result:
    """Run one experiment and write ``folder/<name>.json``, whatever happens; returns what was written.

    A failure is part of the result, not an exception, even if the file can't be written. A ``KeyboardInterrupt`` stops
    the children, writes what was measured so far, and is raised again.

    Raises:
        UsageError: the experiment refuses its settings.
    """
    # First, because a defect of the experiment could make it fail.
    words = {key: getattr(experiment, key) for key in ("question", "source", "how_to_read")}
    started, clock = datetime.datetime.now().astimezone(), time.monotonic()
    measurement = Measurement(experiment, settings, folder, progress or (lambda doing, done, steps: None))
    interrupt: Optional[KeyboardInterrupt] = None
    try:
        measurement.measure()
    except KeyboardInterrupt as error:
        interrupt = error
        measurement.fail("failed", "interrupted by the user")
    except UsageError:
        raise
    except Exception as error:  # a defect of the experiment or of ours must not lose what was measured
        measurement.fail("failed", described(error))
    result: Result = results.plain(
        {
            "schema_version": schema.SCHEMA_VERSION,
            "experiment": experiment.name,
            **words,
            "prediction": measurement.prediction,
            "preset": preset,
            "settings": settings,
            "environment": provenance.measured(list(measurement.ready.values())),
            "sources": provenance.sources(measurement.ready.values(), started.timestamp()),
            "started": started.isoformat(timespec="seconds"),
            "elapsed_seconds": round(time.monotonic() - clock, 3),
            "oracle": measurement.oracle,
            "looks": measurement.looks,
            "plan": measurement.plan,
            "disturbance": measurement.watch.rounds,
            **_judged(measurement),
        }
    )
    wrong = schema.problem(result)
    if wrong:
        measurement.fail("failed", f"what the experiment has added to its rows is no result: {wrong}")
        result.update(results.plain({**measurement.unjudged(), **_ending(measurement)}))
    try:
        results.write(result, folder)
    except MxdpError as error:
        measurement.fail("failed", str(error))
        result.update(_ending(measurement))
    if interrupt:
        raise interrupt
    return results.loaded(result)


def due(experiment: Experiment, preset: str, folder: Path) -> str:
    """Why ``folder`` has no result of ``experiment`` with this preset by today's code, in words; empty if it has one.

    Raises:
        MxdpError: its file can't be read or is damaged.
    """
    path = folder / f"{experiment.name}.json"
    if not path.exists():
        return "not measured yet"
    result = results.read(path)
    if result["preset"] != preset:
        return f"measured with the preset {result['preset']}"
    if result["status"] != "ok":
        return f"its result is {result['status']}"
    changed = provenance.changes(result, provenance.versions())
    more = f" and {plural(len(changed) - 1, 'more')}" if changed[1:] else ""
    return f"measured before a change of {changed[0]}{more}" if changed else ""


def _judged(measurement: Measurement) -> Dict[str, Any]:
    """The completed rows, and the verdict; without the experiment's own numbers where it can't find them."""
    try:
        found = measurement.judged()
    except Exception as error:  # a defect of the experiment must not lose hours of measurements
        measurement.fail("failed", f"the answer could not be found: {described(error)}")
        found = measurement.unjudged()
    return {**found, **_ending(measurement)}


def _ending(measurement: Measurement) -> Dict[str, Any]:
    return {"status": _status(measurement.failures), "error": _error(measurement.failures)}


def _status(failures: Sequence[Failure]) -> str:
    if not failures:
        return "ok"
    statuses = {failure.status for failure in failures}
    return statuses.pop() if len(statuses) == 1 else "failed"


def _error(failures: Sequence[Failure]) -> Optional[str]:
    """Each reason once, with the first case that gave it and the number of the others."""
    labels: Dict[str, List[str]] = {}
    for failure in failures:
        labels.setdefault(failure.reason, []).append(failure.label)
    said = []
    for reason, (first, *others) in labels.items():
        more = f" (and {plural(len(others), 'more case')})" if others else ""
        said.append(f"{first}{more}: {reason}" if first else reason)
    return "; ".join(said) or None
