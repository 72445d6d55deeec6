"""The guard of a rank alone: with a clock, a command and a launcher that the test plays, or as a process."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.launch import guard
from mxdp.launch.guard import BAR, BEAT, INSIDE, LONGEST, WHERE, Guard

SECONDS = 60
STOPPED, CONTINUED = signal.SIGSTOP << 8 | 0x7F, 0xFFFF


class Played:
    """A Guard, and what is around it. ``do``: what happens next, in the order of its seconds. All that it does is done
    at 0 s or when something happens or a beat is due. ``said``: its messages, with the second of each."""

    def __init__(self, do, silent=0, deaf=False):
        self.now, self.do, self.deaf, self.said, self.waited, self.signals = 0.0, list(do), deaf, [], [], []
        self.launcher, theirs = socket.socketpair()
        theirs.setblocking(False)
        self.launcher.setblocking(False)
        (out, self.out), (err, self.err) = os.pipe(), os.pipe()
        self.files = [os.fdopen(end, "rb", 0) for end in (out, err)]
        for end in (self.out, self.err):
            os.set_blocking(end, False)
        self.unread = b""
        self.wake = lambda: None
        self.guard = Guard(theirs, silent)

    def select(self, readable, writable, _, seconds):
        self.hear()
        until = self.now + seconds
        while not any(ready := select.select(readable, writable, [], 0)):
            if not self.do or self.do[0][0] > until:
                self.now = until
                return ready
            self.now, do = self.do.pop(0)
            do(self)
        return ready

    def hear(self):
        with suppress(BlockingIOError):
            while not self.deaf:
                self.unread += self.launcher.recv(LONGEST)
        *lines, self.unread = self.unread.split(b"\n")
        self.said += [(self.now, json.loads(line)) for line in lines]

    def waitpid(self, pid, flags):
        assert flags == os.WNOHANG | os.WUNTRACED | os.WCONTINUED
        return (pid, self.waited.pop(0)) if self.waited else (0, 0)

    def run(self):
        out, err = self.files
        child = SimpleNamespace(pid=4711, stdout=out, stderr=err)
        clock = SimpleNamespace(monotonic=lambda: self.now)
        patch = mock.patch.object
        with patch(guard, "time", clock), patch(guard, "select", SimpleNamespace(select=self.select)), patch(
            os, "waitpid", self.waitpid
        ), patch(guard.subprocess, "Popen", lambda *_, **__: child), patch(
            guard.signal, "set_wakeup_fd", lambda end, **_: setattr(self, "wake", lambda: os.write(end, b"x"))
        ), patch(guard.signal, "signal"), patch(os, "kill", lambda *what: self.signals.append((self.now, *what))):
            status = self.guard.run(["command"], {})
        self.deaf = False
        self.hear()
        return status

    def told(self, name):
        return [(at, message[name]) for at, message in self.said if name in message]


def says(at, text, to="out"):
    return at, lambda played: os.write(getattr(played, to), text)


def becomes(at, status):
    """The command is stopped, goes on or has ended."""
    return at, lambda played: played.waited.append(status) or played.wake()


def closes(at):
    return at, lambda played: (os.close(played.out), os.close(played.err))


def hears(at, words):
    return at, lambda played: played.launcher.send(words)


def exits(at, status=0):
    return [becomes(at, status << 8), closes(at)]


def test_beats_are_five_to_the_shortest_silence_and_tell_for_how_long_the_rank_is_stopped():
    played = Played(exits(10.1))
    assert played.run() == 0
    assert played.told("stopped") == [(pytest.approx(beat * 0.4), 0) for beat in range(1, 26)]
    played = Played([becomes(1, STOPPED), becomes(3, CONTINUED), becomes(4.1, STOPPED), *exits(6.1)])
    assert played.run() == 0
    beats = [at for at, _ in played.told("stopped")]
    assert all(BEAT - 1e-9 < later - earlier < 2 * BEAT for earlier, later in zip(beats, beats[1:]))
    for at, stopped in played.told("stopped"):
        since = 1 if 1 <= at < 3 else 4.1 if at >= 4.1 else at
        assert stopped == pytest.approx(at - since)
    assert played.told("exit") == [(6.1, 0)]


@pytest.mark.parametrize("silent", [0, 2, 3.5])
def test_the_guard_waits_for_a_launcher_that_says_nothing_no_longer_than_it_was_told(silent):
    played = Played([hears(1, b"."), *exits(50)], silent)
    if not silent:
        assert played.run() == 0
        return
    with pytest.raises(ConnectionError):
        played.run()
    assert 1 + silent < played.now < 1 + silent + BEAT + 0.01


@pytest.mark.parametrize(
    ("ended", "part", "status"), [(0, 0, 0), (0, INSIDE, 1), (3, INSIDE, 3), (0, 2, 0), (-9, 0, -9)]
)
@pytest.mark.parametrize("left", [False, True])
def test_the_end_is_told_and_half_a_second_later_no_more_is_read(ended, part, status, left):
    """Where a process that the command has left holds its output. A good end is none while other ranks may wait."""
    raw = ended << 8 if ended >= 0 else -ended
    says_late = [says(2, b"late"), says(2.4, b"r\n"), says(3, b"too late\n")]
    played = Played([says(1, b"last"), becomes(2, raw), *(says_late if left else [closes(2)])])
    played.guard.shared[0], played.guard.shared[1] = 7, part
    assert played.run() == status
    assert played.told("exit") == [(2, ended)]
    assert played.told("out") == [(2.4, "lastlater") if left else (2, "last")]
    assert 2.5 <= played.now < 2.5 + 2 * BEAT if left else played.now == 2
    assert {(message["step"], message["part"]) for _, message in played.said} == {(7, part)}


@pytest.mark.parametrize("known", [False, True])
def test_a_rank_is_asked_where_it_stands_if_it_can_say_so(known):
    """Else the signal would kill it. It has written its number into the file that it shares with the guard."""
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
        try:
            python = os.getpid() if known else stranger.pid  # in no session of the guard's
            ask = [hears(1, b"." + WHERE + b"."), hears(2, b".")]
            for number, expected in ((0, []), (python, [(1, python, signal.SIGUSR2)] if known else [])):
                played = Played([*ask, *exits(3)])
                played.guard.shared[2] = number
                assert played.run() == 0
                assert played.signals == expected
        finally:
            stranger.kill()


PIECES = st.lists(st.sampled_from([b"a", b"bc", b"\xff", b"\r", b"\r", b"\r\n", b"\n"]), min_size=1, max_size=8)


@settings(max_examples=60)
@given(drawn=st.lists(st.tuples(st.integers(0, 9), PIECES.map(b"".join), st.sampled_from(["out", "err"])), max_size=11))
def test_each_line_arrives_as_a_terminal_shows_it_and_a_bar_once_a_second(drawn):
    """Of what is drawn over itself, its last whole state."""
    assert BAR == 1
    at, next_bar, do, expected, rests = 0.0, 0.0, [], [], {"out": b"", "err": b""}

    def shown(line, to):
        expected.append((at, to, line.rstrip(b"\r").rpartition(b"\r")[2].decode(errors="surrogateescape")))

    for tenths, piece, to in drawn:
        at += tenths / 10
        do.append(says(at, piece, to))
        *lines, rest = (rests[to] + piece).split(b"\n")
        for line in lines:
            shown(line, to)
        state, _, rests[to] = rest.rpartition(b"\r")
        if state and at >= next_bar:
            next_bar = at + BAR
            shown(state, to)
    played = Played([*do, *exits(at + 1)])
    assert played.run() == 0
    at += 1
    for to, rest in rests.items():
        if rest:
            shown(rest, to)
    said = [(at, to, message[to]) for at, message in played.said for to in ("out", "err") if to in message]
    for stream in ("out", "err"):
        assert [said_ for said_ in said if said_[1] == stream] == [line for line in expected if line[1] == stream]


@pytest.mark.parametrize("deaf", [False, True])
def test_a_long_line_comes_in_parts_and_no_more_is_read_than_the_launcher_takes(deaf):
    """For ten seconds, all of which arrives at last. Neither do heartbeats pile up."""
    written, at = [], {}

    def more(played):
        with suppress(BlockingIOError):
            written.append(os.write(played.out, b"x" * (1 << 16)))
        at[round(played.now)] = sum(written)

    ends = [(10, lambda played: setattr(played, "deaf", False)), *exits(11)]
    played = Played([*((tenth / 10, more) for tenth in range(100)), *ends], deaf=deaf)
    assert played.run() == 0
    parts = [part for _, part in played.told("out")]
    assert set("".join(parts)) == {"x"}
    assert all(LONGEST < len(part) <= 2 * LONGEST for part in parts[:-1])
    assert sum(map(len, parts)) == sum(written)
    if deaf:
        assert at[5] == at[9] < 12 * LONGEST
        assert len(played.told("stopped")) < 12
    else:
        assert at[9] > 90 << 16


@pytest.mark.parametrize(("name", "mode"), [("no-such", None), ("train.py", 0o644), ("./train.py", 0o755)])
def test_a_command_that_the_system_can_not_start_is_named_with_the_cure(name, mode, tmp_path, monkeypatch):
    """It is not there or not on the PATH, or has no run bit, or no line that names its program."""
    monkeypatch.chdir(tmp_path)
    cure = ""
    if mode:
        Path("train.py").write_text("print('up')")
        Path("train.py").chmod(mode)
        cure = f": put its program before it, as in -- python {name} a"
    played = Played([])
    assert played.guard.start([name, "a"], {}) == 127
    first, last = map(json.loads, played.guard.unsent.splitlines())
    assert first["err"].startswith(f"{name}: ")
    assert (first["err"].partition(": put")[0].count(":"), first["err"].endswith(cure or "directory")) == (1, True)
    assert last["exit"] == 127


def test_the_command_does_not_get_the_password_and_all_it_says_arrives_though_the_launcher_reads_late(tmp_path):
    """Some of the launcher's words are not read when the command has ended: a close would take back what was sent."""
    code = "import os; print('MXDP_LAUNCH' in os.environ, 'secret' in str(os.environ)); os.write(2, b'x' * 10000)"
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SECONDS)
        command = [sys.executable, "-S", guard.__file__, sys.executable, "-S", "-u", "-c", code]
        address = f"127.0.0.1 {listener.getsockname()[1]} secret 60"
        environ = {**os.environ, guard.ADDRESS: address, "PMI_RANK": "3"}
        with subprocess.Popen(command, env=environ) as process, listener.accept()[0] as connection:
            connection.settimeout(SECONDS)
            with connection.makefile("rb") as lines:
                assert lines.readline().split()[:2] == [b"secret", b"3"]
                for _ in range(20):
                    connection.send(b".")
                    time.sleep(0.05)
                received = {}
                while {"out", "err", "exit"} - set(received):
                    received.update(json.loads(lines.readline()))
            connection.shutdown(socket.SHUT_RDWR)
            assert process.wait(SECONDS) == 0
    assert (received["out"], received["err"], received["exit"]) == ("False False", "x" * 10_000, 0)


def test_a_launcher_that_is_not_there_is_named_and_nothing_is_started():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    environ = {**os.environ, guard.ADDRESS: f"127.0.0.1 {port} secret 60", "PMI_RANK": "3"}
    ended = subprocess.run([sys.executable, "-S", guard.__file__, "echo", "up"], env=environ, capture_output=True)
    assert (ended.returncode, ended.stdout) == (-signal.SIGKILL, b""), "its group ends with it"
    (line,) = ended.stderr.decode().splitlines()
    assert line.startswith(f"rank 3 can't reach the launcher at 127.0.0.1:{port}: ")
