"""Parts of the launcher: the state of a rank, why a job failed, output, and memory that a killed rank has left."""

from __future__ import annotations

import contextlib
import glob
import os
import signal
import socket
from collections import deque
from dataclasses import dataclass, field
from typing import Deque, Iterable, NamedTuple, Optional, Sequence, TextIO

from mxdp.errors import MxdpError, silence

LAST_LINES = 10


@dataclass
class Guarded:
    """A connection, and what the guard at its other end has said."""

    socket: socket.socket
    heard: float
    """When the guard connected or last said something, in seconds of ``Launch.now``."""
    rank: Optional[int] = None
    """None until the guard has given the password."""
    host: str = ""
    step: int = 0
    """How many steps the rank has made."""
    part: int = 0
    """The rank's part in MPI (:data:`mxdp.launch.guard.STEPS` lists the numbers)."""
    stopped: float = 0.0
    """Seconds for which the rank has been stopped; 0 if it runs."""
    exit: Optional[int] = None
    """The command's exit status (a signal: negative); None before its end."""
    closed: bool = False
    """Whether the launcher has hung up."""
    unread: bytes = b""
    """The start of a line whose end has not come yet."""
    last: Deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))
    """The last lines that the rank has printed."""

    def __str__(self) -> str:
        after = f" after step {self.step}" if self.step else ""
        return f"rank {self.rank} on {self.host}{after}"


class LaunchFailure(NamedTuple):
    """Why a job failed. ``status``: what the launcher exits with. ``what``: the reason, in words. ``lines``: the last
    lines of the rank that failed."""

    status: int
    what: str
    lines: Sequence[str] = ()

    def __str__(self) -> str:
        end = "; its last lines:" if self.lines else ""
        return "\n".join([f"mxdp.launch: {self.what}; all ranks are ended{end}", *self.lines])


def named(ranks: Iterable[object]) -> str:
    """Several ranks in words."""
    return ", ".join(map(str, ranks))


def lost(guards: Sequence[Guarded], status: int) -> Optional[LaunchFailure]:
    """Why these guards ended before they could tell an exit status; None if there are none. MPI_Abort kills the guards,
    too: then a rank's last lines name it."""
    if not guards:
        return None
    for guard in guards:
        if any("MPI_Abort" in line for line in guard.last):
            return LaunchFailure(status, f"{guard} called MPI_Abort", guard.last)
    return LaunchFailure(status, f"{named(guards)}: killed, and the guard too", guards[0].last)


def print_line(line: str, file: TextIO) -> None:
    """Print a line. Raises an MxdpError if it can't be written."""
    try:
        print(line, file=file, flush=True)
    except OSError as error:
        silence(file)
        raise MxdpError(
            f"its output can't be written ({error.strerror}); all ranks are ended"
        ) from error


def forget_lost_memory(began: float) -> None:
    """Remove shared memory that a killed rank of MPICH left behind: this user's, changed since ``began``, open in no
    process."""
    paths = glob.glob("/dev/shm/mpich_shm_*")
    if not paths:
        return
    mapped = ""
    for maps in glob.glob("/proc/[0-9]*/maps"):
        with contextlib.suppress(OSError), open(maps) as file:
            mapped += file.read()
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            ours = status.st_uid == os.getuid() and status.st_mtime >= began
            if ours and path not in mapped:
                os.unlink(path)


def ending(exit: int) -> str:
    """An exit status in words.

    >>> ending(3), ending(-9)
    ('failed with exit status 3', 'was killed by signal 9 (SIGKILL)')
    """
    if exit >= 0:
        return f"failed with exit status {exit}"
    names = {number.value: f" ({number.name})" for number in signal.Signals}
    full = "; /dev/shm may be full" if -exit == signal.SIGBUS else ""
    return f"was killed by signal {-exit}{names.get(-exit, '')}{full}"
