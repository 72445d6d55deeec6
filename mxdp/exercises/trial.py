"""An exercise and its trials; what moves while a student's function runs; and what the exercises make trials of."""

from __future__ import annotations

import contextlib
import ctypes
import random
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import (
    Any,
    Callable,
    Dict,
    Iterable,
    Iterator,
    List,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
)

import numpy as onp

from mxdp import backend
from mxdp.backend import mx
from mxdp.plans.partition import bounds

Values = Dict[str, Any]
"""Arrays, numbers or words, by the label under which they are printed."""

Moves = Dict[Tuple[int, int], int]
"""The count of numbers that went from one device to another, by (source, target)."""

Sizes = Tuple[Any, ...]
"""The arguments of the function that makes a trial."""

Mistakes = Dict[str, Any]
"""The results of usual mistakes, by their hints: the values under the labels of what is expected."""

FACTOR = 8
"""What the numbers of a second call are multiplied by: a power of two, so that no float is rounded otherwise."""

DRAWN = 20
"""Trials at random, of the last case of an exercise."""


@dataclass
class Record:
    """The movements of data while the student's function ran."""

    moves: Moves = field(default_factory=Counter)
    host: Dict[str, int] = field(default_factory=Counter)
    """Numbers that went to the host, by asnumpy ("downloads"), and that came from it ("uploads")."""
    mixed: str = ""
    """The devices of the first operation, other than a copy, whose arrays or result were on several."""
    replaced: bool = False
    """A list that was given holds another array now."""
    samples: List[Dict[int, int]] = field(default_factory=lambda: [Counter()])
    """The samples whose loss was recorded on each device, between one backward and the next."""


class Wrong(Exception):
    """The student's function returns something that can't be compared; the message says why."""


@dataclass
class Trial:
    """``run`` calls the student's function, and returns what came out under the labels of ``expected``."""

    title: str
    given: Values
    expected: Values
    run: Callable[[Any], Values]
    mistakes: Mistakes
    hint: Callable[[Values], str] = lambda got: ""
    """A hint by a rule, if no mistake fits."""
    planned: Optional[Moves] = None
    """The movements between devices that the plan needs."""
    judge: Callable[[Record], str] = lambda record: ""
    """A sentence about what is wrong although the result is right, or nothing."""
    record: Record = field(default_factory=Record)
    again: Optional[Trial] = None
    """The same sizes with other numbers, for the next call."""


class Exercise(NamedTuple):
    """The student writes a function of the same name as ``trial``, which makes a trial of given sizes, its numbers
    multiplied by ``factor``."""

    number: int
    title: str
    chosen: Sequence[Sizes]
    """The arguments of ``trial`` in the first cases."""
    drawn: Callable[[random.Random], Sizes]
    """Makes others at random."""
    trial: Callable[..., Trial]
    stem: str = ""
    """Names the file, where several functions stand in it."""

    @property
    def file(self) -> str:
        """The name of the file to fill in."""
        return f"{self.number:02}_{self.stem or self.trial.__name__}.py"

    def made(self, sizes: Sizes) -> Trial:
        """A trial of these sizes."""
        trial = self.trial(*sizes)
        trial.again = self.trial(*sizes, factor=FACTOR)
        return trial

    def cases(self, seed: int) -> Dict[str, List[Trial]]:
        """By title: one trial of each chosen size, then a case of all sizes at random, the smallest first, which follow
        from ``seed``."""
        cases = {trial.title: [trial] for trial in map(self.made, self.chosen)}
        draw = random.Random(f"{seed} {self.trial.__name__}")
        drawn = [self.drawn(draw) for _ in range(DRAWN)]
        others = [self.made(sizes) for sizes in sorted(drawn, key=lambda sizes: sizes[:2])]
        for trial in others:
            trial.title = f"at random (seed {seed}): {trial.title}"
        return {**cases, f"{DRAWN} other sizes, at random (seed {seed})": others}


@contextlib.contextmanager
def recording(record: Record) -> Iterator[None]:
    """Note what any function of MXNet's moves from one device to another, to the host, or from it.

    All operations of MXNet's arrays, copies too, are started by one Python function; the library's C functions copy
    from and to the host, and start a backward pass.
    """

    library = mx.base._LIB
    copy = ctypes.c_void_p()
    library.NNGetOpHandle(b"_copyto", ctypes.byref(copy))

    def operation(results: Any, handle: Any, arrays: Sequence[Any], *_: Any) -> None:
        result = results[0] if isinstance(results, (list, tuple)) else results
        target = result.ctx
        places = sorted({str(target), *(str(x.ctx) for x in arrays)})
        if len(places) > 1 and handle != copy.value:
            record.mixed = record.mixed or " and ".join(places)
        for x in arrays:
            if x.ctx != target and x.size:
                record.moves[x.ctx.device_id, target.device_id] += x.size

    def on_host(what: str, _: Any, x: Any, memory: Any, size: Any) -> None:
        record.host[what] += size.value

    def noted(function: Callable[..., Any], note: Callable[..., None], *arguments: Any) -> Any:
        result = function(*arguments)
        note(result, *arguments)
        return result

    with contextlib.ExitStack() as originals:
        for owner, name, note in (
            (mx.ndarray.register, "_imperative_invoke", operation),
            (library, "MXNDArraySyncCopyToCPU", partial(on_host, "downloads")),
            (library, "MXNDArraySyncCopyFromCPU", partial(on_host, "uploads")),
            (library, "MXAutogradBackwardEx", lambda *_: record.samples.append(Counter())),
        ):
            function = getattr(owner, name)
            originals.callback(setattr, owner, name, function)
            setattr(owner, name, partial(noted, function, note))
        yield


