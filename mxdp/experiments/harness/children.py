"""The runner's side of its child processes: start, ask, wait within the time limit, stop."""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, FrozenSet, List, Mapping, Optional, Tuple, Type

from mxdp import process
from mxdp.experiments.harness.experiment import Case, Experiment, Settings

GRACE_SECONDS = 5
LONGEST_WAIT = 86400.0
"""Seconds of one ``select``, which refuses to wait for centuries; a longer time limit takes several."""


class ChildFailure(Exception):
    """A case can't be measured to its end; ``status`` is the result's: ``failed``, ``timeout`` or ``skipped``."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class ChildGone(ChildFailure):
    """The process died or was stopped, so no case can continue in it."""


def environment_for(case: Case, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """The user's environment, without the variables that mxdp itself set, and with the case's changes."""
    environment = {**process.unprepared(environ), **case.environment}
    return {name: value for name, value in environment.items() if value is not None}


class Child:
    """One process. Its stderr goes to ``log``. It has a process group of its own, so that what it starts can be
    stopped with it."""

    lost: Optional[Tuple[str, str]] = None
    """If a case made the process crash or hang: the status and label of that case."""

    def __init__(self, experiment: Experiment, settings: Settings, environment: Dict[str, str], log: Path) -> None:
        self.log = log
        self._buffer = b""
        self._cases = 0
        self._stopped = False
        order = json.dumps({**_address(experiment), "settings": settings})
        with open(log, "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mxdp.experiments.measure.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment,
                start_new_session=True,
            )
        self.tell(order)

    def take(self, case: Case) -> int:
        """Send a case to the process; the number by which commands name it."""
        self.tell(f"case {json.dumps(asdict(case))}")
        self._cases += 1
        return self._cases - 1

    def tell(self, line: str) -> None:
        """Send one line. If the child has died, the next :meth:`answer` says so."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self, doing: str, deadline: float) -> Dict[str, Any]:
        """The answer to the last command, by ``deadline`` (``time.monotonic``).

        Raises:
            ChildGone: it took too long (then the child is stopped) or died.
            ChildFailure: it answered with an error, and accepts further commands.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            ready, _, _ = select.select([descriptor], [], [], max(0.0, min(left, LONGEST_WAIT)))
            if not ready:
                if left > LONGEST_WAIT:
                    continue
                self.stop()
                raise ChildGone("timeout", f"no answer within the time limit while {doing}")
            block = os.read(descriptor, 1 << 16)
            if not block:
                death = self._how_it_died()
                self.stop()
                raise ChildGone("failed", f"{death} while {doing}")
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: Dict[str, Any] = json.loads(line)
        if "skipped" in answer:
            raise ChildFailure("skipped", answer["skipped"])
        if "error" in answer:
            raise ChildFailure("failed", f"{answer['error']} (while {doing})")
        result: Dict[str, Any] = answer["ok"]
        return result

    def _how_it_died(self) -> str:
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return "the process closed its output"
        if code == -signal.SIGKILL:
            return "the process was killed (SIGKILL), as the system does when memory runs out,"
        if code < 0:
            # Most real-time signals have a number alone.
            name = next((each.name for each in signal.Signals if each == -code), f"signal {-code}")
            return f"the process died of {name}"
        last = re.findall(rb"\S[^\n]*", self.log.read_bytes()[-4000:])
        said = f": {last[-1].decode(errors='replace')}" if last else ""
        return f"the process ended with exit status {code}{said}"

    def hang_up(self) -> None:
        """Close the process's input, so that it ends by itself."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def close(self) -> None:
        """Hang up, and stop the process if it does not end."""
        self.hang_up()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self.stop()

    def stop(self) -> None:
        """Kill the process and all that it started, and wait for it.

        A second call does nothing: by then its number may belong to another process.
        """
        if self._stopped:
            return
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._stopped = True
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def __enter__(self) -> Child:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.stop()
        if self.log.exists() and not self.log.stat().st_size:
            self.log.unlink()


