"""The processes that train together, as MPI started them: ranks, and what ranks tell each other.

A sum over ranks is a job of MXNet's engine that writes the array: it runs as soon as the array is computed, and later
operators on the array wait for it. Nothing else waits. All ranks must call MPI in the same order, but the engine runs
jobs in any order that their arrays allow. So each job also writes a token, an array that all of them share::

    rank 0    backward: bucket 0, bucket 1      job: sum bucket 0, token    job: sum bucket 1, token
    rank 1    backward: bucket 1, bucket 0      job: sum bucket 0, token    job: sum bucket 1, token

MPI is whatever ``mpi4py`` was built for. It moves bytes neither authenticated nor encrypted.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, TypeVar, Union

import numpy as onp

from mxdp.backend import NDArray, autograd, host_view, mx
from mxdp.engine import CompletionEvent, EngineJob, plain_layout, prepare, wait_for_use
from mxdp.errors import MxdpError, described, plural
from mxdp.memory import need_shared_memory
from mxdp.plans.partition import bounds
from mxdp.processes.leaving import INSIDE, LEFT, end_job, launchers_file, leaving
from mxdp.processes.place import Ranks
from mxdp.sections import RANK_SUM

LAUNCHED = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "MPI_LOCALNRANKS")
"""Variables by which MPI's launchers tell a process that it is one of several."""


class Note:
    """Bytes of each rank that travel with a sum: ``mine``, and from ``reads`` what MXNet has yet to compute.

    ``mine`` has the same length on all ranks, and so have the arrays ``reads``, which lie on the host.
    """

    def __init__(self, mine: bytes, reads: Sequence[NDArray] = ()) -> None:
        self.mine = mine
        self.reads = reads
        self.theirs: List[bytes] = []
        """The bytes of all, by rank; empty until they have travelled."""
        self.carrier: Optional[NDArray] = None
        """The array with whose sum they travel."""

    def told(self) -> bytes:
        """What this rank tells."""
        return self.mine + b"".join(host_view(array).tobytes() for array in self.reads)

    def wait(self) -> List[bytes]:
        """Wait for the bytes of all ranks. Raises a BackendError if an operator failed before the sum."""
        CompletionEvent([self.carrier]).wait()
        return self.theirs


class _MpiJob(EngineJob):
    """Calls ``do`` when ``reads`` and ``written`` are ready, and after all earlier such jobs, which write one token. It
    is itself a write to what is ``written``."""

    NAME = RANK_SUM.encode()

    def __init__(
        self, do: Callable[[], Any], reads: Sequence[NDArray], written: Sequence[NDArray]
    ) -> None:
        self._do = do
        self._push(reads, written)

    def _call(self) -> None:
        try:
            self._do()
        except BaseException:
            # In a thread of MXNet nobody would see it, and the other ranks would wait for ever.
            _abort(traceback.format_exc())


