"""Measures one question: starts its processes, hears of them, and writes one file, whatever happens.

In each turn, one process is started for each group of cases that may share a process. It reads an order, measures one
round of each case, writes its answers and ends (:mod:`.child`). So cases take turns inside a process, or else process
by process.
"""

from __future__ import annotations

import datetime
import json
import re
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from contextlib import suppress
from functools import partial
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence

from mxdp import process
from mxdp.errors import MxdpError, UsageError, described, plural, signals_wait, without_exit
from mxdp.experiments.lab import provenance, ranks, result
from mxdp.experiments.lab.module import Case, Question, Settings, lacking
from mxdp.experiments.lab.rows import Record, by_name, middle
from mxdp.experiments.lab.told import paragraph

Progress = Callable[..., Any]
"""Is told where the work is, what is done of how much, what is done there, and what was measured so far, or None."""


class Run:
    """One question being measured. ``rows`` has what was measured so far, as in the file. ``logs``: a folder for what
    the processes of a case that fails have printed. ``root``: whose code is measured, by default this one."""

    def __init__(
        self,
        question: Question,
        preset: str,
        settings: Settings,
        logs: Path,
        root: Optional[Path] = None,
    ) -> None:
        self.question = question
        self.preset = preset
        self.settings = settings
        self.logs = logs
        self.root = root
        self.rows: Dict[str, Record] = {}
        self.skipped: Dict[str, str] = {}
        self.failures: Dict[str, ranks.Failure] = {}  # by label; of an empty one: all cases
        self._cases: List[Case] = []
        self._started = datetime.datetime.now().astimezone()
        self._clock = time.monotonic()
        self.draw = int(self._started.timestamp())
        self._prediction = ""
        self._elsewhere: List[Optional[float]] = []
        self._variables: Dict[str, str] = {}

    def begin(self) -> None:
        """Predict, and list the cases."""
        self._prediction = paragraph(self.question.expect(self.settings, process.cores()))
        self._cases = list(self.question.cases(self.settings))
        for case in self._cases:
            if case.label in self.rows:
                raise ValueError(
                    f"two of its cases have the same label, {case.label!r}; each needs its own"
                )
            how = dict(devices=case.devices, processes=case.processes, engine=case.engine)
            self.rows[case.label] = dict(
                label=case.label,
                reference=case.reference,
                case={**how, **case.settings},
                devices=[],
                facts={},
                processes=[],
                oracle=dict(checked=0, wrong=0),
            )
            if missing := lacking({**self.question.NEEDS, **case.needs}):
                self.skipped[case.label] = missing

    def groups(self) -> List[List[Case]]:
        """The cases that are left, those that share a process together."""
        groups: Dict[Any, List[Case]] = {}
        for case in self._cases:
            if case.label in self.skipped or case.label in self.failures:
                continue
            alike: Any = case.label
            if self.question.TOGETHER:
                alike = (case.processes, case.engine, *sorted(case.environment.items()))
            groups.setdefault(alike, []).append(case)
        return list(groups.values())

    def once(
        self, number: int, cases: Sequence[Case], kept: Path, tell: Callable[[str], Any]
    ) -> None:
        """Measure these cases in a process, or as many as they say, started anew. ``number``: how many were before."""
        first = cases[0]
        environ: Dict[str, Optional[str]] = {**process.unprepared(), **first.environment}
        folder = ranks.use_checkout(self.root, environ) if self.root else None
        limit = self.settings["timeout"] * len(cases)
        elsewhere = provenance.since_now()
        with tempfile.TemporaryDirectory(prefix="mxdp-") as name:
            order = Path(name, "order.json")
            log = Path(name, "log")
            order.write_text(json.dumps(self.order(number, cases, kept)), "utf-8")
            command = [sys.executable, "-m", "mxdp.experiments.lab.child", str(order)]
            try:
                commands = ranks.commands(first.engine, first.processes, command, environ)
                with signals_wait() as noted:

                    def tick() -> None:
                        if noted:
                            raise KeyboardInterrupt
                        tell(_doing(_lines(order, 0)))

                    ended = ranks.wait_for(commands, limit, log, folder, tick)
            except OSError as error:  # the system may have no process, no file or no room left
                ended = "failed", f"its process could not be started: {described(error)}"
            self._elsewhere.append(elsewhere())
            answers = [_lines(order, rank) for rank in range(first.processes)]
            if not ended and any(not lines or "doing" in lines[-1] for lines in answers):
                ended = "failed", "the process ended without an answer"
            if ended or any("failed" in line for line in chain(*answers)):
                with suppress(OSError):  # the failure itself is told; a full disk must not hide it
                    self.logs.mkdir(parents=True, exist_ok=True)
                    shutil.copy(log, self.logs / (re.sub(r"\W+", "-", first.label) + ".log"))
        at = [lines[-1]["case"] for lines in answers if lines and "doing" in lines[-1]]
        for index, case in enumerate(cases):
            of_case = [[line for line in lines if line["case"] == index] for lines in answers]
            self._note(case, of_case)
            measured = len(self.rows[case.label]["processes"]) > number
            if ended and not measured and case.label not in self.skipped:
                reason = f"{ended[1]} while {_doing(min(of_case, key=len))}"
                if at and at[0] != index:
                    reason = f"the process shared with {cases[at[0]].label} is gone"
                self.failures.setdefault(case.label, (ended[0], reason))

    def order(self, number: int, cases: Sequence[Case], kept: Path) -> Record:
        """What a process is to do, as :meth:`once` writes it; ``kept``: the folder of what cases leave behind."""
        labels = list(self.rows)
        of_cases = []
        for case in cases:
            row = self.rows[case.label]
            of_cases.append(dict(label=case.label, reference=case.reference, **row["case"]))
        return dict(
            module=self.question.module.__name__,
            settings=self.settings,
            rounds=self.settings["rounds"],
            number=number,
            draw=self.draw,
            compare=number == 0,
            shared={},  # which checkouts of before this line read
            cases=of_cases,
            folders=[str(kept / str(labels.index(case.label))) for case in cases],
        )

    def _note(self, case: Case, answers: Sequence[Sequence[Record]]) -> None:
        """Note what the processes of one case have answered: rank 0's numbers, and the slowest one's time."""
        row = self.rows[case.label]
        named: Dict[str, List[Any]] = defaultdict(list)
        for line in chain(*answers):
            for name, value in line.items():
                named[name].append(value)
        for counts in named["oracle"]:
            for key in counts:
                row["oracle"][key] += counts[key]
        if ready := named["ready"]:
            row["devices"] = [name for answer in ready for name in answer["devices"]]
            row["facts"].update(ready[0]["facts"])
            self._variables = self._variables or ready[0]["variables"]
        rounds = [[line["round"] for line in lines if "round" in line] for lines in answers]
        if all(len(own) == self.settings["rounds"] for own in rounds):
            together = []
            for at_once in zip(*rounds):
                slowest = max(own["seconds"] for own in at_once)
                together.append({**at_once[0], "seconds": slowest})
            row["processes"].append(by_name(together, middle))
        for timeline in named["timeline"][:1]:
            row["facts"].update(timeline)
        for why in named["skipped"]:
            self.skipped[case.label] = why
        for _, reason in sorted(named["failed"])[:1]:  # the first may make the others fail
            self.failures[case.label] = "failed", reason

    def so_far(self) -> Record:
        """What was measured until now, as in the file, but of the environment only the number of cores."""
        counts = [row["oracle"] for row in self.rows.values()]
        failures = dict(self.failures)
        if len(self.skipped) == len(self.rows) and not failures:
            failures[""] = "skipped", next(iter(self.skipped.values()), "it has no cases")
        statuses = {status for status, _ in failures.values()} or {"ok"}
        return dict(
            schema_version=result.SCHEMA_VERSION,
            experiment=self.question.name,
            preset=self.preset,
            question=self.question.question,
            prediction=self._prediction,
            settings=provenance.without_paths(self.settings),
            environment=dict(cores=process.cores()),
            started=self._started.isoformat(timespec="seconds"),
            elapsed_seconds=round(time.monotonic() - self._clock, 3),
            status=statuses.pop() if len(statuses) == 1 else "failed",
            error=ranks.in_words(failures),
            oracle=dict(
                checked=sum(one["checked"] for one in counts),
                wrong=sum(one["wrong"] for one in counts),
                text=self.question.COMPARED,
            ),
            skipped=self.skipped,
            elsewhere=self._elsewhere,
            rows=[
                row
                for label, row in self.rows.items()
                if row["processes"] and label not in self.skipped
            ],
        )

    def result(self) -> Record:
        """What was measured, for the JSON."""
        record = self.so_far()
        devices = chain.from_iterable(row["devices"] for row in record["rows"])
        record["environment"] = provenance.environment(self._variables, devices)
        plain: Record = result.plain(record)
        return plain


