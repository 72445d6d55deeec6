"""Runs experiments: one child process a case, the oracle first, alternating rounds, one JSON file at the end.

For two cases A and B and three rounds, each case in a child of its own::

    A: load, oracle, warm up | wait               | round 1         | round 2         | round 3
    B:                  wait | load, oracle, warm |         round 1 |         round 2 |         round 3

Only one case works at a time, and a slow drift of a shared machine affects all of them alike. Cases that are
``together`` alternate in the same way, in one child.
"""

from __future__ import annotations

import datetime
import math
import time
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence

from mxdp import process
from mxdp.errors import MxdpError, UsageError, plural
from mxdp.experiments.harness import provenance, results
from mxdp.experiments.harness.children import ChildFailure, ChildGone, Children, Configuration
from mxdp.experiments.harness.experiment import Case, Experiment, Result, Row, Settings, Verdict

Progress = Callable[[str, int, int], Any]
"""Called as (what is being done, steps done, steps in all)."""


class Failure(NamedTuple):
    """Why a case could not be measured to its end (with an empty label: all cases); ``status`` is a result's."""

    status: str
    reason: str
    label: str = ""


class Measurement:
    """One experiment being run: what has been measured so far."""

    def __init__(self, experiment: Experiment, settings: Settings, folder: Path, progress: Progress) -> None:
        self.experiment, self.settings, self.folder = experiment, settings, folder
        self.prediction = ""
        self.cases: List[Case] = []
        self.failures: List[Failure] = []
        self.oracle: Dict[str, Any] = {"checked": 0, "wrong": 0, "text": experiment.compared}
        self.compared: Dict[str, Dict[str, int]] = {}
        self.ready: Dict[str, Dict[str, Any]] = {}
        self.shared: Dict[str, Any] = {}
        self.samples: Dict[str, List[float]] = {}
        self.rounds: Dict[str, Dict[str, List[Any]]] = {}
        self.last: Dict[str, Dict[str, Any]] = {}
        self._progress = progress
        self._done = 0

    def measure(self) -> None:
        """Oracle and warm-up of every case, then alternating rounds. A case that fails is left out of what follows."""
        self.prediction = self.experiment.predict(self.settings, process.cores())
        self.cases = self.experiment.cases(self.settings)
        missing = [name for name in self.experiment.needs if find_spec(name) is None]
        if missing:
            self.fail("skipped", f"{missing[0]} is not installed: {self.experiment.needs[missing[0]]}")
            return
        slugs = results.slugs(case.label for case in self.cases)
        if len(slugs) < len(self.cases):
            raise ValueError("two of its cases have the same label; each needs its own")
        self.folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            children = Children(self.experiment, self.settings, self.folder, stack)
            running: List[Configuration] = []
            for case in self.cases:
                try:
                    configuration = children.configuration(
                        replace(case, settings={**case.settings, **self.shared}), slugs[case.label]
                    )
                except Exception as error:  # the system may have no process, no file or no room left
                    self.fail("failed", f"its process could not be started: {_described(error)}", case.label)
                    continue
                if self._attempt(self._prepare, configuration):
                    running.append(configuration)
            for number in range(1, self.settings["rounds"] + 1):
                running = [each for each in running if self._attempt(self._round, each, number)]
            for configuration in running:
                if self.ready[configuration.case.label]["records"]:
                    self._attempt(self._record, configuration)

    def _attempt(self, action: Callable[..., None], configuration: Configuration, *more: Any) -> bool:
        try:
            configuration.check()
            action(configuration, *more)
        except Exception as error:
            # After an error of our own, an answer of the child may still be under way, so it can't be asked again.
            failure = error if isinstance(error, ChildFailure) else ChildGone("failed", _described(error))
            configuration.give_up(failure)
            self.fail(failure.status, str(failure), configuration.case.label)
            return False
        return True

    def fail(self, status: str, reason: str, label: str = "") -> None:
        """Note why a case (or all of them) could not be measured to its end."""
        self.failures.append(Failure(status, reason, label))

    def _step(self, doing: str) -> None:
        records = sum(ready["records"] for ready in self.ready.values())
        self._progress(doing, self._done, len(self.cases) * (2 + self.settings["rounds"]) + records)
        self._done += 1

    def _prepare(self, configuration: Configuration) -> None:
        label = configuration.case.label
        self._step(f"{label}: comparing with the serial run")
        own = self.compared[label] = {"checked": 0, "wrong": 0}
        for answer in configuration.ask("oracle", "comparing with the serial run"):
            for counts in (own, self.oracle):
                counts.update({name: counts[name] + answer[name] for name in own})
            if not answer["checked"]:
                raise ChildFailure("failed", "nothing was compared with the serial run, so it was not timed")
            if answer["wrong"]:
                raise ChildFailure(
                    "failed",
                    f"{answer['wrong']:,} of {answer['checked']:,} numbers differ from the serial run "
                    f"({self.oracle['text']}), so it was not timed",
                )
        self._step(f"{label}: warming up")
        answers = configuration.ask("ready", "setting up and warming up")
        self.shared.update(answers[0]["shared"])
        self.ready[label] = {
            **answers[0],
            "devices": [name for answer in answers for name in answer["devices"]],
        }

    def _round(self, configuration: Configuration, number: int) -> None:
        label = configuration.case.label
        self._step(f"{label}: round {number} of {self.settings['rounds']}")
        answers = configuration.ask("round", f"measuring round {number}")
        seconds = [answer["seconds"] for answer in answers]
        if not all(0 <= each < math.inf for each in seconds):
            raise ChildFailure("failed", f"round {number} took {seconds} seconds; a time is finite and not negative")
        self.samples.setdefault(label, []).append(max(seconds))
        metrics, last = answers[0]["metrics"], answers[0]["last"]
        self.last[label] = last
        kept = self.rounds.setdefault(label, {})
        for name, value in {**metrics, **last}.items():
            if name in metrics or isinstance(value, (int, float)):
                kept.setdefault(name, [None] * (number - 1)).append(value)

    def _record(self, configuration: Configuration) -> None:
        label = configuration.case.label
        self._step(f"{label}: recording")
        self.last[label].update(configuration.ask("record", "recording one more run")[0])

    def rows(self, reference: bool) -> List[Row]:
        """The rows (or the references) of the cases that have been measured."""
        return [self._row(case) for case in self.cases if case.reference == reference and case.label in self.samples]

    def _row(self, case: Case) -> Row:
        ready, rounds, last = self.ready[case.label], self.rounds[case.label], self.last[case.label]
        metrics = {name: results.combined(values) for name, values in rounds.items()}
        numbers = {name: own for name, own in rounds.items() if all(isinstance(each, (int, float)) for each in own)}
        return {
            "label": case.label,
            "case": {"devices": ready["devices"], **case.settings, **ready["shared"], **ready["case"]},
            "oracle": self.compared[case.label],
            "seconds": results.summary(self.samples[case.label]),
            "metrics": {**metrics, **last},
            "rounds": {name: list(values) for name, values in numbers.items()},
        }

    def complete(self) -> bool:
        """Has every case been measured in every round?"""
        done = [len(self.samples.get(case.label, ())) == self.settings["rounds"] for case in self.cases]
        return bool(done) and all(done)

    def environment(self) -> Dict[str, Any]:
        """The machine, and the MXNet variables of the first case that started."""
        first = next(iter(self.ready.values()), {})
        variables = first.get("variables", {})
        threads = variables.get("OMP_NUM_THREADS", "")
        gpus = sorted({name for ready in self.ready.values() for name in ready["devices"] if name.startswith("gpu")})
        return {
            **provenance.describe(),
            "threads": int(threads) if threads.isdigit() else None,
            "gpus": gpus,
            "variables": variables,
        }


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
        measurement.fail("failed", _described(error))
    result: Result = results.plain(
        {
            "schema_version": results.SCHEMA_VERSION,
            "experiment": experiment.name,
            **words,
            "prediction": measurement.prediction,
            "preset": preset,
            "settings": settings,
            "environment": measurement.environment(),
            "started": started.isoformat(timespec="seconds"),
            "elapsed_seconds": round(time.monotonic() - clock, 3),
            "oracle": measurement.oracle,
            **_judged(experiment, measurement),
        }
    )
    wrong = results.problem(result)
    if wrong:
        measurement.fail("failed", f"what the experiment has added to its rows is no result: {wrong}")
        result.update(results.plain({**_measured(measurement), **_ending(measurement)}))
    try:
        results.write(result, folder)
    except MxdpError as error:
        measurement.fail("failed", str(error))
        result.update(_ending(measurement))
    if interrupt:
        raise interrupt
    return result


def _measured(measurement: Measurement) -> Dict[str, Any]:
    """The rows as they were measured, and no verdict."""
    return {
        "rows": measurement.rows(reference=False),
        "references": measurement.rows(reference=True),
        "verdict": vars(Verdict(None, "No verdict: not every case was measured.")),
    }


def _judged(experiment: Experiment, measurement: Measurement) -> Dict[str, Any]:
    """The completed rows; and the experiment's own verdict, where all its cases were measured."""
    found = _measured(measurement)
    parts = found["rows"], found["references"], measurement.settings
    try:
        experiment.finish(*parts)
        if measurement.complete():
            found["verdict"] = vars(experiment.verdict(*parts))
    except Exception as error:  # a defect of the experiment must not lose hours of measurements
        measurement.fail("failed", f"the verdict could not be found: {_described(error)}")
    return {**found, **_ending(measurement)}


def _ending(measurement: Measurement) -> Dict[str, Any]:
    return {"status": _status(measurement.failures), "error": _error(measurement.failures)}


def _described(error: Exception) -> str:
    return str(error) if isinstance(error, MxdpError) else f"{type(error).__name__}: {error}"


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
