"""Measures one question: starts its processes, hears of them, and writes one file, whatever happens.

For each process number, and each group of cases that may share a process, one process is started, as it would be by
hand: it reads an order, measures one round of each case, writes its answers and ends (:mod:`.child`). So cases take
turns inside a process, or else process by process.
"""

from __future__ import annotations

import datetime
import json
import os
import shutil
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

from mxdp import process
from mxdp.errors import MxdpError, UsageError, described, plural
from mxdp.experiments.lab import provenance, ranks, result
from mxdp.experiments.lab.module import Case, Question, Settings, lacking
from mxdp.experiments.lab.rows import combined
from mxdp.experiments.lab.start import Failure, wait_for
from mxdp.experiments.lab.told import told

Line = Mapping[str, Any]
Progress = Callable[[str, int, int, Optional[Dict[str, Any]]], Any]
"""Called as (what is being done, steps done, steps in all, what was measured so far or None)."""


class Run:
    """One question being measured, and what has been measured so far.

    ``logs``: a folder for what the processes of a case that fails have printed. ``root``: whose code is measured, by
    default this one.
    """

    def __init__(
        self, question: Question, preset: str, settings: Settings, logs: Path, root: Optional[Path] = None
    ) -> None:
        self.question, self.preset, self.settings, self.logs, self.root = question, preset, settings, logs, root
        self.failures: List[Failure] = []
        self._started, self._clock = datetime.datetime.now().astimezone(), time.monotonic()
        self._prediction = ""
        self._cases: List[Case] = []
        self._skipped: Dict[str, str] = {}
        self._elsewhere: List[Optional[float]] = []
        self._shared: Dict[str, Any] = {}
        self._ready: Dict[str, Dict[str, Any]] = {}
        self._counts: Dict[str, List[int]] = {}
        self._values: Dict[str, List[Dict[str, Any]]] = {}
        self._timelines: Dict[str, Dict[str, Any]] = {}
        self._modules: Set[str] = set()

    def begin(self) -> None:
        """Predict, and list the cases."""
        self._prediction = self.question.expect(self.settings, process.cores())
        self._cases = list(self.question.cases(self.settings))
        if len({case.label for case in self._cases}) < len(self._cases):
            raise ValueError("two of its cases have the same label; each needs its own")
        for case in list(self._cases):
            if lacking({**self.question.NEEDS, **case.needs}):
                self._skip(case, lacking({**self.question.NEEDS, **case.needs}))

    def groups(self) -> List[List[Case]]:
        """The cases that are left, those that share a process together."""
        groups: Dict[Any, List[Case]] = {}
        for case in self._cases:
            if not self._failed(case):
                alike = (case.processes, case.engine, *sorted(case.environment.items()))
                groups.setdefault(alike if self.question.TOGETHER else case.label, []).append(case)
        return list(groups.values())

    def once(self, number: int, cases: Sequence[Case], kept: Path, doing: Callable[[str], Any]) -> None:
        """Measure these cases in a process, or as many as they say, started anew. ``number``: how many were before."""
        with tempfile.TemporaryDirectory(prefix="mxdp-") as name:
            order, answers = Path(name) / "order.json", Path(name) / "answer-0"
            order.write_text(json.dumps(self._order(number, cases, kept)), encoding="utf-8")
            before = provenance.Counters()
            try:
                ended = self._start(cases, order, lambda: doing(_doing(_lines(answers))))
            except OSError as error:  # the system may have no process, no file or no room left
                ended = Failure("failed", f"its process could not be started: {described(error)}")
            self._elsewhere.append(before.elsewhere())
            lines = [_lines(order.with_name(f"answer-{rank}")) for rank in range(cases[0].processes)]
            if ended or any("failed" in line for rank in lines for line in rank):
                self._keep(order.with_name("log"), cases[0])
        at = next((int(rank[-1]["case"]) for rank in lines if rank and "doing" in rank[-1]), None)
        for index, case in enumerate(cases):
            by_rank = [[line for line in rank if line["case"] == index] for rank in lines]
            self._note(case, by_rank)
            known = self._failed(case) or case.label in self._skipped
            if ended and not known and len(self._values.get(case.label, ())) <= number:
                behind = min(by_rank, key=len)
                reason = f"{ended.reason} while {_doing(behind) or 'it was started'}"
                if at is not None and at != index:
                    reason = f"the process shared with {cases[at].label} is gone"
                self.failures.append(Failure(ended.status, reason, case.label))

    def _order(self, number: int, cases: Sequence[Case], kept: Path) -> Dict[str, Any]:
        slugs = result.slugs(case.label for case in self._cases)
        keys = ("label", "devices", "processes", "engine", "reference", "settings")
        records = [{key: getattr(case, key) for key in keys} for case in cases]
        for record in records:
            folder = kept / slugs[record["label"]]
            folder.mkdir(parents=True, exist_ok=True)
            record["folder"] = str(folder)
        how: Dict[str, Any] = dict(
            number=number, compare=number == 0, rounds=self.settings["rounds"], shared=self._shared
        )
        return {"module": self.question.module.__name__, "settings": self.settings, "cases": records, **how}

    def _start(self, cases: Sequence[Case], order: Path, tick: Callable[[], Any]) -> Optional[Failure]:
        environ: Dict[str, Optional[str]] = {**process.unprepared(os.environ), **cases[0].environment}
        known = {name: value for name, value in environ.items() if value is not None}
        if self.root:
            known["PYTHONPATH"] = os.pathsep.join(filter(None, [str(self.root), known.get("PYTHONPATH")]))
        command = [sys.executable, "-m", "mxdp.experiments.lab.child", str(order)]
        commands, servers = ranks.commands(cases[0].engine, cases[0].processes, command, known)
        limit = float(self.settings["timeout"]) * len(cases)
        return wait_for(commands, servers, limit, order.with_name("log"), self.root, tick)

    def _keep(self, log: Path, case: Case) -> None:
        with suppress(OSError):  # the failure itself is told; a full disk must not hide it
            self.logs.mkdir(parents=True, exist_ok=True)
            shutil.copy(log, self.logs / f"{result.slugs([case.label])[case.label]}.log")

    def _note(self, case: Case, ranks_lines: Sequence[Sequence[Line]]) -> None:
        """Note what the processes of one case have answered: rank 0's numbers, and the slowest one's time."""
        for line in (line for lines in ranks_lines for line in lines):
            if "oracle" in line:
                counts = self._counts.get(case.label, [0, 0])
                self._counts[case.label] = [a + b for a, b in zip(counts, line["oracle"])]
            if "timeline" in line:
                self._timelines.setdefault(case.label, line["timeline"])
            if "skipped" in line:
                self._skip(case, line["skipped"])
        failed = [line["failed"] for lines in ranks_lines for line in lines if "failed" in line]
        if failed and not self._failed(case):  # the first may make the others fail
            self.failures.append(Failure("failed", min(failed)[1], case.label))
        ready = [line["ready"] for lines in ranks_lines for line in lines if "ready" in line]
        if ready:
            self._ready[case.label] = {**ready[0], "devices": [name for answer in ready for name in answer["devices"]]}
            self._shared.update(ready[0]["shared"])
            self._modules.update(name for answer in ready for name in answer["modules"])
        rounds = [[line["round"] for line in lines if "round" in line] for lines in ranks_lines]
        if all(len(rank) == self.settings["rounds"] for rank in rounds):
            slowest = [max(one["seconds"] for one in at_once) for at_once in zip(*rounds)]
            together = [{**first, "seconds": seconds} for first, seconds in zip(rounds[0], slowest)]
            self._values.setdefault(case.label, []).append(combined(together))

    def _failed(self, case: Case) -> bool:
        return any(failure.label in ("", case.label) for failure in self.failures)

    def _skip(self, case: Case, why: str) -> None:
        """It is as if the case had not been there; the result says so."""
        self._skipped[case.label] = why
        self._cases = [other for other in self._cases if other.label != case.label]

    def result(self) -> Dict[str, Any]:
        """What was measured so far, for the JSON."""
        if not self._cases and not self.failures:
            self.failures.append(Failure("skipped", next(iter(self._skipped.values()), "it has no cases")))
        ready = list(self._ready.values())
        devices = [name for answer in ready for name in answer["devices"]]
        checked, wrong = (sum(column) for column in zip([0, 0], *self._counts.values()))
        statuses = {failure.status for failure in self.failures} or {"ok"}
        record: Dict[str, Any] = result.plain(
            {
                "schema_version": result.SCHEMA_VERSION,
                "experiment": self.question.name,
                "question": self.question.question,
                "preset": self.preset,
                "settings": self.settings,
                "environment": provenance.environment(ready[0]["variables"] if ready else {}, devices),
                "sources": provenance.sources(self._modules, self._started.timestamp()),
                "prediction": self._prediction,
                "started": self._started.isoformat(timespec="seconds"),
                "elapsed_seconds": round(time.monotonic() - self._clock, 3),
                "status": statuses.pop() if len(statuses) == 1 else "failed",
                "error": _error(self.failures),
                "skipped": self._skipped,
                "oracle": {"checked": checked, "wrong": wrong, "text": self.question.COMPARED},
                "bounds": {},
                "elsewhere": self._elsewhere,
                "rows": [self._row(case) for case in self._cases if case.label in self._values],
            }
        )
        if record["status"] == "ok":
            record["bounds"] = {claim.sentence: claim.bound for claim in told(self.question, [record]).claims.values()}
        return record

    def _row(self, case: Case) -> Dict[str, Any]:
        ready, (checked, wrong) = self._ready[case.label], self._counts.get(case.label, [0, 0])
        return {
            "label": case.label,
            "reference": case.reference,
            "case": {"devices": case.devices, "processes": case.processes, "engine": case.engine, **case.settings},
            "devices": ready["devices"],
            "facts": {**ready["shared"], **ready["facts"], **self._timelines.get(case.label, {})},
            "processes": self._values[case.label],
            "oracle": {"checked": checked, "wrong": wrong},
        }


