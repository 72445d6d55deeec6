"""What comes over the launcher's port, from guards and from anybody else; and what goes to its own output."""

from __future__ import annotations

import socket
import sys
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp.errors import MxdpError
from mxdp.launch import job as jobs
from mxdp.launch.guarded import Guarded

LINES = st.binary(max_size=40) | st.sampled_from([b"[" * 60_000, b'{"exit": 9}', b" 1 h", b"PASSWORD 1 h", b'"' * 9000])
every_case = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture
def launcher(alone):
    return alone()


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
@given(lines=st.lists(LINES, min_size=1, max_size=4))
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
        assert all(
            open_socket.gettimeout() == 0 for open_socket in launcher.connections
        )  # none can hold up the launcher
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
    def accept():
        raise OSError(24, "Too many open files")

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
