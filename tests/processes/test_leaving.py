"""How a rank leaves the others: the rules of :class:`mxdp.processes.leaving.Leaving`, with ranks in threads."""

import faulthandler
import os
import queue
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mxdp.processes import leaving as leave
from mxdp.processes import world
from mxdp.processes.leaving import INSIDE, STALLED, STEPS, Leaving, launchers_file

PAGE = Path(__file__).resolve().parents[2] / "docs" / "gluon.md"
MPIEXEC = Path(sys.executable).with_name("mpiexec")
STEP, END = r"        trainer\.step.*", r"print\(.epochs.*"
ALONE = {
    "is late in its last steps": (r"        mine = .*", "        ", "time.sleep(epoch / 2)"),
    "prints": (STEP, "        ", "print('loss', losses[0].mean())"),
    "sleeps": (STEP, "        ", "time.sleep(0.05)"),
    "saves": (STEP, "        ", "kept.save(net, trainer, epoch=epoch)"),
    "evaluates": (END, "", "print((net(np.array(data.test.X)).asnumpy().argmax(1) == data.test.y).mean())"),
    "sleeps at its end": (END, "", "time.sleep(1.5)"),
}
"""What a rank does alone: after which line of the loop in docs/gluon.md, how far from the margin, and how."""


@st.composite
def right_jobs(draw):
    """A command's start, how many ranks, and the loop of docs/gluon.md, in which some do more. Maybe all end early."""
    loop = PAGE.read_text(encoding="utf-8").partition("train.py <<'END'\n")[2].partition("END\n")[0]
    size = draw(st.integers(2, 3))
    for what in draw(st.lists(st.sampled_from(sorted(ALONE)), min_size=1, max_size=3, unique=True)):
        line, margin, code = ALONE[what]
        who = draw(st.integers(0, size - 1))
        loop = re.sub(f"(?m)^{line}$", lambda m: f"{m.group()}\n{margin}if world.rank == {who}: {code}", loop)  # noqa: B023
    if draw(st.booleans()):
        loop = re.sub(f"(?m)^{STEP}$", r"\g<0>\n        if epoch == 2: sys.exit(0)", loop)
    loop = loop.replace('"digits")', f'"digits").take({64 * draw(st.integers(1, 3))}, 40)')
    loop = loop.replace("for epoch", "kept = mxdp.Checkpoint(f'kept-{world.rank}')\nfor epoch")
    start = draw(st.sampled_from([[sys.executable, "-m", "mxdp.launch"], [MPIEXEC]]))
    return start, size, "import sys, time\n" + loop.replace("npx\n", "np, npx\n")


@pytest.mark.skipif(not MPIEXEC.exists(), reason="no mpiexec beside this Python: pip install mpi4py mpich")
@settings(max_examples=4, phases=[Phase.generate])
@given(job=right_jobs())
def test_ranks_of_which_one_does_more_than_the_others_end_well(job):
    pytest.importorskip("mpi4py")
    start, size, code = job
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "train.py").write_text(code)
        command = [*start, "-n", str(size), *["--"] * (len(start) > 1), sys.executable, "train.py"]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, ""), code


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
        leaving._file = [0, INSIDE]
    return ends


def test_one_rank_alone_watches_nobody_and_unlike_worlds_are_compared_number_by_number():
    (alone,) = leavings(Ranks(1))
    assert alone._thread.ident is None
    assert leave._ahead([2, 1, 0, 0], [1, 1]) == leave._ahead([2, 1], [1, 1, 0, 4]) == [leave.KINDS[0]]


def test_only_a_rank_that_stalls_itself_ends_the_job_when_another_says_that_it_does():
    ranks = Ranks(2)
    here, _ = leavings(ranks)
    here._over.set()
    here._thread.join()
    here.begun.append([1, 0])
    ended = []
    end = lambda text: ended.append(here._looks)  # noqa: E731
    with mock.patch.object(leave, "end_job", end):
        for here._looks in range(STALLED + 2):
            ranks.boxes[0].put((1, [0, 1], True))
            here._hear()
    assert ended == [STALLED, STALLED + 1]


class Turns(threading.Event):
    """Leaving's thread looks so often that a test is short."""

    def wait(self, timeout=None):
        return super().wait(timeout and timeout / 100)


