"""MPI of ``n`` ranks that are threads of one process, for tests that need no ``mpiexec``.

``run(n, work)`` calls ``work(world)`` on each rank. Collective calls meet as MPI's do: they add in the order of ranks,
and fail where ranks call another function or bring another type or length. Where one rank fails, all others fail, too,
so no test hangs. An error that would end a real job (``world._abort``) is kept in ``aborted``.
"""

import sys
import threading
from collections import Counter
from contextlib import contextmanager
from unittest import mock

from mxdp.backend import npx
from mxdp.processes import World
from mxdp.processes import world as world_function

LIMIT = 60
HERE = threading.local()
world_module = sys.modules[world_function.__module__]


class Truncated(Exception):
    """Like MPI's "Message truncated": the ranks do not bring the same."""


class Alone(Exception):
    """Another rank has failed."""


class Group:
    """What the ranks share."""

    def __init__(self, n):
        self.n, self.aborted, self._over = n, [], False
        self._changed, self._calls, self._meetings = threading.Condition(), Counter(), {}

    def meet(self, name, rank, value):
        """Every rank's value, when all are here."""
        with self._changed:
            self._calls[name, rank] += 1
            call = name, self._calls[name, rank]
            here = self._meetings.setdefault(call, {})
            here[rank] = value
            self._changed.notify_all()
            self._changed.wait_for(lambda: len(here) == self.n or self._over, LIMIT)
            if len(here) < self.n:
                raise Alone(f"rank {rank} waited for the others")
            self._meetings.pop(call, None)
            return [here[number] for number in range(self.n)]

    def end(self, text=None):
        """No rank waits for another any more."""
        with self._changed:
            self._over = True
            if text:
                self.aborted.append(text)
            self._changed.notify_all()


class Comm:
    def __init__(self, group, rank, name="world"):
        self.rank, self.size, self._group, self._name, self._dups = rank, group.n, group, name, 0

    def Dup(self):
        self._dups += 1
        return Comm(self._group, self.rank, f"{self._name}.{self._dups}")

    def Split_type(self, kind, key):
        return self

    def Free(self):
        pass

    def allgather(self, value):
        return self._meet("allgather", None, value)

    def Allreduce(self, sent, host):
        total = sum(self._meet("Allreduce", (host.size, host.dtype), host.copy()))
        host[...] = total.astype(host.dtype)

    def Reduce_scatter(self, host, piece, counts):
        total = sum(self._meet("Reduce_scatter", (host.size, host.dtype, tuple(counts)), host.copy()))
        start = sum(counts[: self.rank])
        piece[...] = total[start : start + counts[self.rank]].astype(piece.dtype)

    def Allgather(self, sent, received):
        received[...] = self._meet("Allgather", sent.size, sent.copy())

    def Allgatherv(self, sent, received):
        host, counts = received
        theirs = self._meet("Allgatherv", (host.size, host.dtype, tuple(counts)), host.copy())
        ends = [sum(counts[:rank]) for rank in range(self.size + 1)]
        for rank, other in enumerate(theirs):
            host[ends[rank] : ends[rank + 1]] = other[ends[rank] : ends[rank + 1]]

    def Bcast(self, host, root=0):
        host[...] = self._meet("Bcast", (host.size, host.dtype), host.copy())[root].reshape(host.shape)

    def _meet(self, call, kind, value):
        brought = self._group.meet(self._name, self.rank, ((call, kind), value))
        kinds = [kind for kind, _ in brought]
        if any(kind != kinds[0] for kind in kinds):
            raise Truncated(f"the ranks bring {kinds}")
        return [theirs for _, theirs in brought]


class MPI:
    IN_PLACE, COMM_TYPE_SHARED, THREAD_MULTIPLE = "in place", 0, 3
    _typedict = dict.fromkeys("bhilqBHILQfd")

    def __init__(self, comm, threads=THREAD_MULTIPLE):
        self.COMM_WORLD, self._threads = comm, threads

    def Query_thread(self):
        return self._threads


def rank():
    """The number of the rank that calls this; None outside of ranks."""
    return getattr(HERE, "rank", None)


@contextmanager
def _one_process(group):
    """``waitall`` waits for all ranks' work, so all enter it before one pushes more; no failure ends the process."""
    real = npx.waitall

    def waitall():
        if rank() is None:
            return real()
        group.meet("waitall", rank(), None)
        real()
        group.meet("waitall", rank(), None)

    hook = sys.excepthook
    with mock.patch.object(npx, "waitall", waitall), mock.patch.object(world_module, "_abort", group.end):
        try:
            yield
        finally:
            sys.excepthook = hook


def outcomes(n, work, make=World):
    """For each rank what ``work(make(mpi))`` returned, or the error that it raised; and what would end a real job."""
    group, results = Group(n), [None] * n

    def one(number):
        HERE.rank = number
        npx.set_np()  # each thread has its own
        try:
            results[number] = work(make(MPI(Comm(group, number))))
        except BaseException as error:
            results[number] = error
            if not isinstance(error, Alone):
                group.end()

    with _one_process(group):
        threads = [threading.Thread(target=one, args=(number,)) for number in range(n)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        npx.waitall()
    return results, group.aborted


def run(n, work, make=World):
    """What ``work(world)`` returns on each rank; none fails."""
    results, aborted = outcomes(n, work, make)
    errors = [outcome for outcome in results if isinstance(outcome, BaseException)]
    errors.sort(key=lambda error: isinstance(error, Alone))  # last
    failed = errors or aborted
    assert not failed, f"a rank failed: {errors[:1]} {aborted[:1]}"
    return results