class World(Ranks):
    """All ranks of this run, as :func:`world` makes it; without MPI, or started alone, one rank. ``rank``: this
    process's number, from 0; ``size``: how many there are; ``local_rank``: its number on this host."""

    def __init__(self, mpi: Optional[Any] = None) -> None:
        super().__init__()
        self.begun = [0, 0]
        """How many arrays this rank has begun to exchange, and how many small objects."""
        if mpi is None or mpi.COMM_WORLD.size == 1:
            return
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise MxdpError(
                "this MPI allows no calls from several threads (MPI_THREAD_MULTIPLE), which mxdp needs"
            )
        self._mpi = mpi
        # Copies, so that no message of the user's, nor of another World, is taken for one of these.
        self._arrays = mpi.COMM_WORLD.Dup()
        self._objects = mpi.COMM_WORLD.Dup()
        self.rank = self._objects.rank
        self.size = self._objects.size
        host = self._objects.Split_type(mpi.COMM_TYPE_SHARED, self.rank)
        self.local_rank = host.rank
        host.Free()
        self._token = mx.nd.zeros((1,), ctx=mx.cpu())
        # By shape and dtype. Arrays of one kind share a buffer: MPI's calls follow one another in any case.
        self._staging: Dict[Any, NDArray] = {}
        # Where one rank fails, the others would wait for it for ever.
        sys.excepthook = _end_all

    def sum(self, arrays: Sequence[NDArray], note: Optional[Note] = None) -> None:
        """Sum each array over all ranks, in place. All ranks get the same bits. Every rank gives the same shapes and
        dtypes in the same order, on any device; from a GPU by way of the host's memory (not run on a GPU). A ``note``
        travels with the first array that isn't empty, unless it has travelled. Doesn't wait, except for float32 arrays
        of five or more dimensions. Raises a TypeError if MPI can't add this dtype."""

        def call(host: Any) -> None:
            self._arrays.Allreduce(self._mpi.IN_PLACE, host)

        for array in arrays:
            self._exchange(array, call, note)

    def broadcast(self, arrays: Sequence[NDArray]) -> None:
        """Overwrite each array with rank 0's, in place; else as :meth:`sum`. Waits for work that uses the arrays."""
        if self.size == 1:
            return
        for array in arrays:
            # An inference pass that is still running may change its layout once more.
            wait_for_use(array)
            self._exchange(array, lambda host: self._arrays.Bcast(host))

    def reduce_scatter(self, vector: NDArray, note: Optional[Note] = None) -> None:
        """Sum a vector over all ranks, but in each rank's only :meth:`shard` of it, in place; else as :meth:`sum`."""
        shard = self.shard(vector.size)
        counts = self._counts(vector)

        def call(host: Any) -> None:
            piece = onp.empty_like(host[shard])
            self._arrays.Reduce_scatter(host, piece, counts)
            host[shard] = piece

        self._exchange(vector, call, note)

    def all_gather(self, vector: NDArray) -> None:
        """Overwrite, in a vector, each rank's :meth:`shard` with that of the rank; else as :meth:`sum`."""
        counts = self._counts(vector)

        def call(host: Any) -> None:
            self._arrays.Allgatherv(self._mpi.IN_PLACE, [host, counts])

        self._exchange(vector, call)

    def gather(self, value: Any) -> List[Any]:
        """Every rank's ``value``, in the order of ranks, on every rank. For small objects. Waits for the ranks."""
        if self.size == 1:
            return [value]
        self.begun[1] += 1
        return list(self._objects.allgather(value))

    def together(self, do: Callable[[], Any]) -> List[Any]:
        """Every rank's ``do()``, in the order of ranks, on every rank. Waits for the ranks. If it fails on one rank,
        its error is raised there, and an MxdpError that tells of it on the others."""
        value = None
        text = ""
        try:
            value = do()
        except Exception as error:
            text = described(error)
            if not isinstance(error, MxdpError):
                text = f"rank {self.rank} of {plural(self.size, 'rank')} can't go on: {text}"
            self.gather((value, text))
            raise
        ranks = self.gather((value, text))
        for _, text in ranks:
            if text:
                raise MxdpError(text)
        return [value for value, _ in ranks]

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self.gather(None)

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Compare ``facts`` over all ranks. Waits. If they differ, every rank raises an MxdpError that says in what."""
        ranks = self.gather(facts)
        for name in dict.fromkeys(name for facts in ranks for name in facts):
            known = [facts.get(name) for facts in ranks]
            for rank, fact in enumerate(known):
                if fact != known[0]:
                    raise MxdpError(
                        f"the ranks can't train together: rank {rank} has {name} {fact}, rank 0 has {known[0]}; start "
                        "all with the same"
                    )

    def _counts(self, vector: NDArray) -> List[int]:
        """The lengths of all ranks' :meth:`shard`."""
        return [stop - start for start, stop in bounds(vector.size, self.size)]

    def _exchange(
        self, array: NDArray, call: Callable[[Any], Any], note: Optional[Note] = None
    ) -> None:
        if self.size == 1 or not array.size:
            return
        number = onp.dtype(array.dtype)
        # Not every MPI adds float16.
        if number.kind not in "iuf" or number.char not in self._mpi._typedict:
            raise TypeError(
                f"MPI can't add numbers of dtype {number}: use float32, float64 or whole numbers"
            )
        self.begun[0] += 1
        on_host = self._on_host(array)
        letter = note if note and note.carrier is None else None

        def do() -> None:
            if letter:
                mine = onp.frombuffer(letter.told(), "uint8")
                theirs = onp.empty((self.size, mine.size), "uint8")
                self._arrays.Allgather(mine, theirs)
                letter.theirs = [of_rank.tobytes() for of_rank in theirs]
            call(host_view(on_host))

        with autograd.pause():
            if on_host is array:
                for restore in plain_layout([array]):
                    restore()
            else:  # by an operator, since NumPy's arrays have no copyto for a classic one
                prepare("_copyto", [array], on_host)()
            _MpiJob(do, letter.reads if letter else (), (on_host, self._token))
            if on_host is not array:
                prepare("_copyto", [on_host], array)()
        if letter:
            letter.carrier = on_host

    def _on_host(self, array: NDArray) -> NDArray:
        """The array itself, if the host can read it, else one to which it is copied."""
        if array.ctx.device_type == "cpu":
            return array
        key = array.shape, array.dtype
        if key not in self._staging:
            self._staging[key] = mx.nd.empty(array.shape, mx.cpu(), array.dtype)
        return self._staging[key]


