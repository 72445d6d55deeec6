"""Checks a student's file in a process of its own, with limits, and says what came of it."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List

import psutil

from mxdp import process
from mxdp.exercises import EXERCISES

SECONDS, MEGABYTES = 20.0, 2000.0
"""Limits of one case, and of the whole process."""

PRINTED, SHOWN = 1 << 20, 4000
"""Most characters that a file may print, and those that are kept."""

SEED = 0
"""From which the sizes at random follow."""

START_SECONDS = 120.0
"""MXNet's own start, on a slow disk."""

CHANNEL_CLOSED = 96
"""The child's exit status when the student's code has closed what is not its own."""

WRITES = "It writes to a file descriptor that is not its own, through which the checker gets its answers."

LOOK_SECONDS = 0.1

Report = Dict[str, Any]


def check(file: Path, seconds: float = SECONDS, megabytes: float = MEGABYTES, seed: int = SEED) -> Report:
    """Run the file's functions against their oracles. It is read in the child process alone.

    The report has ``file``, ``right``, ``problem`` (a sentence if the file can't be checked), ``exercises`` (each with
    ``cases``, see :func:`mxdp.exercises.trial.tried`; a case may be "not tried") and ``printed``.
    ``seed`` decides the sizes at random.

    The limits are for accidents. Code that means harm needs a machine of its own.
    """
    child = _Child(file, seconds, megabytes, seed)
    try:
        child.listen()
    finally:
        child.stop()
    if not file.exists():
        child.fail(f"{file} is gone: the code in it deleted or moved it. Restore it from your editor or from git.")
    cases = [case for exercise in child.exercises for case in exercise["cases"]]
    for exercise in child.exercises:
        exercise["right"] = all(case["state"] == "right" for case in exercise["cases"])
        settle(exercise["cases"])
    right = not child.problem and bool(cases) and all(exercise["right"] for exercise in child.exercises)
    printed = child.printed.decode(errors="replace")
    return dict(file=str(file), right=right, problem=child.problem, exercises=child.exercises, printed=printed[-SHOWN:])


def settle(cases: List[Dict[str, Any]]) -> None:
    """Keep one hint of a case: in a small case two mistakes can give the same, so the one that fits in most cases."""
    counts = Counter(hint for case in cases for hint in case.get("hints", ()))
    for case in cases:
        hints = case.pop("hints", [])
        if hints:
            case["hint"] = max(hints, key=lambda hint: counts[hint])


class _Child:
    def __init__(self, file: Path, seconds: float, megabytes: float, seed: int) -> None:
        self.seconds, self.megabytes = seconds, megabytes
        self.problem = ""
        self.exercises: List[Dict[str, Any]] = []
        self.printed = b""
        self._trying: Dict[str, Any] = {}
        self._done = False
        self._limit, self._deadline = START_SECONDS, time.monotonic() + START_SECONDS
        self._messages, channel = os.pipe()
        self._password = secrets.token_hex(8)
        self._process = subprocess.Popen(
            [sys.executable, "-u", "-m", "mxdp.exercises.child", str(file), str(channel), str(seed), self._password],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[channel],
            env=process.unprepared(os.environ),
            start_new_session=True,
        )
        os.close(channel)

    def listen(self) -> None:
        """Follow the child to its end, or to a limit."""
        assert self._process.stdout
        output, unread = self._process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._messages, output):
                selector.register(descriptor, selectors.EVENT_READ)
            while not self._done:
                for key, _ in selector.select(LOOK_SECONDS):
                    text = os.read(key.fd, 1 << 16)
                    if not text:
                        selector.unregister(key.fd)
                    elif key.fd == output:
                        self.printed += text
                    else:
                        *lines, unread = (unread + text).split(b"\n")
                        for line in lines:
                            if not line.startswith(self._password.encode()):
                                return self.fail(WRITES)
                            self._hear(json.loads(line[len(self._password) :]))
                if self._messages not in selector.get_map():
                    return self.fail(self._ended())
                if len(unread) > PRINTED:
                    return self.fail(WRITES)
                if len(self.printed) > PRINTED:
                    return self.fail("It prints more than 1 MB: is there a print in a loop without an end?")
                if self._megabytes() > self.megabytes:
                    return self.fail(f"It takes more than {self.megabytes:,.0f} MB of memory.")
                if time.monotonic() > self._deadline:
                    return self.fail(f"It does not end within {self._limit:g} s: is there a loop without an end?")

    def _hear(self, message: Dict[str, Any]) -> None:
        self._limit, self._deadline = self.seconds, time.monotonic() + self.seconds
        if "problem" in message:
            self.problem, self._done = message["problem"], True
        for name, titles in message.get("found", {}).items():
            exercise, cases = EXERCISES[name], [dict(title=title, state="not tried") for title in titles]
            self.exercises.append(
                dict(number=exercise.number, title=exercise.title, function=name, right=False, cases=cases)
            )
        if "trying" in message:
            name, number, title = message["trying"]
            self._trying = next(each for each in self.exercises if each["function"] == name)["cases"][number]
            self._trying["title"] = title
        if "tried" in message:
            self._trying.update(message["tried"])
            self._trying = {}
        self._done = self._done or "done" in message

    def fail(self, sentence: str) -> None:
        """What ended the check: of the case that was tried, or of the whole file."""
        if self._trying:
            self._trying.update(state="wrong", problem=sentence)
        else:
            self.problem = sentence

    def _ended(self) -> str:
        """Why there will be no more messages."""
        try:
            status = self._process.wait(LOOK_SECONDS * 50)
        except subprocess.TimeoutExpired:
            status = CHANNEL_CLOSED
        if status == CHANNEL_CLOSED:
            return "It closes file descriptors that are not its own."
        if status < 0:
            return f"It crashes in C ({signal.Signals(-status).name})."
        return f"It ends the process (exit status {status}): return a value instead."

    def _megabytes(self) -> float:
        with contextlib.suppress(psutil.Error):
            return float(psutil.Process(self._process.pid).memory_info().rss) / 1e6
        return 0.0

    def stop(self) -> None:
        """End the child, and what it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout
        self._process.stdout.close()
        os.close(self._messages)