def measure(runs: Sequence[Run], progress: Progress) -> None:
    """Measure these runs, usually one, in turns: process by process, group by group. A case that fails takes no more
    turns; after a defect of the question all have failed. Raises a UsageError if it refuses its settings."""
    try:
        with tempfile.TemporaryDirectory(prefix="mxdp-") as kept:
            for run in runs:
                with without_exit():
                    run.begin()
                run.draw = runs[0].draw  # what is compared has the same seeds
            _take_turns(runs, Path(kept), progress)
    # A defect of the question or of ours must not lose what was measured.
    except BaseException as error:
        reason = described(error)
        if isinstance(error, KeyboardInterrupt):
            reason = "interrupted by the user"
        for run in runs:
            run.failures[""] = "failed", reason
        if isinstance(error, UsageError) or not isinstance(error, Exception):
            raise


def _take_turns(runs: Sequence[Run], kept: Path, progress: Progress) -> None:
    settings = runs[0].settings
    began = time.monotonic()
    turns = 0
    started = 0  # processes, in all turns
    of_turn = 0

    def tell(where: str, doing: str = "", so_far: Optional[Record] = None) -> None:
        """Say also how much is done of how much: processes, or seconds."""
        if settings["processes"]:
            progress(where, started, of_turn * settings["processes"], doing, so_far)
        else:
            progress(where, time.monotonic() - began, 60 * settings["minutes"], doing, so_far)

    while another(settings, turns, time.monotonic() - began):
        # Listed once, so that a case that is lost takes no turn from those after it.
        groups = [run.groups() for run in runs]
        turn = [list(zip(runs, at_once)) for at_once in zip_longest(*groups)]
        if not turn:
            break
        of_turn = len(turn) * len(runs)
        for pair in turn:
            if turns % 2:
                pair.reverse()  # A B, then B A: who comes second may always find a warmer processor
            for run, cases in pair:
                if cases:
                    where = f"{cases[0].label}, " if len(turn) > 1 else ""
                    where += f"process {turns + 1}"
                    run.once(turns, cases, kept / str(runs.index(run)), partial(tell, where))
                started += 1
        turns += 1
        tell(f"{plural(turns, 'process')} of each case", "", runs[0].so_far())


