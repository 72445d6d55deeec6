"""Measures one question: starts its processes, hears of them, and writes one file, whatever happens.

For each process number, and each group of cases that may share a process, one process is started, as it would be by
hand: it reads an order, measures one round of each case, writes its answers and ends (:mod:`.child`). So cases take turns
inside a process, or else process by process, and what disturbs one number disturbs its neighbours, too.
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Any, Callable, Deque, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import psutil

from mxdp import process
from mxdp.errors import MxdpError, UsageError, described, plural
from mxdp.experiments.lab import provenance, ranks, result
from mxdp.experiments.lab.module import Case, Question, Settings, lacking
from mxdp.experiments.lab.told import told

BUSY = 0.1
"""A larger share of the processors' time that went elsewhere disturbs a measurement."""
Progress = Callable[[str, int, int, Optional[Dict[str, Any]]], Any]
"""Called as (what is being done, steps done, steps in all, what was measured so far or None)."""


class Failure(NamedTuple):
    """Why a case could not be measured to its end (with an empty label: all cases); ``status`` is a result's."""

    status: str
    reason: str
    label: str = ""


class Run:
    """One question being measured, from the code in ``root``: what has been measured so far."""

    def __init__(self, question: Question, preset: str, settings: Settings, root: Optional[Path] = None) -> None:
        self.question, self.preset, self.settings, self.root = question, preset, settings, root
        self.started, self._clock = datetime.datetime.now().astimezone(), time.monotonic()
        self.cases: List[Case] = []
        self.failures: List[Failure] = []
        self.skipped: Dict[str, str] = {}
        self.prediction = ""
        self.elsewhere: List[Optional[float]] = []
        self._shared: Dict[str, Any] = {}
        self._ready: Dict[str, Dict[str, Any]] = {}
        self._counts: Dict[str, List[int]] = {}
        self._values: Dict[str, List[Dict[str, Any]]] = {}
        self._timelines: Dict[str, Dict[str, Any]] = {}
        self._modules: set[str] = set()

    def begin(self) -> None:
        """Predict, and list the cases."""
        self.prediction = self.question.expect(self.settings, process.cores())
        self.cases = list(self.question.cases(self.settings))
        labels = [case.label for case in self.cases]
        if len(set(labels)) < len(labels):
            raise ValueError("two of its cases have the same label; each needs its own")
        lost = lacking(self.question.NEEDS)
        if lost or not self.cases:
            self.failures.append(Failure("skipped", lost or "it has no cases"))
            self.cases = []
        for case in list(self.cases):
            if lacking(case.needs):
                self._skip(case, lacking(case.needs))

    def groups(self) -> List[List[Case]]:
        """The cases that are left, those that share a process together."""
        lost = {failure.label for failure in self.failures}
        found: Dict[Any, List[Case]] = {}
        for case in self.cases:
            if case.label not in lost:
                shared = (case.processes, case.engine, *sorted(case.environment.items()))
                found.setdefault(shared if self.question.TOGETHER else case.label, []).append(case)
        return list(found.values())

    def once(self, number: int, cases: Sequence[Case], folder: Path, doing: Callable[[str], Any]) -> None:
        """Measure these cases in a process, or as many as they say, started anew."""
        with tempfile.TemporaryDirectory(prefix="mxdp-") as name:
            inside, order = Path(name), Path(name) / "order.json"
            written = [self._order(case, folder) for case in cases]
            how = dict(number=number, compare=number == 0, rounds=self.settings["rounds"], shared=self._shared)
            order.write_text(
                json.dumps(
                    {"module": self.question.module.__name__, "settings": self.settings, "cases": written, **how}
                )
            )
            before = _Counters()
            try:
                ended = self._start(cases[0], order, len(cases), doing)
            except OSError as error:  # the system may have no process, no file or no room left
                ended = Failure("failed", f"its process could not be started: {described(error)}")
            self.elsewhere.append(before.elsewhere())
            answers = [_lines(inside / f"answer-{rank}") for rank in range(cases[0].processes)]
            at = next((line["case"] for lines in answers for line in lines[-1:] if "doing" in line), None)
            for index, case in enumerate(cases):
                self._note(case, number, [[line for line in lines if line["case"] == index] for lines in answers])
                lost = case.label in {failure.label for failure in self.failures} or case.label in self.skipped
                if ended and not lost and len(self._values.get(case.label, ())) <= number:
                    other = at is not None and index != at
                    shared = f"the process shared with {cases[at or 0].label} is gone"
                    reason = shared if other else f"{ended.reason}{self._while(answers, index)}"
                    self.failures.append(Failure(ended.status, reason, case.label))

    def _order(self, case: Case, folder: Path) -> Dict[str, Any]:
        own = folder / result.slugs(each.label for each in self.cases)[case.label]
        own.mkdir(parents=True, exist_ok=True)
        keys = ("label", "devices", "processes", "engine", "reference", "settings")
        return {**{key: getattr(case, key) for key in keys}, "folder": str(own)}

    def _start(self, case: Case, order: Path, count: int, doing: Callable[[str], Any]) -> Optional[Failure]:
        """Start what the case needs, and wait until it has ended; None if it ended well."""
        environ = {**process.unprepared(os.environ), **case.environment}
        environ = {name: value for name, value in environ.items() if value is not None}
        if self.root:
            environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.root), environ.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "mxdp.experiments.lab.child", str(order)]
        started, servers = ranks.commands(case.engine, case.processes, command, environ)
        limit = float(self.settings["timeout"]) * count
        log = order.with_name("log")
        with open(log, "wb") as stderr, ranks.running([*started, *servers], stderr) as every:
            until = time.monotonic() + limit
            while left := [one for one in every[: len(started)] if one.poll() is None]:
                if any(one.poll() for one in every):  # the others may wait for it for ever
                    break
                if time.monotonic() > until:
                    return Failure("timeout", f"no answer within the time limit of {limit:g} s")
                doing(_doing(order.with_name("answer-0")))
                with contextlib.suppress(subprocess.TimeoutExpired):
                    left[0].wait(0.2)
            code = next(filter(None, (one.poll() for one in every)), 0)
        return Failure("failed", how_it_died(code, log)) if code else None

    @staticmethod
    def _while(answers: Sequence[List[Dict[str, Any]]], index: int) -> str:
        """What the process did, or of several the one that was behind."""
        every = [[line["doing"] for line in lines if line["case"] == index and "doing" in line] for lines in answers]
        doing = min(every, key=len)
        return f" while {doing[-1]}" if doing else " while it was started"

    def _note(self, case: Case, number: int, answers: Sequence[Sequence[Mapping[str, Any]]]) -> None:
        """Note what the processes of one case have answered: rank 0's numbers, and the slowest one's time."""
        rounds: List[List[Mapping[str, Any]]] = []
        for rank, lines in enumerate(answers):
            rounds.append([line["round"] for line in lines if "round" in line])
            for line in lines:
                if "oracle" in line:
                    counts = self._counts.setdefault(case.label, [0, 0])
                    self._counts[case.label] = [a + b for a, b in zip(counts, line["oracle"])]
                if "ready" in line:
                    self._shared.update(line["ready"]["shared"] if rank == 0 else {})
                    self._modules.update(line["ready"]["modules"])
                    known = self._ready.setdefault(case.label, {**line["ready"], "devices": []})
                    known["devices"] += line["ready"]["devices"] if number == 0 else []
                    known["facts"] = line["ready"]["facts"] if rank == 0 else known["facts"]
                if "timeline" in line and rank == 0:
                    self._timelines[case.label] = line["timeline"]
                if "skipped" in line:
                    self._skip(case, line["skipped"])
        # One that fails makes others fail.
        failed = min((line["failed"] for lines in answers for line in lines if "failed" in line), default=None)
        if failed and not any(case.label == failure.label for failure in self.failures):
            self.failures.append(Failure("failed", failed[1], case.label))
        if all(len(own) == self.settings["rounds"] for own in rounds):
            slowest = [max(own[i]["seconds"] for own in rounds) for i in range(len(rounds[0]))]
            values = [{**own, "seconds": seconds} for own, seconds in zip(rounds[0], slowest)]
            self._values.setdefault(case.label, []).append(combined(values))

    def _skip(self, case: Case, why: str) -> None:
        """It is as if the case had not been there; the result says so."""
        self.skipped[case.label] = why
        self.cases = [other for other in self.cases if other.label != case.label]

    def result(self) -> Dict[str, Any]:
        """What was measured so far, for the JSON."""
        if not self.cases and not self.failures:
            self.failures.append(Failure("skipped", next(iter(self.skipped.values()), "it has no cases")))
        ready = list(self._ready.values())
        devices = [name for each in ready for name in each["devices"]]
        counts = [sum(column) for column in zip([0, 0], *self._counts.values())]
        found: Dict[str, Any] = result.plain(
            {
                "schema_version": result.SCHEMA_VERSION,
                "experiment": self.question.name,
                "question": self.question.question,
                "preset": self.preset,
                "settings": self.settings,
                "environment": provenance.environment(ready[0]["variables"] if ready else {}, devices),
                "sources": provenance.sources(self._modules, self.started.timestamp()),
                "prediction": self.prediction,
                "started": self.started.isoformat(timespec="seconds"),
                "elapsed_seconds": round(time.monotonic() - self._clock, 3),
                "status": self._status(),
                "error": self._error(),
                "skipped": self.skipped,
                "oracle": {"checked": counts[0], "wrong": counts[1], "text": self.question.COMPARED},
                "bounds": {},
                "elsewhere": self.elsewhere,
                "rows": [self._row(case) for case in self.cases if case.label in self._values],
            }
        )
        if found["status"] == "ok":
            found["bounds"] = {claim.sentence: claim.bound for claim in told(self.question, [found]).claims.values()}
        return found

    def _row(self, case: Case) -> Dict[str, Any]:
        values, ready = self._values[case.label], self._ready[case.label]
        numbers, facts = flattened(values)
        facts = {**ready["shared"], **ready["facts"], **facts}
        facts.update(self._timelines.get(case.label, {}))
        checked, wrong = self._counts.get(case.label, [0, 0])
        settings = {"devices": case.devices, "processes": case.processes, "engine": case.engine, **case.settings}
        return {
            "label": case.label,
            "reference": case.reference,
            "case": settings,
            "devices": ready["devices"],
            "facts": facts,
            "numbers": numbers,
            "oracle": {"checked": checked, "wrong": wrong},
        }

    def _status(self) -> str:
        statuses = {failure.status for failure in self.failures} or {"ok"}
        return statuses.pop() if len(statuses) == 1 else "failed"

    def _error(self) -> Optional[str]:
        """Each reason once, with the first case that gave it and the number of the others."""
        labels: Dict[str, List[str]] = {}
        for failure in self.failures:
            labels.setdefault(failure.reason, []).append(failure.label)
        said = []
        for reason, (first, *others) in labels.items():
            more = f" (and {plural(len(others), 'more case')})" if others else ""
            said.append(f"{first}{more}: {reason}" if first else reason)
        return "; ".join(said) or None


