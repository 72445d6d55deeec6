"""Checks a student's file in a process of its own, with limits, and says what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List

import psutil

from mxdp import process
from mxdp.errors import MxdpError

SECONDS, MEGABYTES = 20.0, 2000.0
"""Limits of one trial, and of the whole process."""

PRINTED, SHOWN = 1 << 20, 4000
"""How many bytes a file may print, and how many of the last ones a report shows."""

SEED = 0
"""From which the sizes at random follow."""

START_SECONDS = 120.0
"""MXNet's own start, on a slow disk."""

LOOK_SECONDS = 0.1

Report = Dict[str, Any]


def check(file: Path, seconds: float = SECONDS, megabytes: float = MEGABYTES, seed: int = SEED) -> Report:
    """Run the file's functions against their oracles. It is read in the child process alone.

    The report has ``file``, ``right``, ``problem`` (a sentence if the file can't be checked), ``exercises`` (each with
    ``cases``, see :func:`mxdp.exercises.child.answer_of`; a case may be "not tried") and ``printed``.
    ``seed`` decides the sizes at random.

    The limits are for accidents. Code that means harm needs a machine of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers, printed = Path(folder, "answers.json"), Path(folder, "printed")
        with printed.open("wb") as output:
            child = subprocess.Popen(
                [sys.executable, "-u", "-m", "mxdp.exercises.child", str(file), str(seed), str(answers)],
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
            child.wait()
        text = printed.read_bytes()[-SHOWN:].decode(errors="replace")
        if not answers.exists():
            raise MxdpError(f"the checker can't start: {(text.splitlines() or [problem])[-1]}")
        report: Report = printable(json.loads(answers.read_text()))
    if not report.pop("done") or problem:
        blame(report, problem or how_it_ended(child.returncode))
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


def how_it_ended(status: int) -> str:
    """Why there is no answer, by the exit status."""
    if status < 0:
        return f"It crashes in C ({signal.Signals(-status).name})."
    return f"It ends the process (exit status {status}): return a value instead."


def blame(report: Report, problem: str) -> None:
    """What ended the check: of the case that was tried, or of the whole file."""
    cases = [case for exercise in report["exercises"] for case in exercise["cases"] if case["state"] == "trying"]
    if cases:
        cases[0].update(state="wrong", problem=problem)
    else:
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
