"""What comes over the launcher's port, from guards and from anybody else; and what goes to its own output."""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mxdp.errors import MxdpError
from mxdp.launch import job as jobs
from mxdp.launch.guard import LONGEST
from mxdp.launch.guarded import Guarded, parsed, show
from mxdp.launch.job import Launch

FIELDS = ("password", "host", "out", "err", "rank", "step", "part", "exit", "stopped", "other")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()) | st.just("PASSWORD"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)
LINES = (
    st.binary(max_size=40)
    | st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=6).map(lambda m: json.dumps(m).encode())
    | st.sampled_from([b"[" * 60_000, b'{"a":' * 10_000, b'{"step":0,"password":1}', b"9" * 5000, b'{"exit":1e999}'])
)
every_case = settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck), derandomize=True)


@pytest.fixture
def launcher(monkeypatch, capsys):
    """A Launch of two ranks whose mpiexec has ended, and to which nobody has connected."""
    made = Launch(["true"], dict(os.environ), 2, "127.0.0.1", 0)
    yield made
    made.end()


def connected(launcher):
    """The guard's side of a connection, and the launcher's."""
    ours, theirs = socket.socketpair()
    guard = Guarded(theirs, launcher.now)
    theirs.setblocking(False)
    launcher.connections.append(guard)
    launcher.selector.register(theirs, jobs.selectors.EVENT_READ, lambda _: launcher.hear(guard))
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
def test_a_stranger_reaches_nothing_whatever_it_says(launcher, lines):
    ours, guard = connected(launcher)
    with ours:
        hear(launcher, guard, ours, *lines)
        assert guard.closed
        assert (launcher.ranks, launcher.failure, launcher.connections) == ({}, None, [])


@every_case
@given(lines=st.lists(LINES, max_size=4))
def test_one_with_the_password_can_not_crash_the_launcher(launcher, lines):
    ours, guard = connected(launcher)
    launcher.ranks.clear()
    launcher.failure = None
    with ours:
        hear(launcher, guard, ours, json.dumps({"password": launcher.password, "rank": 1, "host": "h"}).encode())
        assert launcher.ranks == {1: guard}
        hear(launcher, guard, ours, *lines)
        assert f"{guard}".startswith("rank 1 on h")
        assert [type(value) for value in (guard.step, guard.part)] == [int, int]
        assert launcher.failure is None or 0 < launcher.failure.status <= 128 + 255
        launcher.silence()
        launcher.standstill()
        launcher.close(guard)


def test_no_line_aborts_python_or_holds_up_the_launcher():
    """In 3.8, a RecursionError that a callback of the collector swallows, and calls below it, end the process. And
    quotes that never end must not be searched for their end again from each of them."""
    code = """
import gc
from mxdp.launch.guarded import parsed

def below(depth, line):
    return below(depth - 1, line) if depth else parsed(line)

gc.callbacks.append(lambda *_: None)
gc.set_threshold(1)
for depth in range(8):
    for line in (b"[" * 60_000, b'{"a":' * 10_000, b'{"out": "[", "err": ' + b"[" * 9_000):
        assert below(depth, line) is None
for line in (b'"' * 500_001, b'"' + b'\\\\"' * 500_000, b'{"out": "' + b'\\\\' * 500_001):
    assert parsed(line) is None
"""
    done = subprocess.run([sys.executable, "-c", code], stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr[-300:]) == (0, b"")


@pytest.mark.parametrize("words", ["[{" * 50, '\\"[{', "\\", '"', "\u2192 [1]", ""])
def test_a_message_may_hold_any_words(words):
    said = {"out": words, "rank": 1}
    assert parsed(json.dumps(said).encode()) == said


@pytest.mark.parametrize("change", [lambda p: "", lambda p: p[:-1], lambda p: p + "0", lambda p: p.upper() + "A", None])
def test_only_the_whole_password_is_one(launcher, change):
    said = {"rank": 0, "step": 0, "exit": 9, **({"password": change(launcher.password)} if change else {})}
    ours, guard = connected(launcher)
    with ours:
        hear(launcher, guard, ours, json.dumps(said).encode())
    assert guard.closed
    assert (launcher.ranks, launcher.failure) == ({}, None)


@pytest.mark.parametrize("rank", [-1, 2, 0, None])
def test_a_rank_calls_once_and_is_one_of_the_job(launcher, rank):
    launcher.ranks[0] = first = Guarded(None, 0.0, 0, closed=True, exit=0, part=2)
    ours, guard = connected(launcher)
    with ours:
        hear(launcher, guard, ours, json.dumps({"password": launcher.password, "rank": rank, "exit": 9}).encode())
    assert guard.closed
    assert (launcher.ranks, launcher.failure) == ({0: first}, None)


