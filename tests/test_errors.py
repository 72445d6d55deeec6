"""However a command ends by what is around it, it says a sentence or nothing, never a traceback."""

import contextlib
import io
import os
import re
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mxdp import errors
from mxdp.errors import SIGNALS, MxdpError, UsageError, as_command

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


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_pipe_that_nobody_reads_ends_a_command_in_silence(unbuffered):
    reads, writes = os.pipe()
    os.close(reads)
    try:
        assert ended("mxdp.plans ring 64", stdout=writes, unbuffered=unbuffered)[0] == ""
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
    with pytest.raises(ZeroDivisionError):  # a defect keeps its traceback
        as_command()(lambda arguments: 1 // 0)([])


@given(sent=st.lists(st.sampled_from(SIGNALS), max_size=3))
def test_signals_wait_for_the_end_and_the_first_counts(sent):
    handled = []
    before = {number: signal.signal(number, lambda got, _: handled.append(got)) for number in SIGNALS}
    try:
        with errors.signals_wait() as noted:
            for number in sent:
                signal.raise_signal(number)
            assert (noted, handled) == (sent, [])
        assert handled == sent[:1]
        signal.raise_signal(SIGNALS[0])
        assert handled == [*sent[:1], SIGNALS[0]]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@pytest.mark.parametrize("hangup", [signal.SIG_DFL, signal.SIG_IGN])
def test_a_command_under_nohup_hears_no_hangup(hangup):
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        signal.signal(signal.SIGHUP, hangup)
        errors.tidy_after_signals()
        heard = [number for number in SIGNALS if signal.getsignal(number) is errors.on_signal]
        assert heard == [number for number in SIGNALS if number != signal.SIGHUP or hangup == signal.SIG_DFL]
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@given(count=st.integers(0, 2000), power=st.sampled_from([1, 1000, 1024, 10**6, 1 << 20, 10**9, 1 << 30]))
def test_a_size_in_words_is_exact_and_has_the_largest_unit(count, power):
    units = {"bytes": 1, **{name: unit for unit, name in errors.UNITS}}
    number, name = errors.size(count * power).split()
    assert int(number.replace(",", "")) * units[name] == count * power
    assert not count or all(count * power % unit for unit in units.values() if unit > units[name])


@given(names=st.lists(st.text("abcxyz", min_size=1), min_size=1, unique=True), given_name=st.text("abcxyz", max_size=5))
def test_a_message_lists_every_name(names, given_name):
    assert re.split(", | or ", errors.either(names)) == names
    said = errors.did_you_mean(given_name, names)
    meant, listed = re.fullmatch(r"(?:did you mean '(\w+)'\? T|t)here are: (.*)\.", said).groups()
    assert listed.split(", ") == names
    assert meant is None or meant in names
    assert given_name not in names or meant == given_name


@pytest.mark.parametrize("argv", ["-m", "script.py"])
def test_a_missing_module_is_a_sentence_and_ends_a_command(argv, monkeypatch):
    monkeypatch.setattr("sys.argv", [argv])
    errors.need("it", "test", "json", "os")
    sentence = 'it needs nowhere, gone: `python -m pip install "mxdp[test]"` installs it'
    assert errors.missing("it", "test", "json", "nowhere", "gone") == sentence
    with pytest.raises(SystemExit if argv == "-m" else ModuleNotFoundError, match=re.escape(sentence)):
        errors.need("it", "test", "json", "nowhere", "gone")


@pytest.mark.parametrize(("code", "words"), [(None, "()"), (0, "(0)"), ("enough", "(enough)")])
def test_an_exit_of_another_s_code_is_an_error(code, words):
    with pytest.raises(MxdpError, match=re.escape(f"it calls sys.exit{words}, which ends all")), errors.without_exit():
        sys.exit(code)


def test_a_step_is_refused_where_its_gradients_are_not_its_own():
    assert errors.refuse_step(recording=False, adding=False) is None
    for recording, words in ((True, r"autograd\.record"), (False, "no_sync has added up")):
        with pytest.raises(RuntimeError, match=words):
            errors.refuse_step(recording, adding=True)
