"""The errors that a person is meant to read, the words that messages share, and how a command ends by them.

Each error is one sentence; an :func:`as_command` prints it without a traceback.
"""

from __future__ import annotations

import argparse
import atexit
import contextlib
import difflib
import functools
import io
import os
import signal
import sys
import threading
from importlib.util import find_spec
from typing import (
    Any,
    Callable,
    Collection,
    Dict,
    Iterable,
    Iterator,
    List,
    NoReturn,
    Optional,
    Sequence,
    TextIO,
    Type,
)

Main = Callable[[Optional[Sequence[str]]], Optional[int]]
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""They come of Ctrl-C, of a system that stops, and of a terminal that is closed."""


class MxdpError(Exception):
    """Something outside mxdp is not as it must be; the message says what, and what to do."""


class BackendError(MxdpError):
    """MXNet, its libraries or its devices can't do what was asked."""


class DataError(MxdpError):
    """A data set is missing, damaged or not what it claims to be."""


class UsageError(MxdpError):
    """The command line asks for something that does not exist; exit status 2."""


class TraceError(MxdpError):
    """A trace can't be recorded or read, or is not one of MXNet's."""


class MemoryShortage(MxdpError):
    """A job needs more memory than there is; it was not started."""


CAUSED = (MxdpError, KeyboardInterrupt, OSError, RecursionError, MemoryError)
"""What a person can cause."""


class SentenceParser(argparse.ArgumentParser):
    """A parser that reports an error by a :class:`UsageError`, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise a UsageError with this message."""
        raise UsageError(f"{message} (see --help)")


def as_command(
    name: str = "mxdp", failed: int = 1, usage: Type[Exception] = UsageError
) -> Callable[[Main], Callable[..., int]]:
    """A decorator of a command's ``main(arguments)``, which returns an exit status, or None for 0.

    What a person can cause ends it with a sentence on stderr, which begins with ``name``. That is an
    :class:`MxdpError`, Ctrl-C, a full disk, or data that are nested too deeply. The exit status is then ``failed``, or
    2 for a :class:`UsageError` or another error of ``usage``. If the reader of its output has left, as ``head`` does,
    it ends in silence. Characters that the output's encoding lacks are escaped. A defect of ours keeps its traceback.
    """

    def decorate(main: Main) -> Callable[..., int]:
        @functools.wraps(main)
        def called(arguments: Optional[Sequence[str]] = None) -> int:
            for stream in (sys.stdout, sys.stderr):
                if isinstance(stream, io.TextIOWrapper):
                    stream.reconfigure(errors="backslashreplace")
            try:
                try:
                    return main(arguments) or 0
                finally:
                    # What is still buffered fails here, not when Python ends.
                    print(end="", flush=True)
            except (usage, *CAUSED) as error:
                _say_last(name, error)
                return 2 if isinstance(error, (usage, UsageError)) else failed

        return called

    return decorate


def _say_last(name: str, error: BaseException) -> None:
    """Say why the command ends, if anybody can read it."""
    if isinstance(error, KeyboardInterrupt):
        why = "interrupted"
    elif isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        why = f"the system refuses to go on: {where}{error.strerror or error}"
    elif isinstance(error, (RecursionError, MemoryError)):  # of Python 3.8's parser, too
        why = f"what was given is too large, or nested too deeply ({error or type(error).__name__})"
    else:
        why = str(error)
    sentence = "" if isinstance(error, BrokenPipeError) else f"{name}: {why}\n"
    for stream, text in ((sys.stderr, sentence), (sys.stdout, "")):
        try:
            print(text, end="", file=stream, flush=True)
        except OSError:
            silence(stream)


def silence(stream: TextIO) -> None:
    """What is written to it, or is still buffered, goes nowhere: else Python fails once more when it ends."""
    with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), stream.fileno())


def tidy_after_signals() -> None:
    """Let the first of :data:`SIGNALS` raise a KeyboardInterrupt with its number, and ignore later ones: they must not
    interrupt what a command tidies up at its end. nohup's SIGHUP stays ignored."""
    for number in SIGNALS:
        if (number, signal.getsignal(number)) != (signal.SIGHUP, signal.SIG_IGN):
            signal.signal(number, on_signal)


def on_signal(number: int, frame: object) -> NoReturn:
    """The handler of :func:`tidy_after_signals`."""
    for every in SIGNALS:
        # With SIG_IGN, Python would complain of one that has come already.
        signal.signal(every, lambda *_: None)
        # While Python ends, none of its handlers works.
        atexit.register(signal.signal, every, signal.SIG_IGN)
    raise KeyboardInterrupt(number)


