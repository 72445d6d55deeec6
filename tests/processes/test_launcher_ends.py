"""How a job of the launcher ends, with a stub for ``mpiexec``; and what comes over its port, from guards and others."""

import itertools
import mmap
import os
import signal
import socket
import sys
import threading
import time
import uuid
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import psutil
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp import process
from mxdp.errors import MxdpError
from mxdp.launch import __main__ as launch
from mxdp.launch import job as jobs
from mxdp.launch.guard import INSIDE
from mxdp.launch.guarded import Guarded, LaunchFailure

SECONDS = 60
"""After which a job that does not end is ended; a limit for busy machines."""

# Starts a guard for each rank, as mpiexec does: STUB.py SIZE HOW COMMAND...
STUB = """
import os, signal, subprocess, sys, time
size, how = int(sys.argv[1]), sys.argv[2]
ranks = [subprocess.Popen(sys.argv[3:], env={**os.environ, "PMI_RANK": str(rank)}) for rank in range(size)]
statuses = [rank.wait() for rank in ranks]
if how == "killed":
    lines = b"\\r\\n".join(b"line %d" % number for number in range(25))
    os.write(1, lines[:10])  # the first, and a part of the second
    time.sleep(0.2)
    os.write(1, lines[10:])
    os.kill(os.getpid(), signal.SIGTERM)
if how == "hangs":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.close(1), os.close(2)
    time.sleep(1000)
if how == "well":
    sys.exit(0)
sys.exit(max(map(abs, statuses)))
"""


@pytest.fixture
def job(tmp_path):
    """``job(code, n)`` is a Launch of ``n`` ranks that run ``code`` without MPI."""
    stub = tmp_path / "stub.py"
    stub.write_text(STUB)
    made, watchdogs = [], []

    def start(code, n=2, how="", silent=0, hung=0, logs=None):
        code = "import os, signal, subprocess, sys, time\nrank = int(os.environ['PMI_RANK'])\n" + code
        python = [sys.executable, "-S"]
        words = [*python, stub, str(n), how, *python, launch.guard.__file__, *python, "-u", "-c", code]
        made.append(launched := jobs.Launch(words, dict(os.environ), n, "127.0.0.1", silent, hung, logs or {}))
        watchdogs.append(threading.Timer(SECONDS, setattr, (launched, "failure", LaunchFailure(1, "it hung"))))
        watchdogs[-1].start()
        return launched

    yield start
    for timer in watchdogs:
        timer.cancel()
    for launched_ in made:
        if launched_.mpiexec.returncode is None:
            launched_.end()
        assert launched_.listener.fileno() == -1
        assert launched_.connections == {}


@pytest.fixture
def alone():
    """``alone(n)`` is a Launch of ``n`` ranks whose mpiexec has ended, and to which nobody has connected."""
    made = []

    def start(n=2, silent=0, hung=0):
        made.append(jobs.Launch(["true"], dict(os.environ), n, "127.0.0.1", silent, hung, {}))
        return made[-1]

    yield start
    for launched_ in made:
        launched_.end()


LEAVES = "subprocess.Popen(['sleep', '1000'])\n"


def test_what_a_rank_leaves_is_ended_and_not_waited_for(job):
    assert job(LEAVES).run() is None


