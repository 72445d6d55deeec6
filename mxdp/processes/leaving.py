"""How a rank leaves the others at the end of its process, or ends them all."""

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
INSIDE = 1
LEFT = 2
"""A rank's part in MPI, 0 at first. The launcher takes for a failure what ends while it is inside."""


STALLED = 20
"""How many looks in a row, of half a second each, find a rank stalled, which has begun nothing new."""
KINDS = ("mxdp.world()", "sum or broadcast", "gather or save")
"""What is counted of each World, in this order."""


class Leaving:
    """Ends this rank: in MPI_Finalize with the others, or alone if one still waits for it.

    At its end a rank tells all how much it has begun, and waits until all have ended with as much. It may be ahead of
    a rank that still trains, or behind it. But it leaves alone if a rank has begun more, which then waits for ever::

        rank 0    sum, sum, sum: waits        a thread reads "rank 1: 2", and answers "rank 0: 3"
        rank 1    sum, sum, end: "rank 1: 2"                          reads it, ends without MPI

    So nothing is decided about a rank that has not ended, nor by one, with one exception. Ranks that call all in one
    order may be ahead of each other, but never each in something else. Two that stall like that wait for ever::

        rank 0    sum, gather: waits          "rank 0: 1 sum, 1 gather"
        rank 1    sum, sum: waits             "rank 1: 2 sums, no gather"        the second to read this ends all

    Python doesn't know its exit status at its end. The launcher's guard does, if the process really ends.
    """

    def __init__(self, mpi: Any, finalize: bool) -> None:
        self.begun: List[List[int]] = []
        """How much each World has begun. What was pushed counts, and runs before a good end."""
        self._mpi = mpi
        self._finalize = finalize
        self._process = os.getpid()
        self._file = launchers_file()
        self._messages = mpi.COMM_WORLD.Dup()
        forget_shared_memory()
        self._theirs: Dict[int, List[int]] = {}
        self._sent: List[Any] = []
        self._looks = 0
        """How many looks in a row have found nothing new."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="mxdp-ended-ranks", daemon=True)
        if self._messages.size > 1:  # else there is nobody to watch
            self._thread.start()
        npx.waitall()  # loads MXNet: what mxdp's engine does at the end was registered before, so it runs after this
        atexit.register(self._end)

    def _watch(self) -> None:
        """Answer those that have ended too early for this rank, and tell all when it stalls. Returns at its end."""
        before = self._counts()
        while not self._over.wait(0.5) and not self._mpi.Is_finalized():
            counts = self._counts()
            self._looks = self._looks + 1 if counts == before else 0
            before = counts
            self._hear()
            for rank, theirs in list(self._theirs.items()):
                if _ahead(counts, theirs):
                    self._say(rank)
                    del self._theirs[rank]  # it leaves, so this rank is ended too
            if self._looks == STALLED:
                self._tell_all(ended=False)

    def _hear(self) -> None:
        while self._messages.Iprobe():
            rank, theirs, ended = self._messages.recv()
            more = _ahead(self._counts(), theirs)
            less = _ahead(theirs, self._counts())
            if ended:
                self._theirs[rank] = theirs
            elif more and less and self._looks >= STALLED:
                end_job(
                    f"waits for rank {rank}'s next {more[0]}, and rank {rank} for this one's next {less[0]}: call both "
                    "on every rank, in the same order"
                )

    def _tell_all(self, ended: bool = True) -> None:
        for rank in range(self._messages.size):
            self._say(rank, ended)

    def _say(self, rank: int, ended: bool = True) -> None:
        message = (self._messages.rank, self._counts(), ended)
        self._sent.append(self._messages.isend(message, dest=rank))  # kept until it has gone

    def _counts(self) -> List[int]:
        return [count for world in self.begun for count in world]

    def _end(self) -> None:
        if os.getpid() != self._process:  # a child by fork
            return
        if not self._mpi.Is_finalized() and self._messages.size > 1:
            self._over.set()
            self._thread.join()
            self._looks = 0  # it waits for nobody any more
            with suppress(Exception):  # it may be closed, or None
                sys.stdout.flush()
            self._tell_all()
            counts = self._counts()
            while list(self._theirs.values()) != [counts] * self._messages.size:
                for rank, theirs in self._theirs.items():
                    if _ahead(theirs, counts):
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
        # It would wait for ever: mpi4py in MPI_Finalize, or the engine for a sum that the other rank never begins.
        now = not self._finalize or bool(_ahead(self._counts(), self._theirs[waits]))
        text = f"has ended, but rank {waits} waits for its next sum, broadcast or gather"
        end_job(text, now)


def _ahead(counts: Sequence[int], others: Sequence[int]) -> List[str]:
    """What there is more of in ``counts`` than in ``others``."""
    pairs = enumerate(zip_longest(counts, others, fillvalue=0))
    return [KINDS[place % len(KINDS)] for place, (one, other) in pairs if one > other]


leaving = lru_cache(maxsize=None)(Leaving)
"""The one Leaving of this process, of which all Worlds are a part. All ranks call it at the same place."""


@lru_cache(maxsize=None)
def launchers_file() -> Optional[Any]:
    """The numbers in the launcher's file; None without a launcher. All Worlds count in one file."""
    with suppress(KeyError, ValueError, OSError):
        file = int(os.environ[STEPS])
        status = os.fstat(file)
        # Else it is another file's number, in a process that a rank started.
        if status.st_size == 24 and status.st_nlink == 0:
            return memoryview(mmap.mmap(file, 24)).cast("q")
    return None


def end_job(text: str, now: bool = True) -> None:
    """Print what this rank does or waits for, and end all ranks, which would wait for it. mxdp's launcher ends them
    when this rank ends: ``now``, or by itself."""
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD
    print(f"rank {ranks.rank} of {plural(ranks.size, 'rank')} {text}", file=sys.stderr, flush=True)
    if launchers_file() is None:
        time.sleep(0.5)  # else mpiexec may end before it has passed the text on
        ranks.Abort(1)
    elif now:  # MPI would kill the launcher's guard before it says which rank failed
        with suppress(Exception):  # it may be closed, or None
            sys.stdout.flush()
        os._exit(1)


def forget_shared_memory() -> None:
    """Remove the name of MPICH's shared memory, 2 MB, open on all ranks by now: MPICH does so at a good end alone."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            with suppress(OSError):
                os.unlink(path)
