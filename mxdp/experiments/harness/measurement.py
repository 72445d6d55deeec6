"""One experiment being measured: oracle, warm-up, alternating rounds, in processes that are started anew.

For two cases A and B and three rounds, each case in a child of its own::

    A: load | oracle, warm up | wait            | round 1         | round 2         | round 3
    B: load |            wait | oracle, warm up |         round 1 |         round 2 |         round 3

Only one case works at a time, and a slow drift of a shared machine affects all of them alike. Cases that are
``together`` alternate in the same way, in one child. Then all children end, and new ones are started: how processes
differ decides more than how rounds do.

Some settings are the harness's own. There are ``repeats`` processes of ``rounds`` rounds. With a ``budget`` of seconds
these are a pilot, from which :mod:`.allocation` plans more processes, and the rounds of these. Then the claims are
judged, and where one is open, as many processes again are measured: there are at most ``looks`` such looks, and none
after ``patience`` seconds. With ``again``, the first case is measured as two cases, which shows what differences are
worth.
"""

from __future__ import annotations

import math
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from mxdp import process
from mxdp.errors import described
from mxdp.experiments.harness import allocation, claims, disturbance, results
from mxdp.experiments.harness.allocation import Allocation
from mxdp.experiments.harness.children import ChildFailure, ChildGone, Children, Configuration
from mxdp.experiments.harness.experiment import Case, Experiment, Settings, missing
from mxdp.experiments.harness.rows import CONFIDENCE, Row

