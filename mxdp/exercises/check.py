"""Checks a student's file in a process of its own, with limits.

``python -m mxdp.exercises.check FILE SEED ANSWERS`` is that process: it reads the file and calls its functions. Before
each call, which might never end, it writes the report so far to the file ANSWERS, whole. It keeps no descriptor open
that the student's code could write to or close. The process that watches it never reads the student's file.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import runpy
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib import import_module
from pathlib import Path
from typing import Any, Callable, Dict, List, Sequence

import psutil

from mxdp import process
from mxdp.backend import mx
from mxdp.errors import MxdpError
from mxdp.exercises import EXERCISES
from mxdp.exercises.trial import Trial, answer_of, explained
from mxdp.plans.show.files import write_beside

SECONDS, MEGABYTES = 20.0, 2000.0
"""Limits of one trial, and of the whole process."""

PRINTED, SHOWN = 1 << 20, 4000
"""Bytes that a file may print, and those at the end that a report shows."""

SEED = 0
"""The default seed of the random sizes."""

START_SECONDS = 120.0
"""Limit of MXNet's own start, on a slow disk."""

LOOK_SECONDS = 0.1

Report = Dict[str, Any]


def check(file: Path, seconds: float = SECONDS, megabytes: float = MEGABYTES, seed: int = SEED) -> Report:
    """Run the file's functions against their oracles, in a child process.

    The report has ``file``, ``right``, ``problem`` (a sentence if the file can't be checked), ``exercises`` (each with
    ``cases``, see :func:`mxdp.exercises.trial.answer_of`; a case may be "not tried") and ``printed``.
    ``seed`` chooses the random sizes.

    The limits are for accidents. Code that means harm needs a machine of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers, printed = Path(folder, "answers.json"), Path(folder, "printed")
        with printed.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-u", "-m", "mxdp.exercises.check", str(file), str(seed), str(answers)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=process.unprepared(os.environ),
                start_new_session=True,
            )
        try:
            problem = exceeded(child, answers, printed, seconds, megabytes)
        finally:  # its own children end with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):  # never, unless Ctrl-C came while CPython took a lock
                child.wait(10)
            status = child.returncode
        text = printed.read_bytes()[-SHOWN:].decode(errors="replace")
        if not answers.exists():
            raise MxdpError(f"the checker can't start: {(text.splitlines() or [problem])[-1]}")
        report: Report = printable(json.loads(answers.read_text()))
    if not report.pop("done") or problem:
        crash = f"It crashes in C ({signal.Signals(-status).name})." if status < 0 else ""
        blame(report, problem or crash or f"It ends the process (exit status {status}): return a value instead.")
    if not file.exists():
        blame(report, f"{file} is gone: the code in it deleted or moved it. Restore it from your editor or from git.")
    for exercise in report["exercises"]:
        exercise["right"] = all(case["state"] == "right" for case in exercise["cases"])
        settle(exercise["cases"])
    right = not report["problem"] and all(exercise["right"] for exercise in report["exercises"])
    return {**report, "right": right, "printed": printable(text)}


def exceeded(child: Any, answers: Path, printed: Path, seconds: float, megabytes: float) -> str:
    """Wait for the child's end, or for the limit that it exceeds, which is the sentence returned."""
    limit, saved, since = START_SECONDS, 0, time.monotonic()
    while True:
        ended = child.poll() is not None
        if answers.exists() and answers.stat().st_mtime_ns != saved:
            limit, saved, since = seconds, answers.stat().st_mtime_ns, time.monotonic()
        if printed.stat().st_size > PRINTED:
            return "It prints more than 1 MB: is there a print in a loop without an end?"
        if ended:
            return ""
        with contextlib.suppress(psutil.Error):
            if psutil.Process(child.pid).memory_info().rss > megabytes * 1e6:
                return f"It takes more than {megabytes:,.0f} MB of memory."
        if time.monotonic() - since > limit:
            return f"It does not end within {limit:g} s: is there a loop without an end?"
        time.sleep(LOOK_SECONDS)


