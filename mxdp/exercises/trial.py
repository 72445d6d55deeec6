"""A trial of an exercise: what is given, what must come out, and what the usual mistakes give."""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import numpy as onp

from mxdp.backend import np

Function = Callable[..., Any]
Values = Dict[str, Any]
"""Arrays, numbers or words, each with a label, as they are printed."""

Hosts = List[Any]
"""NumPy arrays, one for each device or parameter."""

Moves = Dict[Tuple[int, int], int]
"""The numbers that went from one device to another."""


class Wrong(Exception):
    """What the student's function did can't be compared; the message says why."""


@dataclass
class Trial:
    """``run`` calls the student's function, and returns what came out under the labels of ``expected``."""

    title: str
    given: Values
    expected: Values
    run: Callable[[Function], Values]
    mistakes: Dict[str, Values] = field(default_factory=dict)
    """What a usual mistake gives; the key is the hint."""
    hint: Callable[[Values], str] = lambda got: ""
    """A hint for a mistake that is better recognised by a rule."""
    planned: Optional[Moves] = None
    """What the plan moves between devices."""
    judge: Callable[[Moves], str] = lambda moves: ""
    """What is wrong about the moves, or nothing."""


def tried(trial: Trial, function: Function, file: str) -> Dict[str, Any]:
    """What came of the trial, in words, as JSON has it.

    ``file`` holds the function's source. ``state`` is "right" or "wrong". ``given``, ``expected`` and ``yours`` are
    lists of (label, text), ``moved`` and ``planned`` of (source, target, numbers). ``hints``: all that fit.
    """
    moves: Moves = {}
    found: Dict[str, Any] = {"title": trial.title, "state": "wrong", "given": shown(trial.given)}
    found["expected"] = shown(trial.expected)

    def recorded(*arguments: Any) -> Any:
        with recording(moves):
            return function(*arguments)

    try:
        got = trial.run(recorded)
    except NotImplementedError:
        return {**found, "problem": "This function is not written yet."}
    except Wrong as error:
        return {**found, "problem": str(error)}
    except BaseException as error:
        return {**found, "problem": explained(error, file)}
    found["yours"] = shown(got)
    if trial.planned is not None:
        found.update(moved=_listed(moves), planned=_listed(trial.planned))
    if not equal(trial.expected, got):
        hints = [hint for hint, values in trial.mistakes.items() if equal(values, got)] or [trial.hint(got)]
        return {**found, "problem": "The result is wrong.", "hints": [hint for hint in hints if hint]}
    criticism = trial.judge(moves)
    return {**found, "problem": f"The result is right. {criticism}"} if criticism else {**found, "state": "right"}


def equal(expected: Values, got: Values) -> bool:
    """The same labels, and the same values: floats within a ten-thousandth of the largest."""
    return list(expected) == list(got) and all(_same(expected[label], got[label]) for label in expected)


def _same(expected: Any, got: Any) -> bool:
    if not isinstance(expected, onp.ndarray):
        return bool(expected == got)
    room = 1e-4 * float(onp.abs(expected).max()) if expected.size else 0.0
    return expected.shape == onp.shape(got) and bool(onp.allclose(got, expected, rtol=0, atol=room))


def shown(values: Values) -> Any:
    """Labels and texts."""
    texts = []
    for label, value in values.items():
        is_array = isinstance(value, onp.ndarray) and value.ndim
        text = onp.array2string(value, precision=4, suppress_small=True, max_line_width=60) if is_array else f"{value}"
        texts.append((label, f"{value:.4g}" if isinstance(value, onp.ndarray) and not is_array else text))
    return texts


def _listed(moves: Moves) -> Any:
    return [(source, target, numbers) for (source, target), numbers in sorted(moves.items())]


@contextlib.contextmanager
def recording(moves: Moves) -> Iterator[None]:
    """Counts what goes from one device to another. ``as_in_ctx`` and assignments between devices call ``copyto``."""
    original = np.ndarray.copyto

    def copyto(self: Any, other: Any) -> Any:
        target = getattr(other, "ctx", other)
        if target != self.ctx:
            pair = self.ctx.device_id, target.device_id
            moves[pair] = moves.get(pair, 0) + self.size
        return original(self, other)

    np.ndarray.copyto = copyto
    try:
        yield
    finally:
        np.ndarray.copyto = original


def explained(error: BaseException, file: str) -> str:
    """An error in the student's code in one sentence, with its line in ``file``."""
    if isinstance(error, SystemExit):
        return f"It calls sys.exit({'' if error.code is None else error.code}): return a value instead."
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"Line {error.lineno} is no Python ({error.msg}): {(error.text or '').strip()}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    text = f"{type(error).__name__}: {brief(str(error))}".rstrip(": ")
    return f"Line {lines[-1].lineno} ({lines[-1].line}) raises {text}" if lines else text


def brief(message: str) -> str:
    """The line of a message that says what happened. MXNet puts the stack of its C++ functions around it.

    >>> brief("Traceback (most recent call last):\\n  File x.cc, line 5\\nMXNetError: Shape inconsistent")
    'Shape inconsistent'
    """
    lines = [line.strip() for line in message.splitlines() if line.strip()] or [""]
    telling = [line for line in lines if "MXNetError: " in line or "Check failed" in line]
    return telling[-1].split("MXNetError: ")[-1] if telling else lines[0]