def measure(runs: Sequence[Run], progress: Progress) -> None:
    """Measure these runs, usually one, in turns: process by process, group by group. A case that fails is left out of
    what follows. Of a defect of the question all cases are told to have failed.

    Raises:
        UsageError: the question refuses its settings.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="mxdp-") as kept:
            for run in runs:
                run.begin()
            processes, groups = runs[0].settings["processes"], [run.groups() for run in runs]
            steps = processes * len(groups[0]) * len(runs)
            done = 0
            for number in range(processes):
                for index in range(len(groups[0])):
                    for place, run in enumerate(runs):
                        left = [case for group in run.groups() for case in group if case in groups[place][index]]
                        if not left:
                            continue
                        said = f"{left[0].label}: " if len(groups[0]) > 1 else ""

                        def doing(what: str, said: str = said, number: int = number, done: int = done) -> None:
                            progress(
                                f"{said}{what or 'starting'}, process {number + 1} of {processes}", done, steps, None
                            )

                        run.once(number, left, Path(kept) / str(place), doing)
                        done += 1
                progress(f"{number + 1} of {processes} processes", done, steps, runs[0].result())
    except UsageError:
        raise
    except KeyboardInterrupt:
        for run in runs:
            run.failures.append(Failure("failed", "interrupted by the user"))
        raise
    except Exception as error:  # a defect of the question or of ours must not lose what was measured
        for run in runs:
            run.failures.append(Failure("failed", described(error)))


def run(question: Question, preset: str, settings: Settings, folder: Path, progress: Progress) -> Dict[str, Any]:
    """Measure one question and write its file, whatever happens; returns what was written.

    A failure is part of the result, not an exception, even if the file can't be written. A ``KeyboardInterrupt`` stops
    the processes, writes what was measured so far, and is raised again.
    """
    one = Run(question, preset, settings)
    try:
        measure([one], progress)
    finally:
        found = one.result()
        try:
            result.write(found, folder)
        except (MxdpError, ValueError) as error:
            found.update(status="failed", error="; ".join(filter(None, [found["error"], str(error)])))
    return found


def combined(values: Sequence[Mapping[str, Any]]) -> Dict[str, Any]:
    """What a process says, which has measured these rounds: of numbers the median, of truths whether all were true, of
    dicts this of each entry, of anything else the last.

    >>> combined([{"x": 3, "y": True, "z": {"a": 1.0}}, {"x": 1, "y": False, "z": {"a": 2.0}}])
    {'x': 2.0, 'y': False, 'z': {'a': 1.5}}
    """
    found: Dict[str, Any] = {}
    for name in dict.fromkeys(name for own in values for name in own):
        known = [own[name] for own in values if own.get(name) is not None]
        if known and all(isinstance(value, bool) for value in known):
            found[name] = all(known)
        elif known and all(isinstance(value, (int, float)) for value in known):
            found[name] = statistics.median(known) if len(known) > 1 else known[0]
        elif known and all(isinstance(value, Mapping) for value in known):
            found[name] = combined(known)
        else:
            found[name] = known[-1] if known else None
    return found


def flattened(values: Sequence[Mapping[str, Any]]) -> Tuple[Dict[str, List[Any]], Dict[str, Any]]:
    """From what each process says: a list of values for each number, that of an entry of a dict as ``dict.entry``; and
    the last of anything else."""
    numbers: Dict[str, List[Any]] = {}
    facts: Dict[str, Any] = {}
    for position, own in enumerate(values):
        flat = {f"{name}.{key}": x for name, value in own.items() if _numeric(value) for key, x in value.items()}
        flat.update({name: value for name, value in own.items() if isinstance(value, (int, float))})
        for name, value in flat.items():
            column = numbers.setdefault(name, [])
            column += [None] * (position - len(column)) + [float(value)]
        facts.update({name: value for name, value in own.items() if name not in flat and not _numeric(value)})
    for column in numbers.values():
        column += [None] * (len(values) - len(column))
    return numbers, facts


def _numeric(value: Any) -> bool:
    numbers = isinstance(value, Mapping) and value.values()
    return bool(numbers) and all(type(number) in (int, float) for number in numbers)


def how_it_died(code: int, log: Path) -> str:
    """What became of a process with this exit status, in words."""
    if code == -signal.SIGKILL:
        return "the process was killed (SIGKILL), as the system does when memory runs out,"
    if code < 0:
        # Most real-time signals have a number alone.
        return f"the process died of {next((own.name for own in signal.Signals if own == -code), f'signal {-code}')}"
    last = re.findall(rb"\S[^\n]*", log.read_bytes()[-4000:])
    said = f": {last[-1].decode(errors='replace')}" if last else ""
    return f"the process ended with exit status {code}{said}"


def _lines(path: Path) -> List[Dict[str, Any]]:
    """The answers in this file; a last one that was cut off is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _doing(path: Path) -> str:
    """What a process does, by the last lines of its answers."""
    last: Deque[Dict[str, Any]] = deque(_lines(path), 2)
    return next((str(line["doing"]) for line in reversed(last) if "doing" in line), "")


class _Counters:
    """The machine's counters, to see what else it did."""

    def __init__(self) -> None:
        times, own = psutil.cpu_times(), os.times()
        self.clock, self.idle = time.monotonic(), times.idle + getattr(times, "iowait", 0.0)
        self.own = sum(own[:4])  # with children that have ended

    def elsewhere(self) -> Optional[float]:
        """The share of the processors' time that went elsewhere since; None where a part of the machine is ours only,
        of which the counters say nothing."""
        now, processors = _Counters(), psutil.cpu_count() or 1
        most = processors * (now.clock - self.clock)
        if most <= 0 or process.cores() < processors:
            return None
        return round(min(1.0, max(0.0, 1 - (now.idle - self.idle + now.own - self.own) / most)), 4)


def busy_now(seconds: float = 0.5) -> str:
    """How busy the machine is without us, in a sentence; takes ``seconds``."""
    share = psutil.cpu_percent(seconds) / 100
    text = f"This machine's {psutil.cpu_count()} processors are {share:.0%} busy with other work"
    return f"{text}: times will be disturbed." if share > BUSY else f"{text}."