@contextlib.contextmanager
def signals_wait() -> Iterator[List[int]]:
    """Only note :data:`SIGNALS` inside, and handle the first of them at the end. In the middle of ``Popen.wait``
    (CPython 3.13 and before) a ``KeyboardInterrupt`` may leave a lock taken, and the next wait for that process then
    never ends."""
    noted: List[int] = []
    before: Dict[int, Any] = {}
    in_main = threading.current_thread() is threading.main_thread()
    try:
        for number in SIGNALS if in_main else ():
            handler = signal.getsignal(number)
            if callable(handler):
                before[number] = handler
                signal.signal(number, lambda got, _: noted.append(got))
        yield noted
    finally:
        for noticed, handler in before.items():
            signal.signal(noticed, handler)
        for got in noted[:1]:
            before[got](got, None)


@contextlib.contextmanager
def without_exit() -> Iterator[None]:
    """Raise an MxdpError where the code inside, which somebody else has written, calls ``sys.exit``."""
    try:
        yield
    except SystemExit as error:
        code = "" if error.code is None else error.code
        raise MxdpError(f"it calls sys.exit({code}), which ends all") from error


def missing(what: str, extra: str, *modules: str) -> str:
    """The sentence that says how to install mxdp's ``extra``, if one of these modules is missing; else nothing."""
    lacking = ", ".join(name for name in modules if not find_spec(name))
    if not lacking:
        return ""
    return f'{what} needs {lacking}: `python -m pip install "mxdp[{extra}]"` installs it'


def need(what: str, extra: str, *modules: str) -> None:
    """Raise a ModuleNotFoundError if one of these modules is missing; a command (``python -m``) ends by a sentence."""
    sentence = missing(what, extra, *modules)
    if sentence and sys.argv[0] == "-m":
        raise SystemExit(f"mxdp: {sentence}")
    if sentence:
        raise ModuleNotFoundError(sentence)


def plural(count: int, thing: str) -> str:
    """A count and its noun.

    >>> plural(1, "device"), plural(2, "epoch"), plural(2, "process"), plural(3, "micro-batch")
    ('1 device', '2 epochs', '2 processes', '3 micro-batches')
    """
    if count != 1:
        thing += "es" if thing.endswith(("s", "tch", "nch")) else "s"
    return f"{count} {thing}"


UNITS = (
    (1 << 30, "GiB"),
    (10**9, "GB"),
    (1 << 20, "MiB"),
    (10**6, "MB"),
    (1 << 10, "KiB"),
    (1000, "kB"),
)


def size(nbytes: int) -> str:
    """Bytes in the largest unit of which they are a whole number.

    >>> size(4), size(65536), size(1 << 24), size(160_000_000)
    ('4 bytes', '64 KiB', '16 MiB', '160 MB')
    """
    for unit, name in UNITS:
        if nbytes and nbytes % unit == 0:
            return f"{nbytes // unit:,} {name}"
    return f"{nbytes:,} bytes"


def either(names: Iterable[str]) -> str:
    """Names as alternatives in a sentence.

    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *others, last = names
    if not others:
        return last
    return f"{', '.join(others)} or {last}"


def did_you_mean(given: object, allowed: Collection[str]) -> str:
    """The end of a message about an unknown name: the nearest name if one is similar, then all ``allowed`` names.

    >>> did_you_mean("rign", ["ring", "tree"])
    "did you mean 'ring'? There are: ring, tree."
    >>> did_you_mean("xyz", ["ring", "tree"])
    'there are: ring, tree.'
    """
    near = difflib.get_close_matches(str(given), allowed, n=1, cutoff=0.5)
    there = f"did you mean {near[0]!r}? There" if near else "there"
    return f"{there} are: {', '.join(allowed)}."


def refuse_step(recording: bool, adding: bool = False) -> None:
    """Raise a RuntimeError for a step that is called while autograd is ``recording``, or would take gradients that are
    ``adding`` up for another sum."""
    if recording:
        raise RuntimeError(
            "a step inside autograd.record() would become a part of the graph: call it after the block"
        )
    if adding:
        raise RuntimeError(
            "no_sync has added up gradients of these replicas for another sum, and a step here would take them for its "
            "own: finish that step first, or make a new GradientSync, which drops them"
        )


def described(error: BaseException) -> str:
    """An error in words: a sentence of ours stands for itself, anything else needs its type to be understood."""
    return str(error) if isinstance(error, MxdpError) else f"{type(error).__name__}: {error}"
