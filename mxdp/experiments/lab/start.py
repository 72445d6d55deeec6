"""Starts the processes of a case, waits for them within a time limit, and says how one has died."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Union

from mxdp.experiments.lab.ranks import Command
from mxdp.launch.guard import die_with_parent

POLL = 0.2
GRACE = 5.0
"""Seconds that a process has to end what it has started elsewhere, as launchers do, before it is killed."""


class Failure(NamedTuple):
    """Why a case could not be measured to its end (with an empty label: all cases); ``status`` is a result's."""

    status: str
    reason: str
    label: str = ""


def wait_for(
    commands: Sequence[Command],
    servers: Sequence[Command],
    limit: float,
    log: Path,
    root: Optional[Path],
    tick: Callable[[], object],
) -> Optional[Failure]:
    """Start these commands, and the ``servers`` beside them, in ``root``; wait until the commands have ended.

    In the end nothing of what they have started runs. All that they print goes to ``log``. ``tick`` is called a few
    times a second. None if all ended well; the status and the reason if one did not within ``limit`` seconds.
    """
    with open(log, "wb") as out, running([*commands, *servers], out, root) as started:
        until = time.monotonic() + limit
        while left := [one for one in started[: len(commands)] if one.poll() is None]:
            if time.monotonic() > until:
                return Failure("timeout", f"no answer within the time limit of {limit:g} s")
            if any(one.poll() for one in started):
                break  # the others may wait for it for ever
            tick()
            with contextlib.suppress(subprocess.TimeoutExpired):
                left[0].wait(POLL)
        code = next((code for code in (one.poll() for one in started) if code), 0)
    return Failure("failed", how_it_died(code, log)) if code else None


@contextlib.contextmanager
def running(
    commands: Sequence[Command], out: Union[int, IO[bytes]], root: Optional[Path] = None
) -> Iterator[List[subprocess.Popen[bytes]]]:
    """Start these, each in a process group of its own; they print into the file ``out``. In the end, end each with all
    that it has started; if this process is killed, they are, too (Linux)."""
    started: List[subprocess.Popen[bytes]] = []
    how: Dict[str, Any] = dict(stdin=subprocess.DEVNULL, stdout=out, stderr=out, cwd=root, start_new_session=True)
    try:
        for command, environ in commands:
            started.append(subprocess.Popen(command, env=environ, preexec_fn=die_with_parent, **how))
        yield started
    finally:
        for one in started:
            one.terminate()
        until = time.monotonic() + GRACE
        for one in started:
            with contextlib.suppress(subprocess.TimeoutExpired):
                one.wait(max(0.0, until - time.monotonic()))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


def how_it_died(code: int, log: Path) -> str:
    """What became of a process with this exit status, in words."""
    if code == -signal.SIGKILL:
        return "the process was killed (SIGKILL), as the system does when memory runs out,"
    if code < 0:
        # Most real-time signals have a number alone.
        return f"the process died of {next((one.name for one in signal.Signals if one == -code), f'signal {-code}')}"
    last = re.findall(rb"\S[^\n]*", log.read_bytes()[-4000:])
    words = f": {last[-1].decode(errors='replace')}" if last else ""
    return f"the process ended with exit status {code}{words}"
