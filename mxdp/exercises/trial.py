"""A trial of an exercise: the arguments, the expected result, the results of usual mistakes, and the answer."""

from __future__ import annotations

import contextlib
import ctypes
import traceback
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.backend import mx
from mxdp.plans.partition import bounds

Values = Dict[str, Any]
"""Arrays, numbers or words, by the label under which they are printed."""

Moves = Dict[Tuple[int, int], int]
"""The count of numbers that went from one device to another, by (source, target)."""


@dataclass
class Record:
    """The movements of data while the student's function ran."""

    moves: Moves = field(default_factory=dict)
    downloads: int = 0
    """Numbers that went to the host, by asnumpy."""
    uploads: int = 0
    """Numbers that came from the host."""
    mixed: str = ""
    """The devices of the first operation, other than a copy, whose arrays or result were on several."""
    replaced: bool = False
    """A list that was given holds another array now."""
    samples: List[Dict[int, int]] = field(default_factory=lambda: [{}])
    """The samples whose loss was recorded on each device, between one backward and the next."""


REPLACED = (
    "`x[k] = ...` on a list puts another array into the list, and the array that was given stays as it was. Write into "
    "that array: `x[k][:] = ...`."
)


class Wrong(Exception):
    """The student's function returns something that can't be compared; the message says why."""


@dataclass
class Trial:
    """``run`` calls the student's function, and returns what came out under the labels of ``expected``."""

    title: str
    given: Values
    expected: Values
    run: Callable[[Any], Values]
    mistakes: Dict[str, Values] = field(default_factory=dict)
    """The results of usual mistakes, by their hints."""
    hint: Callable[[Values], str] = lambda got: ""
    """A hint by a rule, if no mistake fits."""
    planned: Optional[Moves] = None
    """The movements between devices that the plan needs."""
    judge: Callable[[Record], str] = lambda record: ""
    """A sentence about what is wrong although the result is right, or nothing."""
    record: Record = field(default_factory=Record)


Trials = Tuple[List[Trial], List[Trial]]
"""Trials of chosen sizes, and of sizes at random."""


def answer_of(trial: Trial, function: Any, file: str) -> Dict[str, Any]:
    """Make the trial; the answer in words, as JSON has it.

    ``file`` holds the function's source. ``state`` is "right" or "wrong". ``given``, ``expected`` and ``yours`` are
    lists of (label, text), ``moved`` and ``planned`` of (source, target, numbers). ``hints``: all that fit.
    """
    record = trial.record
    answer: Dict[str, Any] = {"state": "wrong", "given": shown(trial.given), "expected": shown(trial.expected)}

    def recorded(*arguments: Any) -> Any:
        before = arrays_in(arguments)
        with recording(record):
            returned = function(*arguments)
        record.replaced |= any(all(x is not y for y in before) for x in arrays_in(arguments))
        return returned

    try:
        got = trial.run(recorded)
    except NotImplementedError:
        return {**answer, "problem": "This function is not written yet."}
    except Wrong as error:
        return {**answer, "problem": str(error)}
    except BaseException as error:
        return {**answer, "problem": explained(error, file)}
    answer["yours"] = shown(got)
    if trial.planned is not None:
        for name, moves in (("moved", record.moves), ("planned", trial.planned)):
            answer[name] = [(*pair, numbers) for pair, numbers in sorted(moves.items())]
    if not equal(trial.expected, got):
        hints = [hint for hint, values in trial.mistakes.items() if equal(values, got)] or [trial.hint(got)]
        hints = [REPLACED] if record.replaced else [hint for hint in hints if hint]
        return {**answer, "problem": "The result is wrong.", "hints": hints}
    mixed = record.mixed and (
        f"But one operation has arrays on {record.mixed}, which fails on GPUs. Copy to the other device first."
    )
    criticism = mixed or trial.judge(record)
    return {**answer, "problem": f"The result is right. {criticism}"} if criticism else {**answer, "state": "right"}


def arrays_in(given: Any) -> List[Any]:
    """The arrays in lists, and in lists of lists."""
    if isinstance(given, (list, tuple)):
        return [x for item in given for x in arrays_in(item)]
    return [given] if hasattr(given, "ctx") else []


def equal(expected: Values, got: Values) -> bool:
    """True for the same labels and values; floats may differ by a ten-thousandth of the largest."""

    def same(value: Any, other: Any) -> bool:
        if not isinstance(value, onp.ndarray):
            return bool(value == other)
        room = 1e-4 * float(onp.abs(value).max(initial=0))
        return value.shape == onp.shape(other) and bool(onp.allclose(other, value, rtol=0, atol=room))

    return list(expected) == list(got) and all(same(expected[label], got[label]) for label in expected)


def shown(values: Values) -> List[Tuple[str, str]]:
    """Labels and texts."""

    def text(value: Any) -> str:
        if not isinstance(value, onp.ndarray):
            return f"{value}"
        in_lines = onp.array2string(value, precision=4, suppress_small=True, max_line_width=60)
        return in_lines if value.ndim else f"{value:.4g}"

    return [(label, text(value)) for label, value in values.items()]