def measure(runs: Sequence[Run], progress: Progress) -> None:
    """Measure these runs, usually one, in turns: process by process, group by group. A case that fails is left out of
    what follows. After a defect of the question all cases have failed.

    Raises:
        UsageError: the question refuses its settings.
    """
    try:
        with tempfile.TemporaryDirectory(prefix="mxdp-") as kept:
            for run in runs:
                run.begin()
            processes, done = runs[0].settings["processes"], 0
            for number in range(processes):
                # Listed once, so that a case that is lost takes no turn from those after it.
                turns = [list(zip(runs, groups)) for groups in zip_longest(*(run.groups() for run in runs))]
                steps = processes * len(turns) * len(runs)
                # A B, then B A: who comes second may always find a warmer processor.
                for run, cases in chain(*(turn[:: -1 if number % 2 else 1] for turn in turns)):
                    where = f"{{}}, process {number + 1} of {processes}"
                    if cases:
                        where = f"{cases[0].label}: {where}" if len(turns) > 1 else where
                        doing = partial(_say, progress, where, done, steps)
                        run.once(number, cases, Path(kept) / str(runs.index(run)), doing)
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


def _say(progress: Progress, where: str, done: int, steps: int, what: str) -> None:
    progress(where.format(what or "starting"), done, steps, None)


