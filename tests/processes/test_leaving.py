"""How a rank leaves the others: the rules of :class:`mxdp.processes.leaving.Leaving`, with ranks in threads."""

from __future__ import annotations

import faulthandler
import os
import queue
import signal
import tempfile
import threading
from contextlib import suppress
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.processes import World, world
from mxdp.processes import leaving as leave
from mxdp.processes.leaving import LEFT, STEPS, Leaving


@pytest.mark.parametrize("size", [8, 16])
@pytest.mark.parametrize("named", [True, False])
def test_steps_are_counted_in_the_launchers_file_alone(monkeypatch, tmp_path, size, named):
    """Its file has no name. The number may be another file's, in a process that a rank has started."""
    with open(tmp_path / "file", "w+b") if named else tempfile.TemporaryFile() as file:
        file.write(bytes(size))
        file.flush()
        monkeypatch.setenv(STEPS, str(file.fileno()))
        ranks = World()
        for _ in range(3):
            ranks.step_done()
        expected = bytes(size) if named or size == 8 else (3).to_bytes(8, "little") + bytes(8)
        assert os.pread(file.fileno(), 99, 0) == expected
    monkeypatch.setenv(STEPS, "x")
    World().step_done()


class Ranks:
    """MPI for ranks that are threads: messages between them, and what each has done at its end."""

    def __init__(self, n):
        self.boxes, self.finalized, self.files = [queue.Queue() for _ in range(n)], [False] * n, []

    def mpi(self, rank):
        comm = SimpleNamespace(
            rank=rank,
            size=len(self.boxes),
            Iprobe=lambda: not self.boxes[rank].empty(),
            recv=lambda: self.boxes[rank].get(),
            isend=lambda message, dest: self.boxes[dest].put(message) or SimpleNamespace(wait=lambda: None),
        )
        comm.Dup = lambda: comm

        def finalize():
            self.finalized[rank] = True

        return SimpleNamespace(COMM_WORLD=comm, Is_finalized=lambda: self.finalized[rank], Finalize=finalize)


def leavings(ranks, kind=Leaving):
    """One for each rank, which does not act at the end of this process."""
    with mock.patch.object(leave.atexit, "register"):
        ends = [kind(ranks.mpi(rank), True) for rank in range(len(ranks.boxes))]
    for leaving in ends:
        leaving._file = [0, 1]
    return ends


@settings(deadline=None, max_examples=25)
@given(counts=st.lists(st.lists(st.integers(0, 2), min_size=4, max_size=4), min_size=2, max_size=4), same=st.booleans())
def test_ranks_that_have_begun_the_same_end_together_and_those_with_less_alone(counts, same):
    """Each World counts arrays and objects. A rank that has begun less of anything than another ends alone, and not one
    finalizes; one that has begun no less than all waits, to be ended with the job."""
    counts = [counts[0]] * len(counts) if same else counts
    less = {a for a, counted in enumerate(counts) if any(x < y for b in counts for x, y in zip(counted, b))}
    ranks, alone, over = Ranks(len(counts)), set(), threading.Event()

    class Rank(Leaving):
        def _leave_alone(self):
            alone.add(self._messages.rank)

        def _end(self):
            with suppress(SystemExit):
                super()._end()

        def _hear(self):
            super()._hear()
            if over.is_set():
                raise SystemExit

    ends = leavings(ranks, Rank)
    for leaving, begun in zip(ends, counts):
        leaving.begun += [begun[:2], begun[2:]]
    threads = {rank: threading.Thread(target=leaving._end, daemon=True) for rank, leaving in enumerate(ends)}
    for thread in threads.values():
        thread.start()
    for rank in less if less else threads:
        threads[rank].join(60)
        assert not threads[rank].is_alive()
    over.set()
    for thread in threads.values():
        thread.join(60)
    assert alone == less
    assert ranks.finalized == [not less] * len(counts)
    assert [leaving._file[1] for leaving in ends] == [1 if less else LEFT] * len(counts)


def test_one_that_still_computes_is_waited_for_and_one_that_waits_is_noticed():
    """Rank 0 has ended after one sum. Rank 1 computes; then it begins a second one."""
    ranks, alone = Ranks(2), threading.Event()
    ends = leavings(ranks)
    for leaving in ends:
        leaving.begun.append([1, 0])
        leaving._leave_alone = alone.set
    thread = threading.Thread(target=ends[0]._end, daemon=True)
    thread.start()
    assert not alone.wait(1.2)  # its thread looks twice a second
    ends[1].begun[0][0] += 1
    assert alone.wait(60)
    thread.join(60)
    assert ends[0]._waits == 1
    ends[1]._over.set()
    assert ranks.finalized == [False, False]


def test_a_child_by_fork_leaves_nobody():
    ranks = Ranks(1)
    (leaving,) = leavings(ranks)
    leaving._process += 1
    leaving._end()
    assert ranks.finalized == [False]
    leaving._process = os.getpid()
    leaving._end()
    assert (ranks.finalized, leaving._file) == ([True], [0, LEFT])


def test_the_users_handler_of_the_signal_that_asks_where_a_rank_stands_stays(monkeypatch):
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))
    try:
        with tempfile.TemporaryFile() as file:
            file.truncate(16)
            monkeypatch.setenv(STEPS, str(file.fileno()))
            world()
            os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        faulthandler.unregister(signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, before)
    assert heard == [1]
