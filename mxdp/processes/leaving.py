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
"""Environment variable: the descriptor of a file that the launcher's guard has opened. It holds three 8-byte numbers:
this rank's steps; its part in MPI; the id of the process that the launcher may ask where it stands."""
INSIDE = 1
LEFT = 2
"""A rank's part in MPI: 0, then INSIDE, then LEFT. If a rank ends while INSIDE, the launcher calls it a failure."""
STALLED = 20
"""After this many looks in a row without anything new begun, a rank is stalled. It looks every half second."""
KINDS = ("mxdp.world()", "sum or broadcast", "gather or save")
"""What each World counts, in this order."""


class Leaving:
    """Ends this rank: in MPI_Finalize with the others, or alone if one still waits for it.

    At its end a rank sends all ranks its counts: how much it has begun. Then it waits until every rank has ended with
    the same counts. A rank that answers with a higher count waits for an exchange that this rank never begins. Then
    this rank leaves alone::

        rank 0    sum, sum, sum: waits        a thread reads "rank 1: 2", and answers "rank 0: 3"
        rank 1    sum, sum, end: "rank 1: 2"                          reads it, ends without MPI

    So only a rank that has ended can end the job. There is one exception. If all ranks make their calls in one order,
    one rank can be ahead of another, but two can't each be ahead in a different kind. Two stalled ranks like that wait
    for ever. The one that is stalled already when it reads the other's counts ends all ranks::

        rank 0    sum, gather: waits          "rank 0: 1 sum, 1 gather"
        rank 1    sum, sum: waits             "rank 1: 2 sums, no gather"        the second to read this ends all

    At its end Python code can't see the exit status. The launcher's guard sees it when the process ends.
    """

    def __init__(self, mpi: Any, finalize: bool) -> None:
        self.begun: List[List[int]] = []
        """For each World a list ``[1]`` and a list ``[arrays, objects]``, which ``world()`` appends: counts in the
        order of KINDS. An exchange counts as soon as it is pushed. Every pushed one runs before a good end."""
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
        # This loads MXNet, and mxdp's engine then registers its own end. ``atexit`` calls the last registered first:
        # ``_end``.
        npx.waitall()
        atexit.register(self._end)

    def _watch(self) -> None:
        """Until this rank ends: answer ranks that have ended too early for it, and tell all ranks when it stalls."""
        before = self._counts()
        while not self._over.wait(0.5) and not self._mpi.Is_finalized():
            counts = self._counts()
            self._looks = self._looks + 1 if counts == before else 0
            before = counts
            self._hear()
            for rank, theirs in list(self._theirs.items()):
                if _ahead(counts, theirs):
                    self._say(rank)
                    # Answer it once: it will end the job, and this rank with it.
                    del self._theirs[rank]
            if self._looks == STALLED:
                self._tell_all(stalled=True)

    def _hear(self) -> None:
        while self._messages.Iprobe():
            rank, theirs, stalled = self._messages.recv()
            more = _ahead(self._counts(), theirs)
            less = _ahead(theirs, self._counts())
            if not stalled:
                self._theirs[rank] = theirs
            elif more and less and self._looks >= STALLED:
                end_job(
                    f"waits for rank {rank}'s next {more[0]}, and rank {rank} for this one's next {less[0]}: call both "
                    "on every rank, in the same order"
                )

    def _tell_all(self, stalled: bool = False) -> None:
        for rank in range(self._messages.size):
            self._say(rank, stalled)

    def _say(self, rank: int, stalled: bool = False) -> None:
        message = (self._messages.rank, self._counts(), stalled)
        self._sent.append(self._messages.isend(message, dest=rank))  # kept until it has gone

    def _counts(self) -> List[int]:
        return [count for world in self.begun for count in world]

    def _end(self) -> None:
        if os.getpid() != self._process:  # a child by fork
            return
        if not self._mpi.Is_finalized() and self._messages.size > 1:
            self._over.set()
            self._thread.join()
            self._looks = 0  # this rank has ended, so it is not stalled
            with suppress(Exception):  # stdout may be closed, or None
                sys.stdout.flush()
            self._tell_all()
            counts = self._counts()
            # Until all ranks, this one too, have ended with these counts.
            while list(self._theirs.values()) != [counts] * self._messages.size:
                for rank, theirs in self._theirs.items():
                    if _ahead(theirs, counts):
                        return self._leave_alone(rank)
                time.sleep(0.01)
                self._hear()
            for message in self._sent:
                message.wait()
        with suppress(Exception):  # an operator's error: nobody waits for its result any more
            npx.waitall()
        if self._file is not None:
            self._file[1] = LEFT
        if self._finalize and not self._mpi.Is_finalized():
            self._mpi.Finalize()

    def _leave_alone(self, waits: int) -> None:
        text = f"has ended, but rank {waits} waits for its next sum, broadcast or gather"
        # A usual end would wait for ever in either case.
        mpi4py_finalizes = not self._finalize
        own_exchange_hangs = bool(_ahead(self._counts(), self._theirs[waits]))
        end_job(text, now=mpi4py_finalizes or own_exchange_hangs)


def _ahead(counts: Sequence[int], others: Sequence[int]) -> List[str]:
    """The kinds of which ``counts`` has more than ``others``."""
    pairs = enumerate(zip_longest(counts, others, fillvalue=0))
    return [KINDS[place % len(KINDS)] for place, (one, other) in pairs if one > other]


leaving = lru_cache(maxsize=None)(Leaving)
"""The one Leaving of this process, for all its Worlds. All ranks call it at the same place."""


@lru_cache(maxsize=None)
def launchers_file() -> Optional[Any]:
    """The numbers in the launcher's file; None without a launcher. All Worlds count in one file."""
    with suppress(KeyError, ValueError, OSError):
        descriptor = int(os.environ[STEPS])
        status = os.fstat(descriptor)
        # The launcher's file has 24 bytes and no name. In a process that a rank started, the descriptor may be another
        # file's.
        if status.st_size == 24 and status.st_nlink == 0:
            return memoryview(mmap.mmap(descriptor, 24)).cast("q")
    return None


def end_job(text: str, now: bool = True) -> None:
    """Print what this rank does or waits for, and end all ranks, since they would wait for it.

    Without mxdp's launcher this aborts MPI. With it, this rank exits at once if ``now``. Otherwise the function returns
    and the rank ends as usual. The launcher then ends the others.
    """
    from mpi4py import MPI

    ranks = MPI.COMM_WORLD
    print(f"rank {ranks.rank} of {plural(ranks.size, 'rank')} {text}", file=sys.stderr, flush=True)
    if launchers_file() is None:
        time.sleep(0.5)  # else mpiexec may end before it has passed the text on
        ranks.Abort(1)
    elif now:  # MPI would kill the launcher's guard before it says which rank failed
        with suppress(Exception):  # stdout may be closed, or None
            sys.stdout.flush()
        os._exit(1)


def forget_shared_memory() -> None:
    """Remove the name of MPICH's shared memory (2 MB). All ranks have it open by now and need no name. MPICH removes
    the name at a good end only."""
    with suppress(OSError), open("/proc/self/maps") as maps:
        for path in {line.split()[-1] for line in maps if "/dev/shm/mpich_shm_" in line}:
            with suppress(OSError):
                os.unlink(path)
