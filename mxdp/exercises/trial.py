"""A trial of an exercise: what is given, what must come out, and what the usual mistakes give."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp import backend
from mxdp.exercises.moves import Moves, Record
from mxdp.plans.partition import bounds

Function = Callable[..., Any]
Values = Dict[str, Any]
"""Arrays, numbers or words, by the label under which they are printed."""

Hosts = List[Any]
"""NumPy arrays, one for each device or parameter."""


class Wrong(Exception):
    """What the student's function returns can't be compared; the message says why."""


@dataclass
class Trial:
    """``run`` calls the student's function, and returns what came out under the labels of ``expected``."""

    title: str
    given: Values
    expected: Values
    run: Callable[[Function], Values]
    mistakes: Dict[str, Values] = field(default_factory=dict)
    """What a usual mistake gives, by its hint."""
    hint: Callable[[Values], str] = lambda got: ""
    """A hint by a rule, if no mistake fits."""
    planned: Optional[Moves] = None
    """What the plan moves between devices."""
    judge: Callable[[Record], str] = lambda record: ""
    """What is wrong although the result is right, or nothing."""
    record: Record = field(default_factory=Record)


Trials = Tuple[List[Trial], List[Trial]]
"""Trials of chosen sizes, and of sizes at random."""


def pieces(name: str, length: int, parts: int) -> str:
    """The part of a title that says how long uneven pieces are.

    >>> pieces("chunk", 5, 3), pieces("chunk", 6, 3)
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


def in_place(given: Sequence[Any], more: Sequence[Any], function: Function) -> Values:
    """What a function that changes arrays makes of ``given``; ``more``: its other arguments."""
    arrays = uploaded(given)
    function(list(arrays), *more)
    return by_device([x.asnumpy() for x in arrays])
