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
    """A connection, and what the guard at its other end has said. ``rank`` is None until it has given the password."""

    socket: socket.socket
    heard: float
    rank: Optional[int] = None
    host: str = ""
    step: int = 0
    part: int = 0
    stopped: float = 0.0
    exit: Optional[int] = None
    closed: bool = False
    unread: bytes = b""
    last: Deque[str] = field(default_factory=lambda: deque(maxlen=LAST_LINES))

    def __str__(self) -> str:
        after = f" after step {self.step}" if self.step else ""
        return f"rank {self.rank} on {self.host}{after}"


class LaunchFailure(NamedTuple):
    """Why a job ended: in words, with the exit status and the last lines of the one that failed."""

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
    """The failure of guards that went before they knew their commands' exit status. MPI_Abort kills guards, too."""
    for guard in guards:
        if any("MPI_Abort" in line for line in guard.last):
            return LaunchFailure(status, f"{guard} called MPI_Abort", guard.last)
    if not guards:
        return None
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
    """Remove MPICH's shared memory, made since ``began``, that no process has open: a killed rank could not."""
    paths = glob.glob("/dev/shm/mpich_shm_*")
    held = ""
    for maps in glob.glob("/proc/[0-9]*/maps") if paths else ():
        with contextlib.suppress(OSError), open(maps) as file:
            held += file.read()
    for path in paths:
        with contextlib.suppress(OSError):
            status = os.stat(path)
            ours = status.st_uid == os.getuid() and status.st_mtime >= began
            if ours and path not in held:
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