@settings(max_examples=40)
@given(data=st.data())
def test_a_rank_that_is_ahead_or_behind_is_waited_for_and_one_that_leaves_the_others_waiting_is_not(data):
    """All ranks begin the same sums (0), which don't wait, and gathers (1), which do, at a pace of their own. A rank
    that stops early leaves alone, if another has begun more."""
    program = data.draw(st.lists(st.integers(0, 1), max_size=8))
    size = data.draw(st.integers(2, 4))
    stops = [len(program)] * size
    if data.draw(st.booleans()):
        stops = data.draw(st.lists(st.integers(0, len(program)), min_size=size, max_size=size))
    pauses = data.draw(st.lists(st.lists(st.integers(0, 2), min_size=9, max_size=9), min_size=size, max_size=size))
    gather = next((at for at in range(min(stops), len(program)) if program[at]), len(program))  # where some never come
    begun = [min(stop, gather + 1) for stop in stops]
    end = {rank for rank in range(size) if stops[rank] <= gather}
    less = {rank for rank in end if begun[rank] < max(begun)}

    ranks, over, alone = Ranks(size), threading.Event(), set()

    class Rank(Leaving):
        def _leave_alone(self, waits):
            assert begun[waits] > begun[self._messages.rank]
            alone.add(self._messages.rank)

        def _hear(self):
            super()._hear()
            if over.is_set() and threading.current_thread() is not self._thread:
                raise SystemExit

    with mock.patch.object(leave.threading, "Event", Turns):
        ends = leavings(ranks, Rank)
    counts = [[0, 0] for _ in range(size)]
    for leaving, count in zip(ends, counts):
        leaving.begun.append(count)

    def train(rank):
        for at, kind in enumerate(program[: stops[rank]]):
            time.sleep(0.005 * pauses[rank][at])
            counts[rank][kind] += 1
            while kind and min(count[1] for count in counts) < counts[rank][1]:
                if over.wait(0.001):
                    return
        time.sleep(0.005 * pauses[rank][-1])
        with suppress(SystemExit):
            ends[rank]._end()

    threads = [threading.Thread(target=train, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for rank in less or end:
        threads[rank].join(60)
        assert not threads[rank].is_alive()
    over.set()
    for thread in threads:
        thread.join(60)
    for leaving in ends:
        leaving._over.set()
    assert alone == less
    well = not less and len(end) == size
    assert ranks.finalized == [well] * size
    assert [leaving._file[1] for leaving in ends] == [2 if well else INSIDE] * size, "by the launcher's numbers"


@settings(max_examples=15)
@given(counts=st.lists(st.tuples(st.integers(1, 2), st.integers(0, 2), st.integers(0, 2)), min_size=2, max_size=4))
def test_ranks_that_wait_for_each_other_in_different_exchanges_are_ended(counts):
    """Nobody is at its end, and nobody begins anything more. A rank that is only ahead, or behind, is waited for."""
    before = lambda one, other: any(x < y for x, y in zip(one, other))  # noqa: E731
    crossed = any(before(one, other) and before(other, one) for one in counts for other in counts)
    ranks, ended = Ranks(len(counts)), []
    with mock.patch.object(leave.threading, "Event", Turns), mock.patch.object(leave, "end_job", ended.append):
        ends = leavings(ranks)
        for leaving, begun in zip(ends, counts):
            leaving.begun += [begun[:1], begun[1:]]
        until = time.monotonic() + 60
        while min(leaving._looks for leaving in ends) < STALLED + 5 and time.monotonic() < until:
            time.sleep(0.01)
        for leaving in ends:
            leaving._over.set()
            leaving._thread.join(60)
    assert bool(ended) == crossed


def test_a_child_by_fork_leaves_nobody():
    ranks = Ranks(1)
    (leaving,) = leavings(ranks)
    leaving._process += 1
    leaving._end()
    assert ranks.finalized == [False]
    leaving._process = os.getpid()
    leaving._end()
    assert (ranks.finalized, leaving._file) == ([True], [0, 2])


def test_the_users_handler_of_the_signal_that_asks_where_a_rank_stands_stays(monkeypatch):
    heard = []
    before = signal.signal(signal.SIGUSR2, lambda *_: heard.append(1))
    try:
        with tempfile.TemporaryFile() as file:
            file.truncate(24)
            monkeypatch.setenv(STEPS, str(file.fileno()))
            launchers_file.cache_clear()
            world()
            assert list(launchers_file()) == [0, leave.LEFT, os.getpid()], "one rank alone has nobody to wait for"
            os.kill(os.getpid(), signal.SIGUSR2)
    finally:
        faulthandler.unregister(signal.SIGUSR2)
        signal.signal(signal.SIGUSR2, before)
        launchers_file.cache_clear()
    assert heard == [1]