def digits(devices: int, *shape: int) -> Any:
    """An array for each device: 1 2 3, 10 20 30, 100 200 300. The digits of a sum tell whose numbers are in it, and how
    often. From five devices on they are binary, so that the smallest numbers still count in :func:`equal`."""
    base = 10.0 if devices < 5 else 2.0
    factors = base ** onp.arange(devices, dtype="float32")
    return onp.multiply.outer(factors, counted(shape))


def counted(shape: Sequence[int], dtype: str = "float32") -> Any:
    """1, 2, 3 ..., row by row."""
    return onp.arange(1, onp.prod(shape) + 1, dtype=dtype).reshape(shape)


def uneven(name: str, length: int, parts: int) -> str:
    """The part of a title that says how long uneven pieces are.

    >>> uneven("chunk", 5, 3), uneven("chunk", 6, 3)
    (': chunks of 2, 2 and 1', '')
    """
    if length % parts == 0:
        return ""
    *others, last = [str(stop - start) for start, stop in bounds(length, parts)]
    return f": {name}s of {', '.join(others)} and {last}"


def by_device(arrays: Iterable[Any], what: str = "") -> Values:
    """Label each device's array."""
    return {f"{what}cpu({device})": x for device, x in enumerate(arrays)}


def differing(name: str, hint: str, got: Values) -> str:
    """The hint, if replicas differ: the arrays "NAME on cpu(0)", "NAME on cpu(1)" and so on."""
    first, *others = [x for label, x in got.items() if label.startswith(f"{name} on ")]
    return "" if all(onp.allclose(first, x, rtol=1e-4) for x in others) else hint


def uploaded(arrays: Sequence[Any]) -> List[Any]:
    """A copy of each NumPy array, as float32, on a device of its own: cpu(0), cpu(1), ..."""
    devices = backend.devices(len(arrays), "cpu")
    return [backend.upload(x.astype("float32"), device) for x, device in zip(arrays, devices)]


def in_place(given: Sequence[Any], more: Sequence[Any], function: Any) -> Values:
    """The arrays ``given`` after a function has changed them; ``more``: its other arguments."""
    arrays = uploaded(given)
    function(list(arrays), *more)
    return by_device([x.asnumpy() for x in arrays])


def listed(name: str, arrays: Iterable[Any], places: Iterable[Any]) -> Values:
    """Label the arrays of a list that a function returns."""
    parts = enumerate(zip(arrays, places))
    return {f"{name} {k} on {place}, {x.dtype}": x for k, (x, place) in parts}


def returned(name: str, value: Any) -> Values:
    """The arrays of a list that was returned, labelled. Raises Wrong for anything else."""
    arrays = a_list(value, lambda x: hasattr(x, "ctx"), "a list with an array for each device")
    return listed(name, [x.asnumpy() for x in arrays], [x.ctx for x in arrays])


def misfit(expected: Values, otherwise: str, got: Values) -> str:
    """A hint from the devices, dtypes and shapes of the arrays of a list. ``otherwise``: if these are right."""
    for label, right in zip(got, expected):
        if label != right:
            return f"There is {label} in place of {right}. Copy each array to its device, and keep its dtype."
    shapes = ", ".join(str(x.shape) for x in got.values())
    needed = ", ".join(str(x.shape) for x in expected.values())
    return otherwise if shapes == needed else f"The shapes are {shapes}. They must be {needed}."


def a_list(value: Any, fits: Callable[[Any], bool], wanted: str) -> List[Any]:
    """The parts of a list that was returned. Raises Wrong unless it is one, and all parts fit."""
    if not isinstance(value, (list, tuple)) or not all(map(fits, value)):
        raise Wrong(f"It returns {' '.join(repr(value).split()):.60}: return {wanted}.")
    return list(value)


def frugal(
    planned: Moves, advice: str, record: Record, most: Sequence[int] = (), unneeded: int = 0
) -> str:
    """A judge, but for the record: all devices together send what they send in the plan, without what is ``unneeded``;
    device k sends no more than there to any other, or than ``most[k]`` in all."""
    for (source, target), moved in sorted(record.moves.items()):
        needed = planned.get((source, target), 0)
        sent = sum(n for pair, n in record.moves.items() if pair[0] == source)
        if most and sent > most[source]:
            return (
                f"But cpu({source}) sends {sent} numbers, and {most[source]} are enough: {advice}."
            )
        if not most and moved > needed:
            return f"But cpu({source}) sends {moved} numbers to cpu({target}), which needs {needed}: {advice}."
    moved = sum(record.moves.values())
    needed = sum(planned.values()) - unneeded
    if moved >= needed:
        return ""
    way = "from device to device by copyto, as_in_ctx or an assignment."
    if record.host["downloads"]:
        way += " They went through NumPy, by asnumpy, which waits for the device."
    return f"But {moved} of {needed} numbers went {way} Copy from device to device."
