"""A trial of an exercise: what is given, what must come out, and what the usual mistakes give."""

from __future__ import annotations

import contextlib
import traceback
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import mx

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
class Record:
    """What happened while the student's function ran."""

    moves: Moves = field(default_factory=dict)
    downloads: int = 0
    """Numbers that went to the host, by asnumpy."""
    uploads: int = 0
    """Numbers that came from the host."""
    mixed: str = ""
    """The devices of the first operation, other than a copy, that took arrays of several."""
    samples: List[Dict[int, int]] = field(default_factory=lambda: [{}])
    """The samples whose loss was recorded on each device, between one backward and the next."""


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
    judge: Callable[[Record], str] = lambda record: ""
    """What is wrong although the result is right, or nothing."""
    record: Record = field(default_factory=Record)


Case = Sequence[Trial]
"""One trial of drawn sizes; or several, whose sizes are chosen at random."""


def title(case: Case, seed: int) -> str:
    """The line of a case in a report."""
    return case[0].title if len(case) == 1 else f"{len(case)} other sizes, at random (seed {seed})"


def outcome(case: Case, seed: int, function: Function, file: str) -> Iterator[Tuple[str, Optional[Dict[str, Any]]]]:
    """The title of each trial before it runs; then, with its answer, the first that is wrong, or the whole case."""
    whole = {"title": title(case, seed), "state": "right"}
    for trial in case:
        name = trial.title if len(case) == 1 else f"at random (seed {seed}): {trial.title}"
        yield name, None
        answer = {**tried(trial, function, file), "title": name}
        if answer["state"] == "wrong" or len(case) == 1:
            whole = answer
            break
    yield whole["title"], whole


def tried(trial: Trial, function: Function, file: str) -> Dict[str, Any]:
    """What came of the trial, in words, as JSON has it.

    ``file`` holds the function's source. ``state`` is "right" or "wrong". ``given``, ``expected`` and ``yours`` are
    lists of (label, text), ``moved`` and ``planned`` of (source, target, numbers). ``hints``: all that fit.
    """
    found: Dict[str, Any] = {"title": trial.title, "state": "wrong", "given": shown(trial.given)}
    found["expected"] = shown(trial.expected)

    def recorded(*arguments: Any) -> Any:
        with recording(trial.record):
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
        found.update(moved=_listed(trial.record.moves), planned=_listed(trial.planned))
    if not equal(trial.expected, got):
        hints = [hint for hint, values in trial.mistakes.items() if equal(values, got)] or [trial.hint(got)]
        return {**found, "problem": "The result is wrong.", "hints": [hint for hint in hints if hint]}
    mixed = trial.record.mixed and (
        f"But an operation takes arrays of {trial.record.mixed}, which fails on GPUs. Copy one to the other's device."
    )
    criticism = mixed or trial.judge(trial.record)
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
def recording(record: Record) -> Iterator[None]:
    """Notes what goes from one device to another, and to and from the host, by any of MXNet's functions.

    All operations of MXNet's arrays, copies too, are started by one Python function; the library's C functions copy
    from and to the host, and start a backward pass.
    """
    starter, library = mx.ndarray.register, mx.base._LIB
    invoke, backward = starter._imperative_invoke, library.MXAutogradBackwardEx
    download, upload = library.MXNDArraySyncCopyToCPU, library.MXNDArraySyncCopyFromCPU

    def invoked(operation: Any, arrays: Sequence[Any], *more: Any) -> Any:
        results = invoke(operation, arrays, *more)
        target = (results[0] if isinstance(results, (list, tuple)) else results).ctx
        sources = sorted({str(x.ctx) for x in arrays})
        if len(sources) > 1:
            record.mixed = record.mixed or " and ".join(sources)
        for x in arrays:
            if x.ctx != target and x.size:
                pair = x.ctx.device_id, target.device_id
                record.moves[pair] = record.moves.get(pair, 0) + x.size
        return results

    def downloaded(array: Any, memory: Any, size: Any) -> Any:
        record.downloads += size.value
        return download(array, memory, size)

    def uploaded(array: Any, memory: Any, size: Any) -> Any:
        record.uploads += size.value
        return upload(array, memory, size)

    def passed_back(*arguments: Any) -> Any:
        record.samples.append({})
        return backward(*arguments)

    starter._imperative_invoke, library.MXAutogradBackwardEx = invoked, passed_back
    library.MXNDArraySyncCopyToCPU, library.MXNDArraySyncCopyFromCPU = downloaded, uploaded
    try:
        yield
    finally:
        starter._imperative_invoke, library.MXAutogradBackwardEx = invoke, backward
        library.MXNDArraySyncCopyToCPU, library.MXNDArraySyncCopyFromCPU = download, upload


def as_planned(planned: Moves, advice: str) -> Callable[[Record], str]:
    """A ``judge`` who allows no other moves than those of the plan."""

    def judge(record: Record) -> str:
        pairs = [(record.moves.get(pair, 0), planned.get(pair, 0), pair) for pair in sorted({*planned, *record.moves})]
        for moved, needed, (source, target) in pairs:
            if moved > needed:
                return f"But cpu({source}) sends {moved} numbers to cpu({target}), which needs {needed}: {advice}."
        for moved, needed, (source, target) in pairs:
            if moved < needed:
                return too_few(record, f"from cpu({source}) to cpu({target})", moved, needed)
        return ""

    return judge


def too_few(record: Record, way: str, moved: int, needed: int) -> str:
    """The sentence for numbers that can't have gone from device to device."""
    by_host = " They went through NumPy, by asnumpy, which waits for the device." if record.downloads else ""
    return (
        f"But {moved} of {needed} numbers went {way} by copyto, as_in_ctx or an assignment.{by_host} Copy from device "
        "to device."
    )


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
