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
import time
import traceback
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, NDArray, autograd, find_devices, host_view, mx, usable_gpus
from mxdp.engine import CompletionEvent, EngineJob, plain_layout, prepare, wait_for_use
from mxdp.errors import MxdpError, plural
from mxdp.memory import need_shared_memory
from mxdp.plans.partition import bounds
from mxdp.processes.leaving import (
    INSIDE,
    LEFT,
    STEPS,
    forget_shared_memory,
    launchers_file,
    leaving,
)
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
        """By rank, the bytes of all; empty until they have travelled."""
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
    """Calls ``do`` when ``array`` is written, and after all earlier such jobs. It is itself a write to the array."""

    NAME = RANK_SUM.encode()

    def __init__(
        self, do: Callable[[], Any], reads: Sequence[NDArray], array: NDArray, token: NDArray
    ) -> None:
        self._do = do
        self._push(reads, (array, token))

    def _call(self) -> None:
        try:
            self._do()
        except (
            BaseException
        ):  # in a thread of MXNet nobody would see it, and the other ranks would wait for ever
            _abort(traceback.format_exc())


class World:
    """All ranks of this run, as :func:`world` makes it; without MPI, or started alone, one rank. ``rank``: this
    process's number, from 0; ``size``: how many there are; ``local_rank``: its number on this host."""

    def __init__(self, mpi: Optional[Any] = None) -> None:
        self.rank, self.size, self.local_rank = 0, 1, 0
        self._steps = launchers_file()
        self.begun = [0, 0]
        """How many arrays this rank has begun to exchange, and how many small objects."""
        if mpi is None or mpi.COMM_WORLD.size == 1:
            forget_shared_memory()
            return
        if mpi.Query_thread() < mpi.THREAD_MULTIPLE:
            raise MxdpError(
                "this MPI allows no calls from several threads (MPI_THREAD_MULTIPLE), which mxdp needs"
            )
        # Copies, so that no message of the user's, nor of another World, is taken for one of these.
        self._mpi, self._arrays, self._objects = mpi, mpi.COMM_WORLD.Dup(), mpi.COMM_WORLD.Dup()
        forget_shared_memory()
        self.rank, self.size = self._objects.rank, self._objects.size
        host = self._objects.Split_type(mpi.COMM_TYPE_SHARED, self.rank)
        self.local_rank = host.rank
        host.Free()
        self._token = mx.nd.zeros((1,), ctx=mx.cpu())
        # By shape and dtype. Arrays of one kind share a buffer: MPI's calls follow one another in any case.
        self._staging: Dict[Tuple[Tuple[int, ...], str], NDArray] = {}
        # Where one rank fails, the others would wait for it for ever.
        sys.excepthook = lambda *error: _abort("".join(traceback.format_exception(*error)))

    def __repr__(self) -> str:
        return f"<rank {self.rank} of {self.size}>"

    def sum(self, arrays: Sequence[NDArray], note: Optional[Note] = None) -> None:
        """Sum each array over all ranks, in place. All ranks get the same bits. Every rank gives the same shapes and
        dtypes in the same order, on any device; from a GPU by way of the host's memory (not run on a GPU). A ``note``
        travels with the first array that isn't empty, unless it has travelled. Doesn't wait, except for float32 arrays
        of five or more dimensions. Raises a TypeError if MPI can't add this dtype."""
        if self.size > 1:
            for array in arrays:
                self._exchange(
                    array, lambda host: self._arrays.Allreduce(self._mpi.IN_PLACE, host), note
                )

    def broadcast(self, arrays: Sequence[NDArray]) -> None:
        """Overwrite each array with rank 0's, in place; else as :meth:`sum`. Waits for work that uses the arrays."""
        for array in arrays if self.size > 1 else ():
            wait_for_use(
                array
            )  # an inference pass that is still running may change its layout once more
            self._exchange(array, lambda host: self._arrays.Bcast(host))

    def reduce_scatter(self, vector: NDArray, note: Optional[Note] = None) -> None:
        """Sum a vector over all ranks, but in each rank's only :meth:`shard` of it, in place; else as :meth:`sum`."""
        shard, counts = self.shard(vector.size), self._counts(vector)

        def call(host: Any) -> None:
            piece = onp.empty_like(host[shard])
            self._arrays.Reduce_scatter(host, piece, counts)
            host[shard] = piece

        if self.size > 1:
            self._exchange(vector, call, note)

    def all_gather(self, vector: NDArray) -> None:
        """Overwrite, in a vector, each rank's :meth:`shard` with that of the rank; else as :meth:`sum`."""
        counts = self._counts(vector)
        if self.size > 1:
            self._exchange(
                vector, lambda host: self._arrays.Allgatherv(self._mpi.IN_PLACE, [host, counts])
            )

    def gather(self, value: Any) -> List[Any]:
        """Every rank's ``value``, in the order of ranks, on every rank. For small objects. Waits for the ranks."""
        if self.size == 1:
            return [value]
        self.begun[1] += 1
        return list(self._objects.allgather(value))

    def together(self, do: Callable[[], Any]) -> List[Any]:
        """Every rank's ``do()``, in the order of ranks, on every rank. Waits for the ranks. If it fails on one rank,
        its error is raised there, and an MxdpError that tells of it on the others."""
        value, failure, text = None, None, ""
        try:
            value = do()
        except Exception as error:
            failure, text = error, str(error)
            if not isinstance(error, MxdpError):
                text = f"rank {self.rank} of {plural(self.size, 'rank')} can't go on: {type(error).__name__}: {error}"
        ranks = self.gather((value, text))
        if failure:
            raise failure
        for text in filter(None, (text for _, text in ranks)):
            raise MxdpError(text)
        return [value for value, _ in ranks]

    def seed(self, number: Optional[int] = None) -> None:
        """Seed MXNet's random numbers for this rank, so that no two ranks drop the same units out. On rank 0
        ``seed(0)`` is ``mx.random.seed(0)``. Without a number, as :func:`world` and trainings call it, the seed is what
        MXNet draws next, for which this waits; a single rank stays as it is."""
        if number is None:
            if self.size == 1:
                return
            number = int(mx.nd.random.randint(0, 1 << 20).asscalar())
        # Far apart: MXNet seeds a thousand generators of each device by the numbers that follow.
        mx.random.seed((number + (self.rank << 20)) % (1 << 31))

    def barrier(self) -> None:
        """Wait until all ranks have called this."""
        self.gather(None)

    def step_done(self) -> None:
        """Count a step, for ``python -m mxdp.launch``, which names the last step of a rank that fails."""
        if self._steps is not None:
            self._steps[0] += 1

    def shard(self, samples: int) -> slice:
        """This rank's part of ``samples`` samples, which may be empty. Lengths differ by one, longer parts first."""
        return slice(*bounds(samples, self.size)[self.rank])

    def devices(self, n: int, kind: str = "auto") -> List[Device]:
        """``n`` devices for this rank, as :func:`mxdp.devices` takes them; the array semantics stay as they are. Each
        rank on a host gets the next ``n`` GPUs, unless it sees its own alone (``CUDA_VISIBLE_DEVICES``). Not run on a
        GPU."""
        devices = find_devices(n, kind)
        gpus = usable_gpus() if devices[0].device_type == "gpu" and self.size > 1 else []
        first = self.local_rank * n
        return gpus[first : first + n] if len(gpus) >= first + n else devices

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Compare ``facts`` over all ranks. Waits. If they differ, every rank raises an MxdpError that says in what."""
        first, *_ = ranks = self.gather(facts)
        for name in dict.fromkeys(name for other in ranks for name in other):
            for rank, other in enumerate(ranks):
                if other.get(name) != first.get(name):
                    differs = (
                        f"rank {rank} has {name} {other.get(name)}, rank 0 has {first.get(name)}"
                    )
                    raise MxdpError(
                        f"the ranks can't train together: {differs}; start all with the same"
                    )

    def _counts(self, vector: NDArray) -> List[int]:
        """The lengths of all ranks' :meth:`shard`."""
        return [stop - start for start, stop in bounds(vector.size, self.size)]

    def _exchange(
        self, array: NDArray, call: Callable[[Any], Any], note: Optional[Note] = None
    ) -> None:
        if not array.size:
            return
        number = onp.dtype(array.dtype)
        if (
            number.kind not in "iuf" or number.char not in self._mpi._typedict
        ):  # not every MPI adds float16
            raise TypeError(
                f"MPI can't add numbers of dtype {number}: use float32, float64 or whole numbers"
            )
        self.begun[0] += 1
        on_host = self._on_host(array, number.char)
        letter = note if note and note.carrier is None else None
        with autograd.pause():
            if on_host is array:
                for restore in plain_layout([array]):
                    restore()
            else:
                prepare(
                    "_copyto", [array], on_host
                )()  # NumPy's arrays have no copyto for a classic one

        def do() -> None:
            if letter:
                letter.theirs = self._letters(letter.told())
            call(host_view(on_host))

        _MpiJob(do, letter.reads if letter else (), on_host, self._token)
        if letter:
            letter.carrier = on_host
        if on_host is not array:
            with autograd.pause():
                prepare("_copyto", [on_host], array)()

    def _on_host(self, array: NDArray, kind: str) -> NDArray:
        """The array itself, if the host can read it, else one to which it is copied."""
        if array.ctx.device_type == "cpu":
            return array
        key = array.shape, kind
        if key not in self._staging:
            self._staging[key] = mx.nd.empty(array.shape, ctx=mx.cpu(), dtype=array.dtype)
        return self._staging[key]

    def _letters(self, mine: bytes) -> List[bytes]:
        theirs = onp.empty((self.size, len(mine)), "uint8")
        self._arrays.Allgather(onp.frombuffer(mine, "uint8"), theirs)
        return [of_rank.tobytes() for of_rank in theirs]