NO_ANSWER = "No answer: not every case was measured."
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
        self.skipped: Dict[str, str] = {}  # by label: what the case lacks, and what to do
        self.oracle: Dict[str, Any] = {"checked": 0, "wrong": 0, "text": experiment.compared}
        self.compared: Dict[str, Dict[str, int]] = {}
        self.ready: Dict[str, Dict[str, Any]] = {}
        self.shared: Dict[str, Any] = {}
        self.samples: Dict[str, List[float]] = {}
        self.rounds: Dict[str, Dict[str, List[Any]]] = {}
        self.last: Dict[str, Dict[str, Any]] = {}
        self.looks = 1
        self.watch = disturbance.Watch()
        self.plan: Dict[str, Any] = {}
        self.repeat = 0
        """How many times all children were started anew."""
        self._again: List[Case] = []
        self._planned: List[int] = []
        self._done = 0
        self._starts: List[float] = []
        self._rounds: List[float] = []
        self._progress = progress

    def measure(self) -> None:
        """Oracle and warm-up of every case, then alternating rounds. A case that fails is left out of what follows."""
        self.prediction = self.experiment.predict(self.settings, process.cores())
        self.cases = self.experiment.cases(self.settings)
        lacking = missing(self.experiment.needs)
        if lacking:
            self.fail("skipped", lacking)
            return
        for case, why in [(case, missing(case.needs)) for case in self.cases]:
            if why:
                self.fail("skipped", why, case.label)
        if self.settings.get("again") and self.cases:
            self._again = [replace(self.cases[0], label=f"{self.cases[0].label}, again")]
        slugs = results.slugs(case.label for case in self.cases + self._again)
        if len(slugs) < len(self.cases + self._again):
            raise ValueError("two of its cases have the same label; each needs its own")
        self.folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="mxdp-") as kept:
            first = Allocation(self.settings.get("repeats", 1), self.settings["rounds"])
            self._measure(first, slugs, Path(kept))
            self._measure(self._plan(first), slugs, Path(kept))
            while self._another_look():
                self._measure(first, slugs, Path(kept))
        if not self.cases:
            self.fail("skipped", next(iter(self.skipped.values()), "it has no cases"))

    def _measure(self, more: Allocation, slugs: Dict[str, str], kept: Path) -> None:
        self._planned += [more.rounds] * more.processes
        for _ in range(more.processes):
            self._one_process(more.rounds, slugs, kept)
            self.repeat += 1

    def _one_process(self, rounds: int, slugs: Dict[str, str], kept: Path) -> None:
        """All cases in children started anew, in which they take turns."""
        lost = {failure.label for failure in self.failures}
        cases = [case for case in self.cases + self._again if case.label not in lost]
        begun, compared = time.monotonic(), 0.0
        with ExitStack() as stack:
            children = Children(self.experiment, self.settings, self.folder, kept, stack)
            started: List[Configuration] = []
            for case in cases:
                try:
                    started.append(children.configuration(case, slugs[case.label]))
                except Exception as error:  # the system may have no process, no file or no room left
                    self.fail("failed", f"its process could not be started: {described(error)}", case.label)
            # They load MXNet at the same time; what is measured when they are set up is measured alone.
            started = [each for each in started if self._attempt(lambda own: own.load(), each)]
            running = []
            for each in started:
                own = {**each.case.settings, **self.shared, "repeat": self.repeat}
                each.case, at = replace(each.case, settings=own), time.monotonic()
                well = self.repeat or self._attempt(self._compare, each)
                compared += time.monotonic() - at
                if well and self._attempt(self._prepare, each):
                    running.append(each)
            self._starts.append(time.monotonic() - begun - compared)
            for _ in range(rounds if running else 0):
                at = time.monotonic()
                self.watch.restart()
                running = [each for each in running if self._attempt(self._round, each)]
                self.watch.round()
                self._rounds.append(time.monotonic() - at)
            for each in [] if self.repeat else running:
                if self.ready[each.case.label]["records"]:
                    self._attempt(self._record, each)
            children.hang_up()

    def _plan(self, pilot: Allocation) -> Allocation:
        """How many processes there are to be, from what the ``pilot`` found; the plan is part of the result."""
        found = self._judged_so_far()
        rows = found["rows"] + found["references"] if found else []
        names = [name for name, claim in self.experiment.claims.items() if not claim.exact]
        budget = self.settings.get("budget", 0.0) if found else 0.0
        self.plan = allocation.plan(rows, names, pilot, self._starts, self._rounds, budget)
        return Allocation(self.plan["processes"] - pilot.processes, self.plan["rounds"])

    def _another_look(self) -> bool:
        """Is a claim open, and is there time for as many processes again?"""
        impatient = sum(self._starts) + sum(self._rounds) > self.settings.get("patience", math.inf)
        found = None if impatient or self.looks >= self.settings.get("looks", 1) else self._judged_so_far()
        more = found is not None and claims.is_open(found["verdict"]["claims"])
        self.looks += more
        return more

    def _judged_so_far(self) -> Optional[Dict[str, Any]]:
        """:meth:`judged`; None if a case has failed, or the experiment has a defect, which is named at the end."""
        try:
            return self.judged() if self.complete() else None
        except Exception:
            return None

    def _attempt(self, action: Callable[..., None], configuration: Configuration, *more: Any) -> bool:
        try:
            configuration.check()
            action(configuration, *more)
        except Exception as error:
            # After an error of our own, an answer of the child may still be under way, so it can't be asked again.
            failure = error if isinstance(error, ChildFailure) else ChildGone("failed", described(error))
            configuration.give_up(failure)
            self.fail(failure.status, str(failure), configuration.case.label)
            return False
        return True

    def fail(self, status: str, reason: str, label: str = "") -> None:
        """Note why a case (or all of them) could not be measured to its end. A skipped case is as if it had not been
        there; the answer says so."""
        if status != "skipped" or not label:
            self.failures.append(Failure(status, reason, label))
            return
        self.skipped.update({case.label: reason for case in self.cases if case.label == label})
        self.cases = [case for case in self.cases if case.label != label]
        self._again = [case for case in self._again if case.label != label]

    def _step(self, doing: str) -> None:
        records = sum(ready["records"] for ready in self.ready.values())
        steps = len(self.cases + self._again) * (1 + len(self._planned) + sum(self._planned)) + records
        self._progress(doing, self._done, steps)
        self._done += 1

    def _prepare(self, configuration: Configuration) -> None:
        label = configuration.case.label
        self._step(f"{label}: warming up")
        answers = configuration.ask("ready", "setting up and warming up")
        self.shared.update(answers[0]["shared"])
        self.ready[label] = {
            **answers[0],
            "devices": [name for answer in answers for name in answer["devices"]],
        }

    def _compare(self, configuration: Configuration) -> None:
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

    def _round(self, configuration: Configuration) -> None:
        label = configuration.case.label
        number = len(self.samples.get(label, ())) + 1
        self._step(f"{label}: round {number} of {sum(self._planned)}")
        answers = configuration.ask("round", f"measuring round {number}")
        seconds = [answer["seconds"] for answer in answers]
        if not all(0 <= each < math.inf for each in seconds):
            raise ChildFailure("failed", f"round {number} took {seconds} seconds; a time is finite and not negative")
        self.samples.setdefault(label, []).append(max(seconds))
        metrics, last = answers[0]["metrics"], answers[0]["last"]
        self.last.setdefault(label, {}).update(last)
        kept = self.rounds.setdefault(label, {})
        kept.setdefault("repeat", []).append(self.repeat)
        for name, value in {**metrics, **last}.items():
            if name in metrics or isinstance(value, (int, float)):
                kept.setdefault(name, [None] * (number - 1)).append(value)

    def _record(self, configuration: Configuration) -> None:
        self._step(f"{configuration.case.label}: recording")
        self.last[configuration.case.label].update(configuration.ask("record", "recording one more run")[0])

    def rows(self, reference: bool) -> List[Row]:
        """The rows (or the references) of the cases that have been measured."""
        return [self._row(case) for case in self.cases if case.reference == reference and case.label in self.samples]

    def _row(self, case: Case) -> Row:
        ready, rounds, last = self.ready[case.label], self.rounds[case.label], self.last[case.label]
        metrics = {name: results.combined(values) for name, values in rounds.items() if name != "repeat"}
        numbers = {name: own for name, own in rounds.items() if all(isinstance(each, (int, float)) for each in own)}
        return Row(
            case.label,
            {"devices": ready["devices"], **case.settings, **ready["shared"], **ready["case"]},
            samples=list(self.samples[case.label]),
            metrics={**metrics, **last},
            rounds={name: list(values) for name, values in numbers.items()},
            oracle=self.compared[case.label],
            busy=disturbance.elsewhere(self.watch.rounds),
            confidence=CONFIDENCE if self.settings.get("looks", 1) == 1 else 1 - claims.LOOK_ERRORS[self.looks - 1],
        )

    def complete(self) -> bool:
        """Has every case been measured in every round?"""
        done = [len(self.samples.get(case.label, ())) == len(self._rounds) for case in self.cases]
        return bool(done and self._rounds) and all(done)

    def unjudged(self) -> Dict[str, Any]:
        """The rows as they were measured, and no answer."""
        verdict: Dict[str, Any] = {"holds": None, "text": NO_ANSWER, "claims": [], "busy": None, "noise": None}
        return {"rows": self.rows(reference=False), "references": self.rows(reference=True), "verdict": verdict}

    def judged(self) -> Dict[str, Any]:
        """The rows, the noise, the claims and the answer, for the JSON. What the experiment raises goes through."""
        found = self.unjudged()
        rows, references, verdict = found["rows"], found["references"], found["verdict"]
        self.experiment.finish(rows, references, self.settings)
        verdict.update(busy=disturbance.elsewhere(self.watch.rounds), noise=self._noise())
        if self.complete():
            reasons: Dict[str, List[str]] = {}
            for label, why in self.skipped.items():
                reasons.setdefault(why, []).append(label)
            skipped = [f"Skipped: {'; '.join(labels)} ({why})." for why, labels in reasons.items()]
            text = self.experiment.answer(rows, references, self.settings)
            explanation = self.experiment.explanation(rows, references, self.settings)
            verdict.update(text=text, explanation=explanation, skipped=skipped)
            verdict.update(claims.judge(self.experiment.claims, rows + references, verdict))
        return found

    def _noise(self) -> Optional[Dict[str, Any]]:
        """How the first case compares with itself, measured as two cases; None where there is no interval for it."""
        both = [case for case in [*self.cases[:1], *self._again] if case.label in self.samples]
        return claims.noise(*map(self._row, both)) if len(both) > 1 else None
