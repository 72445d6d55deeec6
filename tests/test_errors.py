"""However a command ends by what is around it, it says a sentence or nothing, never a traceback."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp.errors import MxdpError, UsageError, as_command

COMMANDS = [
    "mxdp", "mxdp.experiments list", "mxdp.experiments --help", "mxdp.plans ring 64", "mxdp.exercises list",
    "mxdp.book list", "mxdp.scratch --help", "mxdp.launch --help",
]  # fmt: skip


def ended(line, **how):
    """What this command says on stderr, and its exit status."""
    environ = {**os.environ, "PYTHONUNBUFFERED": how.pop("unbuffered", "")}
    words = [sys.executable, "-m", *line.split()]
    done = subprocess.run(words, stderr=subprocess.PIPE, text=True, timeout=120, env=environ, **how)
    return done.stderr, done.returncode


@pytest.mark.parametrize("line", COMMANDS)
def test_on_a_full_disk_a_command_says_so(line):
    with open("/dev/full", "w") as full:
        said, status = ended(line, stdout=full)
    assert said.endswith(": the system refuses to go on: No space left on device\n")
    assert (said.count("\n"), status > 0) == (1, True)


@pytest.mark.parametrize(
    ("line", "unbuffered"), [("mxdp.plans ring 64", ""), ("mxdp.plans ring 64", "1"), ("mxdp.experiments list", "")]
)
def test_a_pipe_that_nobody_reads_ends_a_command_in_silence(line, unbuffered):
    reads, writes = os.pipe()
    os.close(reads)
    try:
        assert ended(line, stdout=writes, unbuffered=unbuffered)[0] == ""
    finally:
        os.close(writes)


@given(text=st.text(st.characters()), encoding=st.sampled_from(["latin-1", "ascii", "utf-8", "cp1252"]))
def test_what_an_encoding_lacks_is_escaped(text, encoding):
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding, newline="\n")
    with contextlib.redirect_stdout(file):
        assert as_command()(lambda arguments: print(f"a{text}b"))() == 0
    shown = file.buffer.getvalue().decode(encoding)
    assert f"a{text}b\n".encode(encoding, "backslashreplace").decode(encoding) == shown


@pytest.mark.parametrize(
    ("error", "said", "status"),
    [
        (UsageError("no such name"), "x: no such name\n", 2), (MxdpError("no way"), "x: no way\n", 3),
        (ValueError("two is too few"), "x: two is too few\n", 2), (KeyboardInterrupt(), "x: interrupted\n", 3),
        (OSError(28, "No room", "file"), "x: the system refuses to go on: file: No room\n", 3),
        (RecursionError("depth"), "x: what was given is too large, or nested too deeply (depth)\n", 3),
        (BrokenPipeError(32, "Broken pipe"), "", 3),
    ],
)  # fmt: skip
def test_an_error_is_a_sentence_and_a_status(error, said, status, capsys):
    @as_command("x", failed=3, usage=ValueError)
    def main(arguments):
        raise error

    assert main([]) == status
    assert capsys.readouterr().err == said


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        as_command()(lambda arguments: 1 // 0)([])


SIGNALLED = """
import signal, sys, threading, time
from mxdp.errors import as_command, tidy_after_signals

@as_command()
def main(arguments):
    try:
        print("begins", flush=True)
        time.sleep(60)
    finally:
        time.sleep(0.5)
        print("tidied up", flush=True)

tidy_after_signals()
status = main()
time.sleep(0.2)
sys.exit(status)
"""


@pytest.mark.parametrize("number", [1, 2, 15])
def test_only_the_first_of_many_signals_counts(number):
    pipe = subprocess.PIPE
    started = subprocess.Popen([sys.executable, "-c", SIGNALLED], stdout=pipe, stderr=pipe, text=True)
    assert started.stdout
    assert started.stdout.readline() == "begins\n"
    ends = threading.Event()

    def send():
        while not ends.wait(0.002) and started.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # of Python 3.8
                started.send_signal(number)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        said = started.communicate(timeout=60)
    finally:
        ends.set()
        thread.join()
    assert (said, started.returncode) == (("tidied up\n", "mxdp: interrupted\n"), 1)