ALONE = World()
"""One rank, in place of no world."""
Some = TypeVar("Some", bound=Ranks)


def ranks_of(world: Optional[Some]) -> Union[Some, World]:
    """``world``, or one rank. Raises a TypeError if it is something else."""
    if world is None:
        return ALONE
    if not isinstance(world, Ranks):
        raise TypeError(f"world must be what mxdp.world() returns, not {world!r}")
    return world


def world() -> World:
    """The ranks of this run. Every rank calls it, as often as the others.

    Rank and size come from MPI, so ``mpiexec``, ``srun`` and clusters' launchers all work. Without ``mpi4py``, or
    started alone, there is one rank, whose exchanges do nothing. Raises an MxdpError if a launcher started this process
    and ``mpi4py`` or its MPI is missing, or if MPI has no threads or too little shared memory.
    """
    steps = launchers_file()
    if steps is not None:
        steps[1] = INSIDE
        if signal.getsignal(signal.SIGUSR2) == signal.SIG_DFL:
            # By this signal the launcher asks where this rank stands.
            faulthandler.register(signal.SIGUSR2, file=2)
        steps[2] = os.getpid()
    try:
        import mpi4py

        if "mpi4py.MPI" not in sys.modules:
            need_shared_memory()
            mpi4py.rc.finalize = False  # Leaving does it, or leaves it
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        if steps is not None:
            steps[1] = LEFT
        launched = [name for name in LAUNCHED if name in os.environ]
        if launched:
            raise MxdpError(
                f"this process was started by MPI's launcher ({launched[0]}), and can't use MPI ({error}): "
                "`pip install mpi4py mpich`, or start one process"
            ) from error
        return ALONE
    begun = leaving(MPI, mpi4py.rc.finalize is False).begun
    if MPI.COMM_WORLD.size == 1:
        if steps is not None:
            steps[1] = LEFT
        return ALONE
    begun.append([1])  # to make a World is an exchange, too
    ranks = World(MPI)
    begun.append(ranks.begun)
    ranks.seed()
    return ranks


def _end_all(*error: Any) -> None:
    _abort("".join(traceback.format_exception(*error)))


def _abort(text: str) -> None:
    end_job(f"failed:\n{text}")