def run(question: Question, preset: str, settings: Settings, folder: Path, progress: Progress) -> Dict[str, Any]:
    """Measure one question and write its file, whatever happens; returns what was written.

    A failure is part of the result, not an exception, even if the file can't be written. A ``KeyboardInterrupt`` stops
    the processes, writes what was measured so far, and is raised again.
    """
    one = Run(question, preset, settings, folder / question.name)
    try:
        measure([one], progress)
    except UsageError:
        raise
    except KeyboardInterrupt:
        with suppress(MxdpError, ValueError):  # a full disk must not hide the interrupt
            result.write(one.result(), folder)
        raise
    record = one.result()
    try:
        result.write(record, folder)
    except (MxdpError, ValueError) as error:
        record.update(status="failed", error="; ".join(filter(None, [record["error"], str(error)])))
    return record


def _error(failures: Sequence[Failure]) -> Optional[str]:
    """Each reason once, with the first case that gave it and the number of the others."""
    labels: Dict[str, List[str]] = {}
    for failure in failures:
        labels.setdefault(failure.reason, []).append(failure.label)
    sentences = []
    for reason, (first, *others) in labels.items():
        more = f" (and {plural(len(others), 'more case')})" if others else ""
        sentences.append(f"{first}{more}: {reason}" if first else reason)
    return "; ".join(sentences) or None


def _lines(path: Path) -> List[Line]:
    """The answers in this file; a last one that was cut off is none."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _doing(lines: Sequence[Line]) -> str:
    """What a process does, by its answers."""
    return next((str(line["doing"]) for line in reversed(lines) if "doing" in line), "")