def another(settings: Record, turns: int, seconds: float) -> bool:
    """Whether another turn begins after so many, which took so long: the first always; then until the count is reached,
    or while it would end in time at the pace so far. It never looks at what was measured."""
    if not turns:
        return True
    if settings["processes"]:
        return bool(turns < settings["processes"])
    return bool(seconds * (turns + 1) / turns <= 60 * settings["minutes"])


def run(
    question: Question, preset: str, settings: Settings, folder: Path, progress: Progress
) -> Record:
    """Measure one question and write its file, whatever happens; returns what was written. A failure is part of the
    result, not an exception, even if the file can't be written. A ``KeyboardInterrupt`` stops the processes; it is
    raised again when what was measured so far is written."""
    one = Run(question, preset, settings, folder / question.name)
    interrupt: Optional[BaseException] = None
    try:
        measure([one], progress)
    except (KeyboardInterrupt, SystemExit) as error:  # rich exits if nobody reads what it shows
        interrupt = error
    with signals_wait():
        record = one.result()
        try:
            result.write(record, folder)
        except MxdpError as error:  # a full disk must not hide the interrupt
            record["status"] = "failed"
            record["error"] = "; ".join(filter(None, [record["error"], str(error)]))
    if interrupt:
        raise interrupt
    return record


def _lines(order: Path, rank: int) -> List[Record]:
    """What this process has answered; a last line that was cut off is none."""
    path = order.with_name(f"answer-{rank}")
    text = path.read_text("utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def _doing(lines: Sequence[Record]) -> str:
    """What a process does, by its answers."""
    return next((str(line["doing"]) for line in reversed(lines) if "doing" in line), "starting")
