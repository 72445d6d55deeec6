"""One run of ``mpiexec``: its ranks' output and heartbeats, the first failure, and the end of everything."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Dict, List, Mapping, NoReturn, Optional, Sequence

from mxdp.launch.guard import ADDRESS, LONGEST, die_with_parent

LAST_LINES = 10
START = 30.0
"""Seconds in which a rank must start, if no rank may be silent for longer. Logging in to a host takes some."""
SILENT = 124
"""Exit status for a rank that is silent, as of ``timeout``."""


class Stopped(Exception):
    """A signal asks the launcher to end; its argument is the signal's number."""


@dataclass
class Guarded:
    """A connection, and what the guard at its other end has said. ``rank`` is None until it has said who it is."""

    socket: socket.socket
    heard: float
    rank: Optional[int] = None
    host: str = ""
    step: int = 0
    stopped: float = 0.0
    exit: Optional[int] = None
    closed: bool = False
    unread: bytes = b""
    last: Deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}" + (f" after step {self.step}" if self.step else "")


@dataclass
class LaunchFailure:
    """Why a job ended: in words, with the exit status and the last lines of the one that failed."""

    status: int
    what: str
    lines: Sequence[str] = ()


class Launch:
    """``size`` ranks, started by ``mpiexec``, a command line to which the guards' own is added.

    ``silent``: seconds after which a rank that says nothing, or is stopped, is an end; 0: never.
    """

    def __init__(self, mpiexec: Sequence[str], environ: Mapping[str, str], size: int, address: str, silent: float):
        self.size, self.silent, self.started = size, silent, time.monotonic()
        self.ranks: Dict[int, Guarded] = {}
        self.connections: List[Guarded] = []
        self.own: Deque[str] = deque(maxlen=LAST_LINES)
        self.failure: Optional[LaunchFailure] = None
        self.password = secrets.token_hex(16)
        self.selector = selectors.DefaultSelector()
        self.listener = socket.create_server((address, 0), backlog=size)
        self.selector.register(self.listener, selectors.EVENT_READ, self.accept)
        where = f"{address} {self.listener.getsockname()[1]} {self.password} {silent}"
        self.mpiexec = subprocess.Popen(
            list(mpiexec),
            env={**environ, ADDRESS: where},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the launcher alone, which then ends the rest
            preexec_fn=die_with_parent,
        )
        assert self.mpiexec.stdout is not None
        self.output = self.mpiexec.stdout.fileno()
        self.selector.register(self.output, selectors.EVENT_READ, self.hear_mpiexec)

    def run(self) -> Optional[LaunchFailure]:
        """Show the ranks' output until all have ended. Returns the first failure. Nothing is left behind."""
        done = threading.Event()
        threading.Thread(target=self.reassure, args=(done,), daemon=True).start()
        try:
            while self.failure is None and (self.output >= 0 or not all(each.closed for each in self.ranks.values())):
                self.wait()
                self.failure = self.failure or self.silence()
            self.failure = self.failure or self.unexplained()
            return self.failure
        finally:
            done.set()
            self.end()

    def wait(self) -> None:
        """Handle what has come within a part of a second."""
        for key, _ in self.selector.select(0.2):
            key.data(key.fileobj)

    def accept(self, listener: socket.socket) -> None:
        """A guard calls."""
        connection = Guarded(listener.accept()[0], time.monotonic())
        connection.socket.settimeout(1)
        self.connections.append(connection)
        self.selector.register(connection.socket, selectors.EVENT_READ, lambda _: self.hear(connection))

    def hear(self, guard: Guarded) -> None:
        """A guard has said something, or has ended."""
        try:
            read = guard.socket.recv(LONGEST)
        except OSError:
            read = b""
        guard.heard = time.monotonic()
        *messages, guard.unread = (guard.unread + read).split(b"\n")
        try:
            for message in messages:
                self.note(guard, **json.loads(message))
        except (TypeError, ValueError, PermissionError):
            guard.rank, read = None, b""  # somebody else
        if not read or (guard.rank is None and len(guard.unread) > LONGEST):
            guard.closed = True
            self.selector.unregister(guard.socket)
            self.connections.remove(guard)
            guard.socket.close()

    def note(
        self,
        guard: Guarded,
        step: int,
        password: str = "",
        rank: int = 0,
        host: str = "",
        out: Optional[str] = None,
        err: Optional[str] = None,
        stopped: Optional[float] = None,
        exit: Optional[int] = None,
    ) -> None:
        """Take one message."""
        if guard.rank is None:
            if not hmac.compare_digest(password.encode(), self.password.encode()):
                raise PermissionError
            guard.rank, guard.host = rank, host
            self.ranks[rank] = guard
        guard.step = step
        for text, file in ((out, sys.stdout), (err, sys.stderr)):
            if text is not None:
                line = f"[{guard.rank}] {text}"
                guard.last.append(line)
                print(line, file=file, flush=True)
        if stopped is not None:
            guard.stopped = stopped
        if exit is not None:
            guard.exit = exit
            if exit and self.failure is None:
                status = exit if exit > 0 else 128 - exit
                self.failure = LaunchFailure(status, f"{guard} {ending(exit)}", guard.last)

    def hear_mpiexec(self, output: int) -> None:
        """What ``mpiexec`` itself says is shown while all is well. (After a failure it says that there was one.)"""
        read = os.read(output, LONGEST)
        for line in read.decode(errors="replace").splitlines():
            self.own.append(f"[mpiexec] {line}")
            if self.failure is None:
                print(self.own[-1], file=sys.stderr, flush=True)
        if not read:
            self.selector.unregister(output)
            self.output = -1

    def silence(self) -> Optional[LaunchFailure]:
        """The ranks that are silent for too long, if any."""
        now = time.monotonic()
        if not self.silent:
            return None
        alive = [guard for guard in self.ranks.values() if not guard.closed and guard.exit is None]
        for guard in alive:
            if guard.stopped >= self.silent:
                return LaunchFailure(SILENT, f"{guard} has been stopped for {guard.stopped:.0f} s", guard.last)
        cut = [guard for guard in alive if now - guard.heard >= self.silent]
        if cut:
            what = f"{', '.join(map(str, cut))}: not heard of for {now - cut[0].heard:.0f} s (stopped, or cut off)"
            return LaunchFailure(SILENT, what, cut[0].last)
        late = [rank for rank in range(self.size) if rank not in self.ranks]
        limit = max(self.silent, START)
        if late and now - self.started >= limit:
            return LaunchFailure(
                SILENT, f"rank {', '.join(map(str, late))} did not start within {limit:.0f} s", self.own
            )
        return None

    def unexplained(self) -> Optional[LaunchFailure]:
        """``mpiexec`` has ended, and no rank has said that it failed. Did it end well?"""
        status = self.mpiexec.wait()
        status = status if status >= 0 else 128 - status
        for guard in self.ranks.values():
            if guard.exit is None and any("MPI_Abort" in line for line in guard.last):  # which kills the guards, too
                return LaunchFailure(status or 1, f"{guard} called MPI_Abort", guard.last)
        lost = [guard for guard in self.ranks.values() if guard.exit is None]
        if lost:
            return LaunchFailure(status or 1, f"{', '.join(map(str, lost))}: killed, and the guard too", lost[0].last)
        return LaunchFailure(status, f"mpiexec failed with exit status {status}", self.own) if status else None

    def reassure(self, done: threading.Event) -> None:
        """Tell the guards every second that the launcher is there. In a thread: to print may take long."""
        while not done.wait(min(1.0, self.silent / 5) if self.silent else 1.0):
            for guard in list(self.connections):
                with contextlib.suppress(OSError):
                    guard.socket.send(b".", getattr(socket, "MSG_DONTWAIT", 0))

    def end(self) -> None:
        """End all processes: first by the guards, which hear that the launcher is gone; then by ``mpiexec``."""
        until = time.monotonic() + 1
        failed = [guard for guard in self.ranks.values() if guard.exit]
        while self.failure and failed and not failed[0].closed and time.monotonic() < until:
            self.wait()  # for its last lines
        self.listener.close()
        for guard in self.connections:
            guard.socket.close()
        assert self.mpiexec.stdout is not None
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            if number:
                self.mpiexec.send_signal(number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.mpiexec.communicate(timeout=5)
                break
        self.selector.close()


def ending(exit: int) -> str:
    """An exit status in words.

    >>> ending(3), ending(-9)
    ('failed with exit status 3', 'was killed by signal 9 (SIGKILL)')
    """
    if exit >= 0:
        return f"failed with exit status {exit}"
    with contextlib.suppress(ValueError):
        return f"was killed by signal {-exit} ({signal.Signals(-exit).name})"
    return f"was killed by signal {-exit}"


def stop(number: int, frame: object) -> NoReturn:
    """Handles a signal to the launcher."""
    raise Stopped(number)