class Configuration:
    """One case in its processes (usually one), which get each command together and are waited for together."""

    def __init__(self, case: Case, children: List[Child], timeout: float, shared: bool = False) -> None:
        self.case = case
        self.seconds_left = self._limit = float(timeout)
        self._children, self._shared = children, shared
        self._numbers: List[int] = []

    def check(self) -> None:
        """Check that no other case has made the shared process crash or hang.

        Raises:
            ChildFailure: one has.
        """
        for child in self._children:
            if child.lost:
                status, label = child.lost
                raise ChildFailure(status, f"the process shared with {label} is gone")

    def load(self) -> None:
        """Wait until every process has loaded MXNet, which it does from its start.

        Raises:
            ChildFailure: as :meth:`ask`.
        """
        self._tell(["load"] * len(self._children), "loading MXNet")

    def ask(self, command: str, doing: str) -> List[Dict[str, Any]]:
        """Have every process do ``command`` for this case; their answers.

        Raises:
            ChildFailure: as :meth:`Child.answer`. The time limit counts the time spent in here, over all calls.
        """
        if not self._numbers:
            self._numbers = [child.take(replace(self.case, process=n)) for n, child in enumerate(self._children)]
        return self._tell([f"{command} {number}" for number in self._numbers], doing)

    def _tell(self, lines: List[str], doing: str) -> List[Dict[str, Any]]:
        started = time.monotonic()
        for child, line in zip(self._children, lines):
            child.tell(line)
        try:
            return [child.answer(doing, started + self.seconds_left) for child in self._children]
        except ChildGone as failure:
            if failure.status == "timeout":
                raise ChildGone("timeout", f"stopped after {self._limit:g} s: {failure}") from None
            raise
        finally:
            self.seconds_left -= time.monotonic() - started

    def give_up(self, failure: ChildFailure) -> None:
        """After ``failure``: stop every process of the case, except a shared one that still works."""
        if self._shared and not isinstance(failure, ChildGone):
            return
        for child in self._children:
            child.lost = child.lost or (failure.status, self.case.label)
            child.stop()


class Children:
    """The processes of all cases of one experiment, each started for the first case that needs it.

    Their logs go to ``folder``. In ``kept``, each case has the folder of its own that :attr:`Case.folder` names.
    ``stack`` ends the processes when it is left.
    """

    def __init__(self, experiment: Experiment, settings: Settings, folder: Path, kept: Path, stack: ExitStack) -> None:
        self._experiment, self._settings, self._folder, self._kept = experiment, settings, folder, kept
        self._stack = stack
        self._shared: Dict[FrozenSet[Tuple[str, Optional[str]]], Child] = {}
        self._started: List[Child] = []

    def hang_up(self) -> None:
        """Let all processes end, at the same time: each takes some tenths of a second."""
        for child in self._started:
            child.hang_up()

    def configuration(self, case: Case, slug: str) -> Configuration:
        """``case``, in processes of its own or, with ``together``, in the one that its environment has.

        ``slug`` names the logs of its own processes. Raises OSError where a process can't be started.
        """
        timeout, kept = self._settings["timeout"], self._kept / slug
        kept.mkdir(exist_ok=True)
        case = replace(case, folder=str(kept))
        if not self._experiment.together or case.processes > 1:
            return Configuration(case, [self._start(case, f"{slug}.{n}") for n in range(case.processes)], timeout)
        key = frozenset(case.environment.items())
        if key not in self._shared:
            self._shared[key] = self._start(case, str(len(self._shared)))
        return Configuration(case, [self._shared[key]], timeout, shared=True)

    def _start(self, case: Case, name: str) -> Child:
        log = self._folder / f"{self._experiment.name}.{name}.stderr.txt"
        self._started.append(Child(self._experiment, self._settings, environment_for(case), log))
        return self._stack.enter_context(self._started[-1])


def _address(experiment: Experiment) -> Dict[str, str]:
    return {"module": type(experiment).__module__, "class": type(experiment).__qualname__}
