"""One run of ``mpiexec``: its ranks' output and heartbeats, the first failure, and the end of everything."""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from multiprocessing import connection
from typing import Any, BinaryIO, Deque, Dict, List, Mapping, Optional

from mxdp.errors import MxdpError
from mxdp.launch.guard import ADDRESS, BEAT, INSIDE, LONGEST, WHERE, die_with_parent
from mxdp.launch.guarded import (
    LAST_LINES,
    Guarded,
    LaunchFailure,
    ending,
    forget_lost_memory,
    lost,
    named,
    print_line,
)

GRACE = 5.0
"""Seconds in which ``mpiexec`` must end by itself, and then by SIGTERM."""
START = 30.0
"""Seconds in which a rank must start, if no rank may be silent for longer. Logging in to a host takes some."""
SILENT = 124
"""Exit status for a rank that is silent, as of ``timeout``."""
TURN = 1.0
"""Seconds that one turn of the launcher counts at most. A longer one was held up: by its own output, or by a stop."""
STRANGERS = 32
"""Connections, beside one for each rank, that may be open and have not given the password."""
GREETING = 10.0
SHORT = 1000
"""Seconds and bytes in which a connection must give the password."""
Logs = Dict[int, BinaryIO]
"""Unbuffered files, by rank."""


class Launch:
    """``size`` ranks, started by ``words``: the command line of ``mpiexec`` with that of the guards.

    ``silent``: seconds after which a rank that says nothing, or is stopped, is an end; 0: never. ``hung``: seconds
    without a step of any rank, after the first, that are an end; 0: never. ``logs`` also get the ranks' output; a file
    that can't be written is taken out.
    """

    def __init__(
        self,
        words: List[str],
        environ: Dict[str, str],
        size: int,
        address: str,
        silent: float,
        hung: float,
        logs: Logs,
    ) -> None:
        self.size = size
        self.silent = silent
        self.hung = hung
        self.logs = logs
        self.now = 0.0
        self.turn = time.monotonic()
        self.began = time.time()
        self.steps = 0  # of all ranks
        self.progress = 0.0  # when they last became more
        self.ranks: Dict[int, Guarded] = {}
        self.connections: Dict[socket.socket, Guarded] = {}
        self.last: Deque[str] = deque(maxlen=LAST_LINES)
        self.failure: Optional[LaunchFailure] = None
        self.password = secrets.token_hex(16)
        self.listener = socket.create_server((address, 0), backlog=size)
        self.listener.setblocking(False)
        where = f"{address} {self.listener.getsockname()[1]} {self.password} {silent}"
        self.mpiexec = subprocess.Popen(
            words,
            env={**environ, ADDRESS: where},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches the launcher alone, which then ends the rest
            preexec_fn=die_with_parent,
        )
        assert self.mpiexec.stdout is not None
        self.outputs = [self.mpiexec.stdout.fileno()]  # none at its end
        self.unread = b""  # the start of a line of it

    def run(self) -> Optional[LaunchFailure]:
        """Show the ranks' output until all have ended. Returns the first failure. Nothing is left behind."""
        done = threading.Event()
        threading.Thread(target=self.reassure, args=(done,), daemon=True).start()
        try:
            while self.failure is None and (self.outputs or self.connected()):
                self.wait()
                self.failure = self.failure or self.silence() or self.standstill()
            self.failure = self.failure or self.unexplained()
            self.hear_out()
            return self.failure
        finally:
            done.set()
            self.end()

    def wait(self) -> None:
        """Handle what has come within a part of a second. ``now`` counts the seconds in which the launcher listened."""
        ready: List[Any] = connection.wait([self.listener, *self.outputs, *self.connections], 0.2)
        before = self.turn
        self.turn = time.monotonic()
        self.now += min(self.turn - before, TURN)
        for source in ready:
            if source is self.listener:
                self.accept()
            elif source in self.outputs:
                self.hear_mpiexec(source)
            elif source in self.connections:  # not closed by one of the others
                self.hear(self.connections[source])
        for guard in self.strangers():
            if self.now - guard.heard >= GREETING:
                self.close(guard)

    def strangers(self) -> List[Guarded]:
        """Connections that have not given the password, the oldest first. They are not trusted."""
        return [guard for guard in self.connections.values() if guard.rank is None]

    def accept(self) -> None:
        """Accept a connection. The oldest stranger makes room if there are too many, or if no file can be opened."""
        strangers = self.strangers()
        accepted = None
        with contextlib.suppress(OSError):  # it has gone, or too many files are open
            accepted = self.listener.accept()[0]
            accepted.setblocking(False)
            self.connections[accepted] = Guarded(accepted, self.now)
        if strangers and (accepted is None or len(strangers) >= self.size + STRANGERS):
            self.close(strangers[0])

    def close(self, guard: Guarded) -> None:
        """Hang up."""
        if self.connections.pop(guard.socket, None):
            guard.closed = True
            guard.socket.close()

    def hear(self, guard: Guarded) -> None:
        """Read what a guard says. Its first line must be the password; only what follows is parsed."""
        try:
            read = guard.socket.recv(LONGEST)
        except BlockingIOError:
            return
        except OSError:
            read = b""
        *lines, guard.unread = (guard.unread + read).split(b"\n")
        if guard.rank is None and lines and not self.greeted(guard, lines.pop(0)):
            return self.close(guard)
        for line in lines:
            self.note(guard, json.loads(line))
        if not read or (guard.rank is None and len(guard.unread) > SHORT):
            self.close(guard)

    def greeted(self, guard: Guarded, line: bytes) -> bool:
        """Whether the first line has the password and a rank that has not called yet."""
        password, _, rest = line.partition(b" ")
        if not hmac.compare_digest(password, self.password.encode()):
            return False
        number, guard.host = rest.decode().split()
        guard.rank = int(number)
        guard.heard = self.now
        if guard.rank not in range(self.size):
            return False
        return self.ranks.setdefault(guard.rank, guard) is guard

    def note(self, guard: Guarded, message: Mapping[str, Any]) -> None:
        """Take one message of a guard."""
        guard.heard = self.now
        guard.step = message["step"]
        guard.part = message["part"]
        guard.stopped = message.get("stopped", guard.stopped)
        for name, file in (("out", sys.stdout), ("err", sys.stderr)):
            if name in message:
                raw = message[name].encode(errors="surrogateescape")
                line = f"[{guard.rank}] {raw.decode(errors='replace')}"
                guard.last.append(line)
                self.log(guard, raw)
                print_line(line, file)
        if "exit" in message:
            self.note_exit(guard, message["exit"])

    def note_exit(self, guard: Guarded, status: int) -> None:
        """Take a command's exit status. The first failure counts, or a later signal, which has ended the others."""
        others = [rank.exit for rank in self.ranks.values() if rank.exit]
        guard.exit = status
        is_cause = self.failure is None or (others and min(others) > 0 > status)
        if is_cause and status:
            code = status if status > 0 else 128 - status
            self.failure = LaunchFailure(code, f"{guard} {ending(status)}", guard.last)
        elif is_cause and guard.part == INSIDE:
            what = f"{guard} ended with exit status 0 before the other ranks"
            self.failure = LaunchFailure(1, what, guard.last)

    def log(self, guard: Guarded, line: bytes) -> None:
        """Keep a line of a rank. Where that fails, the ranks go on."""
        file = self.logs.get(guard.rank or 0)
        if file:
            try:
                file.write(line + b"\n")
            except OSError as error:
                del self.logs[guard.rank or 0]
                said = f"mxdp.launch: {file.name} is not continued: {error.strerror}"
                print_line(said, sys.stderr)

    def hear_mpiexec(self, output: int) -> None:
        """Show what ``mpiexec`` itself prints, but not after a failure, of which it only says that there was one."""
        read = os.read(output, LONGEST)
        *lines, self.unread = (self.unread + read).split(b"\n")
        if not read:
            self.outputs.remove(output)
            lines.append(self.unread)
        for line in filter(None, lines):
            self.last.append(f"[mpiexec] {line.decode(errors='replace').rstrip()}")
            if self.failure is None:
                print_line(self.last[-1], sys.stderr)

    def connected(self) -> List[Guarded]:
        """The guards that are still connected."""
        return [guard for guard in self.ranks.values() if not guard.closed]

    def alive(self) -> List[Guarded]:
        """The guards of commands that have not ended."""
        return [guard for guard in self.connected() if guard.exit is None]

    def silence(self) -> Optional[LaunchFailure]:
        """The ranks that are silent for too long, or never started, if any."""
        alive = self.alive()
        without = [guard for guard in self.ranks.values() if guard.exit == 0 and not guard.part]
        waiting = [guard for guard in alive if guard.part == INSIDE]
        if without and waiting:
            what = f"{without[0]} has ended without mxdp.world(); waiting there: {named(waiting)}"
            return LaunchFailure(1, what, without[0].last)
        # MPICH's mpiexec ends all by itself, and then says more. Others may do nothing.
        gone = [guard for guard in self.ranks.values() if guard.closed and guard.exit is None]
        if gone and self.now - gone[0].heard >= GRACE:
            return lost(gone, 1)
        if not self.silent:
            return None
        for guard in alive:
            if guard.stopped >= self.silent:
                what = f"{guard} has been stopped for {guard.stopped:.0f} s"
                return LaunchFailure(SILENT, what, guard.last)
        cut = [guard for guard in alive if self.now - guard.heard >= self.silent]
        if cut:
            what = f"{named(cut)}: not heard of for {self.now - cut[0].heard:.0f} s (stopped, or cut off)"
            return LaunchFailure(SILENT, what, cut[0].last)
        late = [rank for rank in range(self.size) if rank not in self.ranks]
        limit = max(self.silent, START)
        if late and self.now >= limit:
            what = f"rank {named(late)} did not start within {limit:.0f} s"
            return LaunchFailure(SILENT, what, self.last)
        return None

    def standstill(self) -> Optional[LaunchFailure]:
        """The ranks that are behind, if no rank has made a step for too long. They have then shown where they stand."""
        alive = self.alive()
        steps = sum(guard.step for guard in self.ranks.values())
        if steps != self.steps or not steps or all(guard.stopped for guard in alive):
            self.steps, self.progress = steps, self.now
        if not self.hung or self.now - self.progress < self.hung:
            return None
        least = min(guard.step for guard in alive)
        behind = [guard for guard in alive if guard.step == least]
        for guard in behind:
            with contextlib.suppress(OSError):
                guard.socket.send(WHERE)
        until = time.monotonic() + 2
        while time.monotonic() < until:
            self.wait()  # for what they show
        what = f"no rank has made a step for {self.hung:g} s; behind: {named(behind)} (above: where they stand)"
        return LaunchFailure(SILENT, what)

    def unexplained(self) -> Optional[LaunchFailure]:
        """The failure that no rank has reported, judged by how ``mpiexec`` has ended; None if all is well."""
        status = 0
        # The ranks have ended; :meth:`end` sees to it.
        with contextlib.suppress(subprocess.TimeoutExpired):
            status = self.mpiexec.wait(START)
        status = status if status >= 0 else 128 - status
        unheard = [guard for guard in self.ranks.values() if guard.exit is None]
        if unheard or not status:
            return lost(unheard, status or 1)
        return LaunchFailure(status, f"mpiexec failed with exit status {status}", self.last)

    def reassure(self, done: threading.Event) -> None:
        """Send heartbeats to the guards. Runs in a thread, since printing may take long."""
        while not done.wait(BEAT):
            # Copied at once, whatever the other thread does.
            for guard_socket in list(self.connections):
                with contextlib.suppress(OSError):
                    guard_socket.send(b".")

    def hear_out(self) -> None:
        """Wait a little for last lines, and for a killed rank: a rank that waits for it fails too, maybe first."""
        failed = [guard for guard in self.ranks.values() if guard.exit]
        if not failed:
            return
        start = time.monotonic()
        with contextlib.suppress(MxdpError):  # of the output
            while time.monotonic() < start + (0.5 if failed[0].closed else 1):
                killed = any((guard.exit or 0) < 0 for guard in self.ranks.values())
                if failed[0].closed and killed:
                    break
                self.wait()

    def end(self) -> None:
        """End all processes: first by the guards, which hear that the launcher is gone; then by ``mpiexec``."""
        self.listener.close()
        for guard in list(self.connections.values()):
            self.close(guard)
        for number in (0, signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.mpiexec.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.mpiexec.communicate(timeout=GRACE)
                break
        forget_lost_memory(self.began)
