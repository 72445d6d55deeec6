"""The guard of one rank, which ``mpiexec`` starts in its place: ``python guard.py COMMAND...``.

It gives the launcher its password, runs the command, and sends a JSON object a line: what the command prints, a
heartbeat, its exit status. When the launcher ends, or is silent for too long, it ends the command and all its
processes. To start fast, it imports nothing of mxdp.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any, Dict, List, NoReturn, Optional

ADDRESS = "MXDP_LAUNCH"
"""Variable with the launcher's host, port and password, and the seconds after which silence is an end (0: never)."""
STEPS = "MXDP_LAUNCH_STEPS"
"""Variable with the number of an open file, in which the command writes three 8-byte numbers: its steps; its part in
MPI (0: none yet; 1: other ranks may wait for it; 2: it has left); and the process that has a part, maybe a shell's."""
INSIDE = 1
WHERE = b"?"
"""Byte by which the launcher asks where the command stands. (All other bytes are its heartbeats.)"""
RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK")
BEAT = 0.4  # seconds from a heartbeat to the next, of guards and launcher: a fifth of the shortest silence
LONGEST = 1 << 16  # bytes in a line; a longer one is cut
BAR = 1.0  # seconds from a state of a bar that is shown to the next
GRACE = 2.0
PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """Be killed when the parent dies, where the system can do that (Linux). Runs between fork and exec."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Guard:
    """Runs ``command`` and reports to ``launcher``."""

    def __init__(self, launcher: socket.socket, silent: float) -> None:
        self.launcher = launcher
        self.silent = silent
        self.unsent = bytearray()
        self.streams: Dict[int, str] = {}  # what each is sent as
        self.rests: Dict[int, bytes] = {}  # what of it has no end of line yet
        self.next_bar = 0.0
        self.stopped: Optional[float] = None
        # Its file is shared with the command; a file of a name could be left behind.
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.file.truncate(24)
        self.shared = memoryview(mmap.mmap(self.file.fileno(), 24)).cast("q")
        os.set_inheritable(self.file.fileno(), True)

    def send(self, **message: Any) -> None:
        """Put a message, with what the command has written into the shared file, into the queue."""
        step, part, _ = self.shared
        self.unsent += json.dumps({**message, "step": step, "part": part}).encode() + b"\n"

    def start(self, command: List[str], environ: Dict[str, str]) -> Optional[int]:
        """Start the command. Returns its exit status, a shell's, if it can't be started."""
        try:
            self.child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**environ, STEPS: str(self.file.fileno())},
                close_fds=False,  # MPI's are among them
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            problem = f"{command[0]}: {error.strerror}"
            # It has no run bit or no first line, or its folder is not on the PATH.
            if os.path.isfile(command[0]):
                problem += f": put its program before it, as in -- python {' '.join(command)}"
            self.send(err=problem)
            self.send(exit=127)
            return 127
        assert self.child.stdout is not None
        assert self.child.stderr is not None
        self.streams = {self.child.stdout.fileno(): "out", self.child.stderr.fileno(): "err"}
        return None

    def run(self, command: List[str], environ: Dict[str, str]) -> int:
        """Run the command to its end, and send all that it said. Returns its exit status (a signal: negative), which is
        not 0 if other ranks wait for it."""
        wake, write_end = os.pipe()
        os.set_blocking(write_end, False)
        signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        status = self.start(command, environ)
        heard = time.monotonic()
        next_beat = heard
        until = float("inf")
        while status is None or self.unsent or self.streams:
            # What comes after this is of processes that the command has left.
            if time.monotonic() >= until:
                self.streams.clear()
            readable = [wake, self.launcher.fileno()]
            if status is not None or len(self.unsent) < LONGEST:
                readable += self.streams
            writable = [self.launcher] if self.unsent else []
            ready = select.select(readable, writable, [], BEAT)[0]
            now = time.monotonic()
            if self.launcher.fileno() in ready:
                words = self.launcher.recv(4096)
                if not words:
                    raise ConnectionError
                heard = now
                python = self.inside()
                if WHERE in words and python:  # then World has a handler for it
                    os.kill(python, signal.SIGUSR2)
            if wake in ready:
                os.read(wake, 4096)
            for stream in set(ready) & set(self.streams):
                if not self.forward(stream):
                    del self.streams[stream]
            if status is None:
                status = self.look()
                if status is not None:
                    self.send(exit=status)
                    until = now + 0.5  # processes of the command's may hold its pipes
            if now >= next_beat and len(self.unsent) < LONGEST:
                next_beat = now + BEAT
                self.send(stopped=now - self.stopped if self.stopped else 0)
            if self.silent and now - heard > self.silent:
                raise ConnectionError
            with contextlib.suppress(BlockingIOError):
                del self.unsent[: self.launcher.send(self.unsent)]
        return status or int(self.shared[1] == INSIDE)

    def inside(self) -> int:
        """The process that has a part in MPI. It may be below the command: a shell, or one that makes a group of its
        own, such as ``timeout``. 0 if there is none yet, or it has ended."""
        python = self.shared[2]
        with contextlib.suppress(ProcessLookupError):
            if os.getsid(python) == os.getsid(0):  # else another process has its number now
                return python
        return 0

    def forward(self, stream: int) -> bool:
        """Put the lines that ``stream`` holds into the queue. Returns False at its end."""
        read = os.read(stream, LONGEST)
        *lines, rest = (self.rests.pop(stream, b"") + read).split(b"\n")
        if b"\r" in rest:  # a bar, drawn over itself: its last whole state, once a second
            drawn, _, rest = rest.rpartition(b"\r")
            if drawn and time.monotonic() >= self.next_bar:
                self.next_bar = time.monotonic() + BAR
                lines.append(drawn)
        if rest and (not read or len(rest) > LONGEST):
            lines.append(rest)
        else:
            self.rests[stream] = rest
        for line in lines:
            # Of a line that was drawn over, what a terminal shows.
            shown = line.rstrip(b"\r").rpartition(b"\r")[2]
            self.send(**{self.streams[stream]: shown.decode(errors="surrogateescape")})
        return bool(read)

    def look(self) -> Optional[int]:
        """The exit status, if the child has one. Notes whether it is stopped."""
        while True:
            pid, status = os.waitpid(self.child.pid, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            if not pid:
                return None
            if os.WIFEXITED(status):
                return os.WEXITSTATUS(status)
            if os.WIFSIGNALED(status):
                return -os.WTERMSIG(status)
            self.stopped = time.monotonic() if os.WIFSTOPPED(status) else None


def forget_group_memory() -> None:
    """Remove the name of MPICH's shared memory, 2 MB, if a process of this rank has it open. MPICH does so at a good
    end alone, ``mxdp.world()`` at its start."""
    with contextlib.suppress(OSError):  # a system without /proc
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):  # it has just ended, or the name is gone
                if os.getpgid(int(name)) == os.getpgrp():
                    with open(f"/proc/{name}/maps") as maps:
                        paths = {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}
                    for path in paths:
                        os.unlink(path)


def signal_groups(python: int, number: int) -> None:
    """Send a signal to all processes of this rank, this one too, and to the group that ``python`` is in."""
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(os.getpgid(python), number)
    os.killpg(0, number)


def end_group(python: int) -> NoReturn:
    """End all processes that :func:`signal_groups` reaches. One that is stopped reacts to SIGKILL alone."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    forget_group_memory()
    signal_groups(python, signal.SIGTERM)
    until = time.monotonic() + GRACE
    with contextlib.suppress(ChildProcessError):  # there is none left
        while time.monotonic() < until:
            os.waitpid(-1, os.WNOHANG)
            time.sleep(0.02)
    signal_groups(python, signal.SIGKILL)
    sys.exit(1)