def ranks_of(world: Optional[World]) -> World:
    """``world``, or one rank. Raises a TypeError if it is something else."""
    if world is not None and not hasattr(world, "agree"):
        raise TypeError(f"world must be what mxdp.world() returns, not {world!r}")
    return world or World()


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
            faulthandler.register(
                signal.SIGUSR2, file=2
            )  # by which the launcher asks where this rank stands
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
        launched = next((name for name in LAUNCHED if name in os.environ), None)
        if launched:
            raise MxdpError(
                f"this process was started by MPI's launcher ({launched}), and can't use MPI ({error}): "
                "`pip install mpi4py mpich`, or start one process"
            ) from error
        return World()
    begun = leaving(MPI, mpi4py.rc.finalize is False).begun
    begun.append([1])  # to make a World is an exchange, too
    ranks = World(MPI)
    begun.append(ranks.begun)
    if steps is not None and ranks.size == 1:
        steps[1] = LEFT
    ranks.seed()
    return ranks


def _abort(text: str) -> None:
    from mpi4py import MPI

    who = f"rank {MPI.COMM_WORLD.rank} of {plural(MPI.COMM_WORLD.size, 'rank')}"
    print(f"{who} failed:\n{text}", file=sys.stderr, flush=True)
    if STEPS in os.environ:  # MPI would kill the launcher's guard before it says which rank failed
        sys.stdout.flush()
        os._exit(1)
    time.sleep(0.5)  # else mpiexec may end before it has passed the text on
    MPI.COMM_WORLD.Abort(1)