def test_strangers_do_not_fill_the_launcher_and_a_guard_still_gets_in(launcher):
    address, strangers = launcher.listener.getsockname(), []
    try:
        for _ in range(launcher.size + jobs.STRANGERS + 20):
            strangers.append(socket.create_connection(address, timeout=10))
            launcher.wait()
            assert len(launcher.connections) <= launcher.size + jobs.STRANGERS
        assert all(each.socket.gettimeout() == 0 for each in launcher.connections)  # none can hold up the launcher
        with socket.create_connection(address, timeout=10) as guard:
            guard.sendall(json.dumps({"password": launcher.password, "rank": 1, "step": 3}).encode() + b'\n{"st')
            while 1 not in launcher.ranks:
                launcher.wait()
            launcher.now += jobs.GREETING  # all the others have said nothing for too long
            launcher.wait()
            assert launcher.connections == [launcher.ranks[1]]
            assert launcher.ranks[1].step == 3
            strangers[-1].sendall(b"x")
    finally:
        for stranger in strangers:
            stranger.close()


def test_one_that_speaks_slowly_is_no_guard_either(launcher):
    ours, guard = connected(launcher)
    with ours:
        for _ in range(5):
            assert not guard.closed
            ours.sendall(b" ")
            launcher.wait()
            launcher.now += jobs.GREETING / 6
        launcher.now += jobs.GREETING / 6
        launcher.wait()
    assert guard.closed


def test_one_that_never_ends_its_line_is_not_kept(launcher):
    ours, guard = connected(launcher)
    with ours:
        for _ in range(6):
            assert len(guard.unread) <= LONGEST
            ours.sendall(b"x" * 30_000)
            launcher.hear(guard)
            if guard.closed:
                return
    raise AssertionError("a stranger fills the launcher's memory")


def test_where_no_file_can_be_opened_a_stranger_makes_room(launcher):
    def accept():
        raise OSError(24, "Too many open files")

    launcher.accept(SimpleNamespace(accept=accept))
    (ours, guard), (others, other) = connected(launcher), connected(launcher)
    with ours, others:
        launcher.accept(SimpleNamespace(accept=accept))
        assert (guard.closed, other.closed) == (True, False)


@every_case
@given(text=st.text(st.characters()), encoding=st.sampled_from(["latin-1", "ascii", "utf-8", "cp1252"]))
def test_any_character_can_be_shown(text, encoding):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    show(f"a{text}b", file)
    shown = file.buffer.getvalue().decode(encoding)
    assert (shown[0], shown[-2:]) == ("a", "b\n")
    assert f"a{text}b\n".encode(encoding, "backslashreplace").decode(encoding) == shown


def test_a_character_that_the_output_has_not_does_no_harm(launcher, monkeypatch):
    file = io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    monkeypatch.setattr(sys, "stdout", file)
    ours, guard = connected(launcher)
    with ours:
        hear(
            launcher, guard, ours, json.dumps({"password": launcher.password, "rank": 0, "out": "a \u2192 b"}).encode()
        )
    assert file.buffer.getvalue() == b"[0] a \\u2192 b\n"
    assert launcher.ranks == {0: guard}
    launcher.close(guard)


def test_logs_have_the_ranks_bytes_and_an_error_is_said_once(job, capsys, tmp_path):
    logs = [open(tmp_path / f"{rank}", "ab", buffering=0) for rank in range(2)]  # noqa: SIM115
    logs[1].close()
    logs[1] = open("/dev/full", "ab", buffering=0)  # noqa: SIM115
    code = "[os.write(1 + n % 2, b'\\xff\\xe4 %d %d\\n' % (rank, n)) for n in range(3)]"
    assert job(code, logs=logs).run() is None
    logs[0].close()
    assert sorted((tmp_path / "0").read_bytes().splitlines()) == [b"\xff\xe4 0 %d" % n for n in range(3)]
    out, err = capsys.readouterr()
    assert sorted(out.splitlines()) == [f"[{rank}] \ufffd\ufffd {rank} {n}" for rank in (0, 1) for n in (0, 2)]
    assert err.count("mxdp.launch: /dev/full is not continued: No space left on device\n") == 1


@pytest.mark.parametrize("closed", [False, True])
def test_an_output_that_ends_is_no_fault_of_a_rank(tmp_path, closed):
    """``python -m mxdp.launch ... | head``, or into a full disk."""
    if not Path(sys.executable).with_name("mpiexec").exists():
        pytest.skip("no mpiexec beside this Python: pip install mpi4py mpich")
    command = [sys.executable, "-m", "mxdp.launch", "-n", "1", "--", "yes"]
    with open("/dev/full", "w") as full:
        output = subprocess.PIPE if closed else full
        with subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True) as running:
            if running.stdout:
                running.stdout.readline()
                running.stdout.close()
            assert running.stderr.read().startswith("mxdp.launch: its output can't be written (")
    assert running.returncode == 1


def test_an_output_error_is_a_sentence(capsys):
    read_end, write_end = os.pipe()
    os.close(read_end)
    with open(write_end, "w") as file, pytest.raises(MxdpError, match=r"can't be written \(Broken pipe\)"):
        show("x", file)
