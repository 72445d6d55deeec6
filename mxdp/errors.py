"""The errors that a person is meant to read, and the words that messages share.

Each error is one sentence; the command line prints it without a traceback.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from importlib.util import find_spec
from typing import Collection, Iterable, NoReturn


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


class SentenceParser(argparse.ArgumentParser):
    """A parser that reports an error by a :class:`UsageError`, without the usage text."""

    def error(self, message: str) -> NoReturn:
        """Raise it."""
        raise UsageError(f"{message} (see --help)")


def missing(what: str, extra: str, *modules: str) -> str:
    """The sentence that says how to install mxdp's ``extra``, if one of these modules is missing; else nothing."""
    lacking = ", ".join(name for name in modules if not find_spec(name))
    return lacking and f'{what} needs {lacking}: `python -m pip install "mxdp[{extra}]"` installs it'


def need(what: str, extra: str, *modules: str) -> None:
    """Raises a ModuleNotFoundError if one of these modules is missing; a command (``python -m``) ends by a sentence."""
    sentence = missing(what, extra, *modules)
    if sentence:
        raise SystemExit(f"mxdp: {sentence}") if sys.argv[0] == "-m" else ModuleNotFoundError(sentence)


def plural(count: int, thing: str) -> str:
    """A count and its noun.

    >>> plural(1, "device"), plural(2, "epoch"), plural(2, "process"), plural(3, "micro-batch")
    ('1 device', '2 epochs', '2 processes', '3 micro-batches')
    """
    ending = "" if count == 1 else "es" if thing.endswith(("s", "tch", "nch")) else "s"
    return f"{count} {thing}{ending}"


def size(nbytes: int) -> str:
    """Bytes in the largest unit of which they are a whole number.

    >>> size(4), size(65536), size(1 << 24), size(160_000_000)
    ('4 bytes', '64 KiB', '16 MiB', '160 MB')
    """
    units = ((1 << 30, "GiB"), (10**9, "GB"), (1 << 20, "MiB"), (10**6, "MB"), (1 << 10, "KiB"), (1000, "kB"))
    unit, name = next((unit for unit in units if nbytes and nbytes % unit[0] == 0), (1, "bytes"))
    return f"{nbytes // unit:,} {name}"


def either(names: Iterable[str]) -> str:
    """Names as alternatives in a sentence.

    >>> either(["a"]), either(["a", "b", "c"])
    ('a', 'a, b or c')
    """
    *others, last = names
    return f"{', '.join(others)} or {last}" if others else last


def did_you_mean(given: object, allowed: Collection[str]) -> str:
    """The end of a message about an unknown name: the nearest name if one is similar, then all ``allowed`` names.

    >>> did_you_mean("rign", ["ring", "tree"])
    "did you mean 'ring'? There are: ring, tree."
    >>> did_you_mean("xyz", ["ring", "tree"])
    'there are: ring, tree.'
    """
    near = difflib.get_close_matches(str(given), allowed, n=1, cutoff=0.5)
    return f"{f'did you mean {near[0]!r}? There' if near else 'there'} are: {', '.join(allowed)}."


def described(error: BaseException) -> str:
    """An error in words: a sentence of ours stands for itself, anything else needs its type to be understood."""
    return str(error) if isinstance(error, MxdpError) else f"{type(error).__name__}: {error}"
