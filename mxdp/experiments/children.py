"""The runner's side of its child processes: start, ask, wait no longer than agreed, stop."""

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
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Dict, List, Mapping, Optional, Type

from mxdp import process
from mxdp.experiments.registry import Case, Experiment, Settings

GRACE_SECONDS = 5


class ChildFailure(Exception):
    """A configuration ended before its time; ``status`` is the result's: ``failed`` or ``timeout``."""

    def __init__(self, status: str, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def environment_for(case: Case, environ: Mapping[str, str] = os.environ) -> Dict[str, str]:
    """The user's environment, without what mxdp's own preparation put into it, and with the case's changes."""
    environment = {**process.unprepared(environ), **case.environment}
    return {name: value for name, value in environment.items() if value is not None}


class Child:
    """One process. Its stderr goes to ``log``; its own process group lets us stop what it may start."""

    def __init__(self, experiment: Experiment, case: Case, settings: Settings, log: Path) -> None:
        self.log = log
        self._buffer = b""
        with open(log, "wb") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "mxdp.experiments.child"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                env=environment_for(case),
                start_new_session=True,
            )
        self.tell(json.dumps({**_address(experiment), "case": asdict(case), "settings": settings}))

    def tell(self, line: str) -> None:
        """Send one line. A child that has died is found out by the next :meth:`answer`."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass

    def answer(self, doing: str, deadline: float) -> Dict[str, Any]:
        """The answer to what was told, by ``deadline`` (``time.monotonic``).

        Raises:
            ChildFailure: it took too long (then the child is stopped), died, or answered with an error.
        """
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                self.stop()
                raise ChildFailure("timeout", f"no answer within the time limit while {doing}")
            block = os.read(descriptor, 1 << 16)
            if not block:
                raise ChildFailure("failed", f"{self._how_it_died()} while {doing}")
            self._buffer += block
        line, _, self._buffer = self._buffer.partition(b"\n")
        answer: Dict[str, Any] = json.loads(line)
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
            return f"the process died of {signal.Signals(-code).name}"
        last = re.findall(rb"\S[^\n]*", self.log.read_bytes()[-4000:])
        said = f": {last[-1].decode(errors='replace')}" if last else ""
        return f"the process ended with exit status {code}{said}"

    def close(self) -> None:
        """Tell the process that nothing more will come, so that it can end by itself; see that it does."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_SECONDS)
        self.stop()

    def stop(self) -> None:
        """End the process and all that it started. Nothing of it is left afterwards."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


class Configuration:
    """The processes of one case (one, as a rule), told the same thing at the same time and waited for together."""

    def __init__(self, experiment: Experiment, case: Case, settings: Settings, folder: Path) -> None:
        self.case = case
        self.seconds_left = float(settings["timeout"])
        self._limit = self.seconds_left
        slug = re.sub(r"[^a-z0-9]+", "-", case.label.lower()).strip("-")
        self._logs = [folder / f"{experiment.name}.{slug}.{number}.stderr.txt" for number in range(case.processes)]
        self._children = [
            Child(experiment, replace(case, process=number), settings, log) for number, log in enumerate(self._logs)
        ]

    def ask(self, command: str, doing: str) -> List[Dict[str, Any]]:
        """Have every process do ``command``; their answers.

        Raises:
            ChildFailure: as :meth:`Child.answer`. The time limit counts only the time spent in here, over all calls.
        """
        started = time.monotonic()
        for child in self._children:
            child.tell(command)
        try:
            return [child.answer(doing, started + self.seconds_left) for child in self._children]
        except ChildFailure as failure:
            if failure.status == "timeout":
                raise ChildFailure("timeout", f"stopped after {self._limit:g} s: {failure}") from None
            raise
        finally:
            self.seconds_left -= time.monotonic() - started

    def stop(self) -> None:
        """Stop every process of the case."""
        for child in self._children:
            child.stop()

    def __enter__(self) -> Configuration:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        for child in self._children:
            if kind is None:
                child.close()
            else:
                child.stop()
        for log in self._logs:
            if log.exists() and not log.stat().st_size:
                log.unlink()


def _address(experiment: Experiment) -> Dict[str, str]:
    return {"module": type(experiment).__module__, "class": type(experiment).__qualname__}
