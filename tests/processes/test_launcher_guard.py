"""The guard of a rank alone, with a launcher that the test plays."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

from mxdp.launch import guard

SECONDS = 60


@pytest.fixture
def guarded(tmp_path):
    """``guarded(code)`` runs a rank; ``.heard(condition)`` is the first message of its guard that fulfils it."""
    with contextlib.ExitStack() as last, socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.settimeout(SECONDS)

        def start(code, silent=0):
            command = [sys.executable, "-S", guard.__file__, sys.executable, "-S", "-u", "-c", code]
            address = f"127.0.0.1 {listener.getsockname()[1]} secret {silent}"
            process = subprocess.Popen(command, env={**os.environ, guard.ADDRESS: address, "PMI_RANK": "3"})
            last.callback(process.wait, SECONDS)
            connection = last.enter_context(listener.accept()[0])
            connection.settimeout(SECONDS)
            lines = last.enter_context(connection.makefile("rb"))
            greeting = lines.readline().split()

            def heard(condition):
                until = time.monotonic() + SECONDS
                for message in map(json.loads, lines):  # heartbeats, at least
                    assert time.monotonic() < until
                    if condition(message):
                        return message
                raise AssertionError("the guard has ended")

            return SimpleNamespace(greeting=greeting, connection=connection, heard=heard)

        yield start


def test_the_command_does_not_get_the_password_and_all_it_says_arrives(guarded):
    code = "import os; print('MXDP_LAUNCH' in os.environ, 'secret' in str(os.environ)); os.write(2, b'\\xff end')"
    rank = guarded(code)
    assert rank.greeting[:2] == [b"secret", b"3"]
    received = {}
    rank.heard(lambda message: received.update(message) or {"out", "err", "exit"} <= set(received))  # in any order
    assert (received["out"], received["err"], received["exit"]) == ("False False", "\udcff end", 0)


def test_a_line_without_end_is_shown_in_parts(guarded):
    rank = guarded("import time; print('x' * 1_000_000, end=''); time.sleep(1000)")
    parts = [rank.heard(lambda message: "out" in message)["out"] for _ in range(6)]
    assert set("".join(parts)) == {"x"}
    assert all(len(part) <= 2 * guard.LONGEST for part in parts)


def test_the_guard_reads_no_more_than_the_launcher_takes(guarded, tmp_path):
    done, size = tmp_path / "done", 320  # 20 MB; the system keeps some of it
    count = f"import os; done = open({str(done)!r}, 'wb', 0)\n"
    rank = guarded(count + f"for _ in range({size}): os.write(1, b'x\\n' * 32768); done.write(b'x')")
    rank.heard(lambda message: "out" in message)
    sizes = [0, done.stat().st_size]
    while sizes[-1] != sizes[-2] and len(sizes) < 30:
        time.sleep(1)
        sizes.append(done.stat().st_size)
    assert sizes[-1] == sizes[-2] < size
    rank.connection.shutdown(socket.SHUT_RDWR)


def test_all_it_says_arrives_though_the_launcher_reads_late(guarded):
    rank = guarded("print('x' * 10_000, flush=True)", silent=60)
    for _ in range(20):  # so some of the launcher's words are not read when the command has ended
        rank.connection.send(b".")
        time.sleep(0.05)
    assert rank.heard(lambda message: "out" in message)["out"] == "x" * 10_000
    assert rank.heard(lambda message: "exit" in message)["exit"] == 0
    rank.connection.close()


def test_each_stop_is_told_and_each_continuation(guarded):
    rank = guarded("import os, time; print(os.getpid()); time.sleep(1000)", silent=2)
    pid = int(rank.heard(lambda message: "out" in message)["out"])
    for _ in range(2):
        os.kill(pid, signal.SIGSTOP)
        assert rank.heard(lambda message: message.get("stopped"))["stopped"] < SECONDS
        os.kill(pid, signal.SIGCONT)
        assert rank.heard(lambda message: "stopped" in message and not message["stopped"])
        rank.connection.send(b".")


def test_a_rank_that_can_not_say_where_it_stands_is_not_asked(guarded):
    """The signal would kill it. (One that can: test_launch.)"""
    rank = guarded("import time; print('up'); time.sleep(1000)")
    rank.heard(lambda message: "out" in message)
    rank.connection.send(b"." + guard.WHERE)
    for _ in range(2):
        assert "exit" not in rank.heard(lambda message: "stopped" in message or "exit" in message)
    rank.connection.shutdown(socket.SHUT_RDWR)