def explained(error: BaseException, file: str) -> str:
    """An error in the student's code in one sentence, with its line in ``file``."""
    if isinstance(error, SystemExit):
        return f"It calls sys.exit({'' if error.code is None else error.code}): return a value instead."
    if isinstance(error, SyntaxError) and error.filename == file:
        return f"Line {error.lineno} is no Python ({error.msg}): {(error.text or '').strip()}"
    lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    # MXNet puts the stack of its C++ functions around the line that says what happened.
    message = str(error).split("MXNetError: ")[-1].strip().partition("\n")[0]
    text = f"{type(error).__name__}: {message}".rstrip(": ")
    return f"Line {lines[-1].lineno} ({lines[-1].line}) raises {text}" if lines else text


@contextlib.contextmanager
def recording(record: Record) -> Iterator[None]:
    """Note what any function of MXNet's moves from one device to another, to the host, or from it.

    All operations of MXNet's arrays, copies too, are started by one Python function; the library's C functions copy
    from and to the host, and start a backward pass.
    """

    library, copy = mx.base._LIB, ctypes.c_void_p()
    library.NNGetOpHandle(b"_copyto", ctypes.byref(copy))

    def operation(results: Any, handle: Any, arrays: Sequence[Any], *more: Any) -> None:
        target = (results[0] if isinstance(results, (list, tuple)) else results).ctx
        places = sorted({str(place) for place in (target, *(x.ctx for x in arrays))})
        if len(places) > 1 and handle != copy.value:
            record.mixed = record.mixed or " and ".join(places)
        for x in arrays:
            if x.ctx != target and x.size:
                pair = x.ctx.device_id, target.device_id
                record.moves[pair] = record.moves.get(pair, 0) + x.size

    def download(_: Any, array: Any, memory: Any, size: Any) -> None:
        record.downloads += size.value

    def upload(_: Any, array: Any, memory: Any, size: Any) -> None:
        record.uploads += size.value

    def backward(*_: Any) -> None:
        record.samples.append({})

    def noted(function: Callable[..., Any], note: Callable[..., None], *arguments: Any) -> Any:
        result = function(*arguments)
        note(result, *arguments)
        return result

    with contextlib.ExitStack() as originals:
        for owner, name, note in (
            (mx.ndarray.register, "_imperative_invoke", operation),
            (library, "MXNDArraySyncCopyToCPU", download),
            (library, "MXNDArraySyncCopyFromCPU", upload),
            (library, "MXAutogradBackwardEx", backward),
        ):
            originals.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, partial(noted, getattr(owner, name), note))
        yield


def uneven(name: str, length: int, parts: int) -> str:
    """The part of a title that says how long uneven pieces are.

    >>> uneven("chunk", 5, 3), uneven("chunk", 6, 3)
    (': chunks of 2, 2 and 1', '')
    """
    *others, last = [stop - start for start, stop in bounds(length, parts)]
    return f": {name}s of {', '.join(map(str, others))} and {last}" if length % parts else ""


def by_device(arrays: Iterable[Any], what: str = "") -> Values:
    """Label each device's array."""
    return {f"{what}cpu({device})": x for device, x in enumerate(arrays)}


def differing(names: Sequence[str], hint: str, got: Values) -> str:
    """The hint, if replicas differ: the arrays "NAME on cpu(0)", "NAME on cpu(1)" and so on."""
    for name in names:
        first, *others = (x for label, x in got.items() if label.startswith(f"{name} on "))
        if not all(onp.allclose(first, x, rtol=1e-4) for x in others):
            return hint
    return ""


def uploaded(arrays: Sequence[Any]) -> List[Any]:
    """A copy of each NumPy array, as float32, on a device of its own: cpu(0), cpu(1), ..."""
    devices = backend.devices(len(arrays), "cpu")
    return [backend.upload(x.astype("float32"), device) for x, device in zip(arrays, devices)]


def in_place(given: Sequence[Any], more: Sequence[Any], function: Any) -> Values:
    """The arrays ``given`` after a function has changed them; ``more``: its other arguments."""
    arrays = uploaded(given)
    function(list(arrays), *more)
    return by_device([x.asnumpy() for x in arrays])


def as_planned(planned: Moves, advice: str, record: Record) -> str:
    """A judge, but for the record, who allows the moves of the plan alone."""
    pairs = [(record.moves.get(pair, 0), planned.get(pair, 0), pair) for pair in sorted({*planned, *record.moves})]
    for moved, needed, (source, target) in pairs:
        if moved > needed:
            return f"But cpu({source}) sends {moved} numbers to cpu({target}), which needs {needed}: {advice}."
    for moved, needed, (source, target) in pairs:
        if moved < needed:
            return too_few(record, f"from cpu({source}) to cpu({target})", moved, needed)
    return ""


def frugal(most: Sequence[int], needed: int, advice: str, record: Record) -> str:
    """Device k sends ``most[k]`` numbers at most; together the devices send at least ``needed``."""
    for device, enough in enumerate(most):
        sent = sum(numbers for (source, _), numbers in record.moves.items() if source == device)
        if sent > enough:
            return f"But cpu({device}) sends {sent} numbers, and {enough} are enough: {advice}."
    moved = sum(record.moves.values())
    return too_few(record, "from device to device", moved, needed) if moved < needed else ""


def too_few(record: Record, way: str, moved: int, needed: int) -> str:
    """The sentence for numbers that can't have gone from device to device."""
    by_host = " They went through NumPy, by asnumpy, which waits for the device." if record.downloads else ""
    return (
        f"But {moved} of {needed} numbers went {way} by copyto, as_in_ctx or an assignment.{by_host} Copy from device "
        "to device."
    )
