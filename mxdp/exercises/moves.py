"""What moves between devices while a student's function runs, and whether that is right."""

from __future__ import annotations

import contextlib
import ctypes
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Sequence, Tuple

from mxdp.backend import mx

Moves = Dict[Tuple[int, int], int]
"""How many numbers went from one device to another."""


@dataclass
class Record:
    """What happened while the student's function ran."""

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


@contextlib.contextmanager
def recording(record: Record) -> Iterator[None]:
    """Notes what goes from one device to another, and to and from the host, by any of MXNet's functions.

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
