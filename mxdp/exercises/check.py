"""Checks a student's file in a process of its own, with limits.

That process is :mod:`mxdp.exercises.judge`. The process that watches it never reads the student's file.
"""

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
from typing import Any, BinaryIO, List

import psutil

from mxdp import process
from mxdp.errors import MxdpError
from mxdp.exercises.judge import Case, Report, cases_of, printable

SECONDS = 20.0
"""The limit of one trial."""

MEGABYTES = 2000.0
"""The limit of the whole process."""

PRINTED = 1 << 20
"""Bytes that a file may print."""

SHOWN = 4000
"""Bytes at the end of these that a report shows."""

SEED = 0
"""The default seed of the random sizes."""

START_SECONDS = 120.0
"""Limit of MXNet's own start, on a slow disk."""

LOOK_SECONDS = 0.1


def check(
    file: Path,
    seconds: float = SECONDS,
    megabytes: float = MEGABYTES,
    seed: int = SEED,
    number: int = 0,
) -> Report:
    """Run the file's functions against their oracles, in a child process; with ``number`` those of this exercise alone,
    which it must hold.

    The report has ``file``, ``right``, ``problem`` (a sentence if the file can't be checked), ``exercises`` (each with
    ``cases``, see :func:`mxdp.exercises.judge.answer_of`; a case may be "not tried") and ``printed``.

    The limits are for accidents. Code that means harm needs a machine of its own.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder, "answers.json")
        printed = Path(folder, "printed")
        with printed.open("wb") as output:
            child = started(file, seed, answers, number, output)
        try:
            problem = exceeded(child, answers, printed, seconds, megabytes)
        finally:  # its own children end with it
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            # It always ends in time, unless Ctrl-C came while CPython took a lock.
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(10)
        text = printed.read_bytes()[-SHOWN:].decode(errors="replace")
        if not answers.exists():
            lines = text.splitlines() or [problem]
            raise MxdpError(f"the checker can't start: {lines[-1]}")
        report: Report = json.loads(answers.read_text())
    # The part at which the child ended is not known to be right or wrong.
    unknown = [part for part in (*cases_of(report), report) if part.get("problem", "") is None]
    if problem or unknown:
        ended = unknown[0] if unknown else report
        ended["problem"] = problem or broken_off(child.returncode)
    if not file.exists():
        report["problem"] = (
            f"{file} is gone: the code in it deleted or moved it. Restore it from your editor or from git."
        )
    for exercise in report["exercises"]:
        exercise["right"] = all(case["state"] == "right" for case in exercise["cases"])
        settle(exercise["cases"])
    right = not report["problem"] and all(exercise["right"] for exercise in report["exercises"])
    return {**report, "right": right, "printed": printable(text)}


def broken_off(status: int) -> str:
    """What the exit status says of a child that ended by itself."""
    if status < 0:
        return f"It crashes in C ({signal.Signals(-status).name})."
    return f"It ends the process (exit status {status}): return a value instead."


def started(
    file: Path, seed: int, answers: Path, number: int, output: BinaryIO
) -> subprocess.Popen[bytes]:
    """The child, which writes ``answers``, and whose prints go to ``output``."""
    command = [sys.executable, "-u", "-m", "mxdp.exercises.judge"]
    return subprocess.Popen(
        [*command, str(file), str(seed), str(answers), str(number)],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        env=process.unprepared(os.environ),
        start_new_session=True,
    )


def exceeded(child: Any, answers: Path, printed: Path, seconds: float, megabytes: float) -> str:
    """Wait for the child's end, or for the limit that it exceeds, which is the sentence returned."""
    limit = START_SECONDS
    saved = 0
    since = time.monotonic()
    while True:
        ended = child.poll() is not None
        if answers.exists() and answers.stat().st_mtime_ns != saved:
            limit = seconds
            saved = answers.stat().st_mtime_ns
            since = time.monotonic()
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


def settle(cases: List[Case]) -> None:
    """Keep one hint of a case: in a small case two mistakes can give the same, so the one that fits in most cases."""
    counts = Counter(hint for case in cases for hint in case.get("hints", ()))
    for case in cases:
        hints = case.pop("hints", [])
        if hints:
            case["hint"] = max(hints, key=lambda hint: counts[hint])
