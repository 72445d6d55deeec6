"""How a rank leaves the others at the end of its process."""

from __future__ import annotations

import atexit
import mmap
import os
import sys
import threading
import time
from contextlib import suppress
from functools import lru_cache
from itertools import zip_longest
from typing import Any, Dict, List, Optional, Sequence

from mxdp.backend import npx
from mxdp.errors import plural

STEPS = "MXDP_LAUNCH_STEPS"
"""Variable with the number of the launcher's open file: three 8-byte numbers, this rank's steps, its part in MPI, and
the process that the launcher may ask where it stands."""
INSIDE, LEFT = 1, 2
"""A rank's part in MPI, 0 at first. The launcher takes for a failure what ends while it is inside."""


class Leaving:
    """Ends this rank: in MPI_Finalize with the others, or alone if one still waits for it.

    At its end a rank tells all how much it has begun, and waits until all have ended with as much. It may be ahead of
    a rank that still trains, or behind it. But it leaves alone if a rank has begun more, which then waits for ever::

        rank 0    sum, sum, sum: waits        a thread reads "rank 1: 2", and answers "rank 0: 3"
        rank 1    sum, sum, end: "rank 1: 2"                          reads it, ends without MPI

    So nothing is decided about a rank that has not ended, nor by one. Python doesn't know its exit status at that time.
    The launcher's guard does, if the process really ends.
    """

    def __init__(self, mpi: Any, finalize: bool) -> None:
        self.begun: List[List[int]] = []
        """Of each World, how much it has begun. What was pushed counts, and runs before a good end."""
        self._mpi = mpi
        self._finalize = finalize
        self._process = os.getpid()
        self._file = launchers_file()
        self._messages = mpi.COMM_WORLD.Dup()
        self._theirs: Dict[int, List[int]] = {}
        self._sent: List[Any] = []
        self._over = threading.Event()
        if mpi.COMM_WORLD.size == 1:
            self._over.set()  # there is nobody to watch
        self._thread = threading.Thread(target=self._watch, name="mxdp-ended-ranks", daemon=True)
        self._thread.start()
        npx.waitall()  # loads MXNet: what mxdp's engine does at the end was registered before, so it runs after this
        atexit.register(self._end)

    def _watch(self) -> None:
        """Until this rank's end, answer those that have ended too early for it."""
        while not self._over.wait(0.5) and not self._mpi.Is_finalized():
            self._hear()
            for rank, counts in list(self._theirs.items()):
                if _more(self._counts(), counts):
                    self._say(rank)
                    del self._theirs[rank]  # it leaves, so this rank is ended too

    def _hear(self) -> None:
        while self._messages.Iprobe():
            rank, counts = self._messages.recv()
            self._theirs[rank] = counts

    def _say(self, rank: int) -> None:
        message = (self._messages.rank, self._counts())
        self._sent.append(self._messages.isend(message, dest=rank))  # kept until it has gone

    def _counts(self) -> List[int]:
        return [count for world in self.begun for count in world]

    def _end(self) -> None:
        if os.getpid() != self._process:  # a child by fork
            return
        if not self._mpi.Is_finalized():
            self._over.set()
            self._thread.join()
            with suppress(Exception):  # it may be closed, or None
                sys.stdout.flush()
            for rank in range(self._messages.size):
                self._say(rank)
            counts = self._counts()
            while list(self._theirs.values()) != [counts] * self._messages.size:
                for rank, theirs in self._theirs.items():
                    if _more(theirs, counts):
                        return self._leave_alone(rank)
                time.sleep(0.01)
                self._hear()
            for message in self._sent:
                message.wait()
        with suppress(Exception):  # of an operator, which nobody waits for any more
            npx.waitall()
        if self._file is not None:
            self._file[1] = LEFT
        if self._finalize and not self._mpi.Is_finalized():
            self._mpi.Finalize()

    def _leave_alone(self, waits: int) -> None:
        who = f"rank {self._messages.rank} of {plural(self._messages.size, 'rank')}"
        text = f"{who} has ended, but rank {waits} waits for its next sum, broadcast or gather"
        print(text, file=sys.stderr, flush=True)
        if self._file is None:  # mpiexec would take status 0 for success
            time.sleep(0.5)
            self._mpi.COMM_WORLD.Abort(1)
        # Else mpi4py would wait for ever in MPI_Finalize, or the engine for a sum that the other rank never begins.
        if not self._finalize or _more(self._counts(), self._theirs[waits]):
            os._exit(1)


def _more(counts: Sequence[int], others: Sequence[int]) -> bool:
    return any(one > other for one, other in zip_longest(counts, others, fillvalue=0))


leaving = lru_cache(maxsize=None)(Leaving)
"""The one Leaving of this process, of which all Worlds are a part. All ranks call it at the same place."""


def launchers_file() -> Optional[Any]:
    """The numbers in the launcher's file; None without a launcher. All Worlds count in one file."""
    with suppress(KeyError, ValueError, OSError):
        file = int(os.environ[STEPS])
        status = os.fstat(file)
        if (
            status.st_size == 24 and status.st_nlink == 0
        ):  # else another file's number, in a process that a rank started
            return memoryview(mmap.mmap(file, 24)).cast("q")
    return None


def forget_shared_memory() -> None:
    """Remove the name of MPICH's shared memory, 2 MB, open on all ranks by now: MPICH does so at a good end alone."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            with suppress(OSError):
                os.unlink(path)