@pytest.mark.parametrize("killed", [0, 1])
def test_shared_memory_of_a_job_that_is_ended_in_mpis_start_is_given_back(job, tmp_path, monkeypatch, killed):
    """Named like MPICH's, and rank 0's. If rank 1 is killed, rank 0's guard removes it: this may be another host.
    Another job's stays."""
    path, others = (Path(f"/dev/shm/mpich_shm_{uuid.uuid4().hex}") for _ in range(2))
    if killed == 1:
        monkeypatch.setattr(jobs, "forget_lost_memory", lambda began: None)
    code = f"""
path, ready = {str(path)!r}, {str(tmp_path / "ready")!r}
if rank == 0:
    import mmap
    file = open(path, "w+b")
    file.truncate(4096)
    shared = mmap.mmap(file.fileno(), 4096)
    open(ready, "w").close()
while rank != {killed} or not os.path.exists(ready):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""
    others.write_bytes(bytes(4096))
    with others.open("r+b") as file, mmap.mmap(file.fileno(), 4096):
        assert job(code).run().status == 128 + 9
        assert (path.exists(), others.exists()) == (False, True)
    others.unlink()


@pytest.mark.parametrize(("victim", "how"), [(1, ""), (0, "well")])
def test_a_killed_guard_takes_its_rank_along(job, monkeypatch, victim, how):
    monkeypatch.setattr(jobs, "GRACE", 0.5)
    ends = job(f"rank == {victim} and os.kill(os.getppid(), 9) or time.sleep(1000)", how=how).run()
    assert ends.status > 0
    assert ends.what.startswith(f"rank {victim} on ")
    assert ends.what.endswith("killed, and the guard too")


@pytest.mark.parametrize(("how", "status"), [("well", 1), ("", 9)])
def test_a_rank_killed_with_its_guard_is_named_however_mpiexec_ends(job, how, status):
    ends = job("rank and (os.kill(os.getppid(), 9), os.kill(os.getpid(), 9))", how=how).run()
    assert (ends.status, ends.what.split(" on ")[0]) == (status, "rank 1")


def test_an_mpiexec_that_is_killed_is_a_failure_though_all_ranks_end_well(job, capsys):
    """What is shown of it are its last ten lines, whole, however it writes them."""
    ends = job("pass", how="killed").run()
    assert (ends.status, ends.what) == (128 + signal.SIGTERM, "mpiexec failed with exit status 143")
    assert list(ends.lines) == [f"[mpiexec] line {number}" for number in range(15, 25)]
    assert len(capsys.readouterr().err.splitlines()) == 25


def test_an_mpiexec_that_does_not_end_is_ended(job, monkeypatch):
    monkeypatch.setattr(jobs, "START", 0.2)
    monkeypatch.setattr(jobs, "GRACE", 0.2)
    assert job("pass", how="hangs").run() is None


def silent_job(alone, silent=0, hung=0, n=3):
    """A job whose ranks are made here, at the time 100 s."""
    made = alone(n, silent, hung)
    made.now = made.progress = 100.0
    made.ranks = {rank: Guarded(None, 100.0, rank, "h", step=5) for rank in range(n)}
    return made


HOW = {
    (3, 0): ("failed with exit status 3", 3),
    (-9, INSIDE): ("was killed by signal 9 (SIGKILL)", 128 + 9),
    (0, INSIDE): ("ended with exit status 0 before the other ranks", 1),
}
LINES = st.tuples(st.integers(0, 2), st.sampled_from(["out", "err"]))


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each starts a process
@given(
    lines=st.lists(LINES, max_size=60), failed=st.integers(0, 2), end=st.sampled_from([*HOW, (0, 2)]), data=st.data()
)
def test_what_is_shown_of_a_failed_rank_are_its_last_ten_lines(alone, capsys, lines, failed, end, data):
    """Of both streams, in the order in which they came, whatever the others say. The first failure counts, or a later
    signal, which has ended the others. A good end inside MPI is a failure, too."""
    made, said = silent_job(alone), {0: [], 1: [], 2: []}
    for number, (rank, stream) in enumerate(lines):
        made.note(made.ranks[rank], {"step": number, "part": 0, stream: f"line {number}"})
        said[rank].append(f"[{rank}] line {number}")
    assert made.failure is None
    at = made.ranks[failed].step
    (status, part), (out, err) = end, capsys.readouterr()
    made.note(made.ranks[failed], {"step": at, "part": part, "exit": status})
    if end not in HOW:
        assert made.failure is None
        return
    first, *shown = str(made.failure).splitlines()
    after = f" after step {at}" if at else ""
    how, code = HOW[end]
    colon = "; its last lines:" if said[failed] else ""
    assert first == f"mxdp.launch: rank {failed} on h{after} {how}; all ranks are ended{colon}"
    assert shown == said[failed][-10:]
    assert made.failure.status == code
    assert len(out.splitlines()) == sum(stream == "out" for _, stream in lines)
    assert sorted(out.splitlines() + err.splitlines()) == sorted(line for of_rank in said.values() for line in of_rank)
    before, other = made.failure, data.draw(st.sampled_from([rank for rank in range(3) if rank != failed]))
    late = data.draw(st.sampled_from([5, 0, -11]))
    made.note(made.ranks[other], {"step": 1, "part": 0, "exit": late})
    if status > 0 > late:
        assert made.failure.what == f"rank {other} on h after step 1 was killed by signal 11 (SIGSEGV)"
    else:
        assert made.failure is before


@pytest.mark.parametrize(
    ("closed", "killed", "seconds"), [(True, False, 0.5), (False, False, 1), (True, True, 0), (False, True, 1)]
)
def test_last_lines_of_a_failed_rank_are_waited_for(alone, monkeypatch, closed, killed, seconds):
    """And the end of one that was killed, which the others may tell before."""
    made, now = silent_job(alone), [0.0]
    made.wait = lambda: now.__setitem__(0, now[0] + 0.125)
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now[0]))
    made.hear_out()
    assert now == [0], "none has failed"
    made.ranks[1].exit, made.ranks[1].closed = 3, closed
    made.ranks[2].exit = -9 if killed else None
    made.hear_out()
    assert now == [seconds]


def test_a_guard_that_is_gone_is_an_end_after_a_grace(alone):
    made = silent_job(alone)
    for rank, ago in ((0, jobs.GRACE - 0.25), (2, 0)):
        made.ranks[rank].closed, made.ranks[rank].heard = True, made.now - ago
    assert made.silence() is None
    made.now += 0.25
    assert made.silence().what == "rank 0 on h after step 5, rank 2 on h after step 5: killed, and the guard too"
    made.ranks[2].last.append("MPI_Abort(7)")
    ends = made.silence()
    assert (ends.status, ends.what) == (1, "rank 2 on h after step 5 called MPI_Abort")
    assert list(ends.lines) == ["MPI_Abort(7)"]


@pytest.mark.parametrize("rank", range(3))
@pytest.mark.parametrize("silent", [2, 60])
def test_limits_hold_for_each_rank(alone, rank, silent):
    made = silent_job(alone, silent)
    made.ranks[rank].heard = made.now - silent + 0.01
    made.ranks[rank].stopped = silent - 0.01
    assert made.silence() is None
    made.ranks[rank].stopped = silent
    assert made.silence().what.startswith(f"rank {rank} on h after step 5 has been stopped for {silent} s")
    made.ranks[rank].stopped = 0
    made.now += 0.01
    ends = made.silence()
    assert (ends.status, ends.what) == (
        124,
        f"rank {rank} on h after step 5: not heard of for {silent} s (stopped, or cut off)",
    )
    for well in (dict(exit=0, part=2), dict(closed=True)):  # it has ended
        made.ranks[rank] = Guarded(None, made.now, rank, **well)
        assert made.silence() is None
    made.ranks[(rank + 1) % 3].part = INSIDE
    made.ranks[rank] = Guarded(None, made.now, rank, "h", exit=0)
    waiting = f"waiting there: {made.ranks[(rank + 1) % 3]}"
    assert made.silence().what == f"rank {rank} on h has ended without mxdp.world(); {waiting}"
    del made.ranks[rank]
    made.now = limit = max(silent, jobs.START)
    for guard in made.ranks.values():
        guard.heard = limit
    assert made.silence().what == f"rank {rank} did not start within {limit:g} s"
    made.now = limit - 0.01
    assert made.silence() is None
    made.silent, made.now = 0, 1e9
    assert made.silence() is None


def test_the_time_in_which_the_launcher_is_held_up_does_not_count(alone, monkeypatch):
    """Its own output is blocked, or it is stopped, for 1000 s in one of its turns."""
    made, now = silent_job(alone), [0.0]
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    monkeypatch.setattr(jobs, "connection", SimpleNamespace(wait=lambda sources, seconds: []))
    made.turn = 0.0
    for seconds in (0.25, 1000, 0.5):
        now[0] += seconds
        made.wait()
    assert made.now == 100 + 0.25 + jobs.TURN + 0.5


def test_the_ranks_that_are_behind_are_named_when_none_makes_a_step(alone, monkeypatch):
    made, sent, waited = silent_job(alone, hung=60), [], []
    monkeypatch.setattr(jobs.Launch, "wait", lambda self: waited.append(1))
    monkeypatch.setattr(jobs, "time", SimpleNamespace(monotonic=itertools.count(0, 0.25).__next__, time=time.time))

    def later(seconds, steps, stopped=(0, 0, 0)):
        made.now += seconds
        for guard, guard.step, guard.stopped in zip(made.ranks.values(), steps, stopped):
            guard.socket = SimpleNamespace(send=lambda byte, rank=guard.rank: sent.append((rank, byte)))
        return made.standstill()

    assert later(1e6, (0, 0, 0)) is None  # before the first step
    assert later(0, (5, 5, 5)) is None
    assert later(59.9, (6, 5, 5)) is None
    assert later(59.9, (6, 5, 5), stopped=(1, 1, 1)) is None  # the whole job
    assert later(59.9, (6, 5, 5), stopped=(0, 0, 3)) is None  # one that is stopped holds up the rest
    assert sent == []
    ends = later(0.1, (6, 5, 5), stopped=(0, 0, 3))
    assert ends.status == 124
    assert "for 60 s; behind: rank 1 on h after step 5, rank 2 on h after step 5 " in ends.what
    assert sent == [(1, b"?"), (2, b"?")]
    assert len(waited) == 7, "two seconds, for where they stand"


@pytest.fixture
def launched(monkeypatch):
    """What ``main`` gives to Launch, each time; ``runs`` is done in place of a job. (That each option arrives:
    tests/test_options.py.)"""
    made = SimpleNamespace(environs=[], runs=lambda logs: None)

    def recorded(words, environ, size, address, silent, hung, logs):
        made.environs.append(environ)
        return SimpleNamespace(run=lambda: made.runs(logs))

    monkeypatch.setattr(launch, "Launch", recorded)
    monkeypatch.setattr(launch, "mpiexec", lambda *_: ["mpiexec"])
    return made


def test_restarts_append_to_the_logs_and_the_environment_is_the_users(launched, monkeypatch, tmp_path):
    assert process.prepare_process().set  # what a rank must not inherit
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    monkeypatch.setenv("MINE", "1")

    def run(logs):
        for number, file in logs.items():
            file.write(b"%d" % number)
        return LaunchFailure(5, "it failed") if len(launched.environs) == 1 else None

    launched.runs = run
    for _ in range(2):
        words = ["-n", "3", "--restarts", "1", "--log-dir", str(tmp_path / "new" / "logs")]
        assert launch.main([*words, "--", "train", "x y"]) == 0
    assert len(launched.environs) == 3
    for environ in launched.environs:
        kept = {name: value for name, value in environ.items() if name not in launch.INTERFACES}
        assert kept == {"PYTHONUNBUFFERED": "1", **process.unprepared()}
        assert not set(process.prepare_process().set) & set(kept)
    files = [tmp_path / "new" / "logs" / f"rank-{rank}.log" for rank in range(3)]
    assert [file.read_text() for file in files] == ["000", "111", "222"]


@pytest.mark.parametrize("sent", [(), (signal.SIGINT,), (signal.SIGTERM,)])
def test_what_ends_the_launcher_is_its_status(launched, sent):
    """In another program than its own Ctrl-C has no number."""
    launched.runs = mock.Mock(side_effect=KeyboardInterrupt(*sent))
    assert launch.main(["-n", "1", "--", "true"]) == 128 + (sent or (signal.SIGINT,))[0]


def test_a_list_of_hosts_that_begins_with_this_one(tmp_path):
    entries = [entry for entries in psutil.net_if_addrs().values() for entry in entries if entry.family == 2]
    other = next((entry.address for entry in entries if not entry.address.startswith("127.")), None)
    if not other:
        pytest.skip("there is no interface but the loopback")
    hosts = tmp_path / "hosts"
    hosts.write_text(f"localhost:2\n{other}\n")
    assert launch.bound(None, str(hosts)) == (other, None)


WORDS = st.binary(max_size=40) | st.sampled_from([b"[" * 60_000, b'{"exit": 9}', b" 1 h", b"PASSWORD 1 h", b'"' * 9000])
every_case = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def launcher(alone):
    made = alone()
    made.now = 100.0  # it has run for a while
    return made


def connected(launcher):
    """The guard's side of a connection, and the launcher's."""
    ours, theirs = socket.socketpair()
    guard = Guarded(theirs, launcher.now)
    theirs.setblocking(False)
    launcher.connections[theirs] = guard
    return ours, guard


def hear(launcher, guard, ours, *lines):
    ours.settimeout(10)
    for line in lines:
        for at in range(0, len(line) + 1, 30_000):
            if guard.closed:
                return
            ours.sendall((line + b"\n")[at : at + 30_000])
            launcher.hear(guard)


@every_case
@given(lines=st.lists(WORDS, min_size=1, max_size=4))
def test_a_stranger_reaches_nothing_whatever_it_says(launcher, monkeypatch, lines):
    """Nothing is parsed before the password was right."""
    monkeypatch.setattr(jobs, "json", None)
    ours, guard = connected(launcher)
    with ours:
        hear(launcher, guard, ours, *lines)
        assert guard.closed
        assert (launcher.ranks, launcher.failure, launcher.connections) == ({}, None, {})


@pytest.mark.parametrize("first", ["{0} -1 h", "{0} 2 h", "{0} 0 h", " 1 h", "{0}0 1 h", "{0:.31} 1 h"])
def test_a_rank_calls_once_is_one_of_the_job_and_says_the_whole_password(launcher, first):
    launcher.ranks[0] = known = Guarded(None, 0.0, 0, closed=True, exit=0, part=2)
    ours, guard = connected(launcher)
    with ours:
        hear(launcher, guard, ours, first.format(launcher.password).encode(), b'{"step": 0, "part": 0, "exit": 9}')
    assert guard.closed
    assert (launcher.ranks, launcher.failure) == ({0: known}, None)


def test_strangers_do_not_fill_the_launcher_and_a_guard_still_gets_in(launcher):
    address, strangers = launcher.listener.getsockname(), []
    try:
        for _ in range(launcher.size + jobs.STRANGERS + 20):
            strangers.append(socket.create_connection(address, timeout=10))
            launcher.wait()
            assert len(launcher.connections) <= launcher.size + jobs.STRANGERS
        assert {each.gettimeout() for each in launcher.connections} == {0}, "none can hold up the launcher"
        with socket.create_connection(address, timeout=10) as guard:
            guard.sendall(f'{launcher.password} 1 h\n{{"step": 3, "part": 0}}\n{{"st'.encode())
            while 1 not in launcher.ranks:
                launcher.wait()
            launcher.now += jobs.GREETING  # all the others have said nothing for too long
            launcher.wait()
            assert list(launcher.connections.values()) == [launcher.ranks[1]]
            assert launcher.ranks[1].step == 3
            strangers[-1].sendall(b"x")
    finally:
        for stranger in strangers:
            stranger.close()


def test_one_that_speaks_slowly_or_never_ends_its_line_is_no_guard(launcher):
    ours, guard = connected(launcher)
    with ours:
        for _ in range(6):
            assert not guard.closed
            ours.sendall(b" ")
            launcher.wait()
            launcher.now += jobs.GREETING / 6
        launcher.wait()
    assert guard.closed
    ours, guard = connected(launcher)
    with ours:
        hear(launcher, guard, ours, b"x" * (jobs.SHORT + 1))
    assert guard.closed


def test_where_no_file_can_be_opened_a_stranger_makes_room(launcher, monkeypatch):
    accept = mock.Mock(side_effect=OSError(24, "Too many open files"))
    launcher.listener.close()
    monkeypatch.setattr(launcher, "listener", SimpleNamespace(accept=accept, close=lambda: None))
    launcher.accept()
    (ours, guard), (others, other) = connected(launcher), connected(launcher)
    with ours, others:
        launcher.accept()
        assert (guard.closed, other.closed) == (True, False)


def test_logs_have_the_ranks_bytes_and_an_error_is_said_once(job, capsys, tmp_path):
    code = "[os.write(1 + n % 2, b'\\xff\\xe4 %d %d\\n' % (rank, n)) for n in range(3)]"
    with open(tmp_path / "0", "ab", buffering=0) as log, open("/dev/full", "ab", buffering=0) as full:
        assert job(code, logs={0: log, 1: full}).run() is None
    assert sorted((tmp_path / "0").read_bytes().splitlines()) == [b"\xff\xe4 0 %d" % n for n in range(3)]
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == [f"[{rank}] \ufffd\ufffd {rank} {n}" for rank in (0, 1) for n in (0, 2)]
    assert err.count("mxdp.launch: /dev/full is not continued: No space left on device\n") == 1


def test_an_output_that_ends_is_no_fault_of_a_rank(job, monkeypatch):
    """``python -m mxdp.launch ... | head``, or into a full disk."""
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(MxdpError, match=r"^its output can't be written \(No space left on device\); all ranks are"):
            job("while True: print('y')").run()