def blame(report: Report, problem: str) -> None:
    """Say what ended the check: the problem is of the case that was tried, or of the whole file."""
    for case in (case for exercise in report["exercises"] for case in exercise["cases"] if case["state"] == "trying"):
        case.update(state="wrong", problem=problem)
        return
    report["problem"] = problem


def printable(value: Any) -> Any:
    """A report without the characters that a terminal obeys, or that XML and UTF-8 don't have."""
    if isinstance(value, dict):
        return {name: printable(part) for name, part in value.items()}
    if isinstance(value, list):
        return [printable(part) for part in value]
    if not isinstance(value, str):
        return value
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "?" for sign in value)


def settle(cases: List[Dict[str, Any]]) -> None:
    """Keep one hint of a case: in a small case two mistakes can give the same, so the one that fits in most cases."""
    counts = Counter(hint for case in cases for hint in case.get("hints", ()))
    for case in cases:
        hints = case.pop("hints", [])
        if hints:
            case["hint"] = max(hints, key=lambda hint: counts[hint])


def cases(name: str, seed: int) -> Dict[str, List[Trial]]:
    """The cases of an exercise, by title: one trial of each chosen size, then a case of all sizes at random, which
    follow from ``seed``."""
    module = import_module(f"mxdp.exercises.{EXERCISES[name].module}")
    chosen, others = getattr(module, name)(random.Random(f"{seed} {name}"))
    for trial in others:
        trial.title = f"at random (seed {seed}): {trial.title}"
    title = f"{len(others)} other sizes, at random (seed {seed})"
    return {**{trial.title: [trial] for trial in chosen}, title: others}


def check_here(file: str, seed: int, answers: Path) -> None:
    """Check everything that the file defines, in this process, and end it."""
    report: Report = dict(file=file, right=False, problem="", exercises=[], printed="", done=False)

    def save() -> None:
        write_beside(answers, json.dumps(report))

    tasks = {name: cases(name, seed) for name in EXERCISES}
    mx.nd.waitall()  # so MXNet is loaded before the file is read, and not in the time of its first case
    signal.signal(signal.SIGSEGV, signal.SIG_DFL)  # MXNet's handler turns a crash into an exit
    save()
    sys.path[0] = os.path.dirname(os.path.abspath(file))
    functions: Dict[str, Any] = {}
    try:
        namespace = runpy.run_path(file)
        for name in EXERCISES:
            value = namespace.get(name)
            if callable(value) and not str(getattr(value, "__module__", "")).startswith("mxdp"):  # not imported
                functions[name] = value
        if not functions:
            report["problem"] = f"It defines none of the functions that can be checked: {', '.join(EXERCISES)}."
    except BaseException as error:
        report["problem"] = explained(error, file)
    for name in functions:
        entries = [dict(title=title, state="not tried") for title in tasks[name]]
        number, title = EXERCISES[name].number, EXERCISES[name].title
        report["exercises"].append(dict(number=number, title=title, function=name, right=False, cases=entries))
    for exercise in report["exercises"]:
        name = exercise["function"]
        for case, entry in zip(tasks[name].values(), exercise["cases"]):
            try_case(case, entry, functions[name], file, save)
    report["done"] = True
    save()
    os._exit(0)  # threads that the student's code has left don't keep the process


def try_case(case: Sequence[Trial], entry: Dict[str, Any], function: Any, file: str, save: Callable[[], Any]) -> None:
    """Run the trials until one is wrong. ``entry``, the case's part of the report, names each before it runs, and is
    saved then; at the end it has the answer."""
    title = entry["title"]
    for trial in case:
        entry.update(title=trial.title, state="trying")
        save()
        answer = answer_of(trial, function, file)
        if answer["state"] == "wrong" or len(case) == 1:
            entry.update(answer)
            return
    entry.update(title=title, state="right")


if __name__ == "__main__":
    given, sys.argv[1:] = sys.argv[1:], []
    check_here(given[0], int(given[1]), Path(given[2]))