def main() -> int:
    """Report to the launcher until the command ends; its exit status."""
    with contextlib.suppress(PermissionError):  # mpiexec has made it the leader of its group
        os.setsid()
    environ = dict(os.environ)
    host, port, password, silent = environ.pop(ADDRESS).split()
    rank = next(int(environ[name]) for name in RANKS if name in environ)

    def stop(*_: Any) -> None:
        raise ConnectionError

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    guard = None
    try:
        with socket.create_connection((host, int(port)), timeout=30) as launcher:
            name = environ.get("PMI_HOSTNAME") or socket.gethostname()
            # It hangs up on one that says nothing.
            launcher.sendall(f"{password} {rank} {name}\n".encode())
            guard = Guard(launcher, float(silent))
            launcher.setblocking(False)
            status = guard.run(sys.argv[1:], environ)
            # Not less: the launcher may be held up by its own output.
            launcher.settimeout(guard.silent or None)
            launcher.shutdown(socket.SHUT_WR)
            # Until the launcher has read all: mpiexec ends the others, and a close with something unread takes back
            # what was sent.
            while launcher.recv(4096):
                pass
    except OSError as error:
        if not isinstance(error, ConnectionError) or isinstance(error, ConnectionRefusedError):
            problem = f"rank {rank} can't reach the launcher at {host}:{port}: {error}"
            print(problem, file=sys.stderr, flush=True)
        end_group(guard.inside() if guard else 0)
    if status:
        end_group(guard.inside())
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)  # what the command has left
    return 0


if __name__ == "__main__":
    sys.exit(main())
