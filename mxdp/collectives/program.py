"""A plan bound to arrays: its operations, made ready as MXNet calls."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Dict, List, Sequence

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.collectives.in_place import jobs
from mxdp.plans.collective.operations import Slot, adds_in_place, operations
from mxdp.plans.collective.schedule import COPY, READ, Schedule
from mxdp.prepared import Call, prepare, prepare_sum

Places = Sequence[Sequence[NDArray]]
"""``places[device][chunk]``: a flat array, or a view of a part of one."""

OPS = ("sum", "mean")


class Program:
    """Carries out one plan on the same arrays, in place, whenever it is called.

    The boxes in which parts arrive are made once and kept: fresh ones would be fresh memory at every call. A call
    doesn't wait: MXNet starts each operation when what it needs is there.

    Args:
        places: where the chunks lie. Empty chunks are left out.
        again: it is worth the while to make ready what costs time once: large sums out of the others' memory are then
            made in place, which waits here until the arrays are there, and takes each device's chunks for views of one
            vector that keeps its memory (:mod:`mxdp.collectives.in_place`).

    Raises:
        ValueError: the plan reads other devices' memory, and the arrays are not all on CPU devices.
    """

    def __init__(self, schedule: Schedule, places: Places, again: bool = False) -> None:
        _check_memory(schedule, places)
        boxes: Dict[Slot, NDArray] = {}
        self.calls: List[Call] = []
        self.box_bytes = 0
        if again and adds_in_place(schedule, sum(map(_nbytes, places[0]))):
            todo = operations(schedule, in_place=True)
            self.calls = jobs(
                [operation for operation in todo if places[operation.target.device][operation.target.chunk].size],
                places,
            )
            return

        def array(slot: Slot) -> NDArray:
            place = places[slot.device][slot.chunk]
            if not slot.box:
                return place
            if slot not in boxes:
                boxes[slot] = mx.nd.empty(place.shape, place.ctx, place.dtype)
            return boxes[slot]

        for operation in operations(schedule):
            if not places[operation.target.device][operation.target.chunk].size:
                continue
            sources, target = [array(slot) for slot in operation.sources], array(operation.target)
            if operation.action == COPY:
                self.calls.append(prepare("_copyto", sources, target))
            else:
                self.calls.append(prepare_sum(sources, target))
        self.box_bytes = sum(map(_nbytes, boxes.values()))

    def __call__(self) -> None:
        """Push all operations; doesn't wait."""
        for call in self.calls:
            call()


def _nbytes(x: NDArray) -> int:
    return int(x.size * onp.dtype(x.dtype).itemsize)


def flat(x: NDArray) -> NDArray:
    """``x`` as one vector: a view of the same memory, as one of MXNet's classic arrays (whose reshape is a view)."""
    for call in plain_layout([x]):
        call()
    return x.as_nd_ndarray().reshape((-1,))


def plain_layout(data: Sequence[NDArray]) -> List[Call]:
    """Calls that put ``data`` into the plain order of elements, in place: what is in it already stays untouched.

    On CPU devices oneDNN keeps some arrays in an order of its own: a convolution's output, or its weights after an
    inference pass. MXNet fails on a view of such an array. Its ``Reshape`` in place puts it right without waiting, up
    to four dimensions; an array of five or more is waited for.
    """
    return [
        prepare("Reshape", [x], x, shape=x.shape) if x.ndim <= 4 else partial(_put_right_now, x)
        for x in data
        if x.ndim > 1 and x.size and onp.dtype(x.dtype) == onp.float32 and x.ctx.device_type.startswith("cpu")
    ]


def _put_right_now(x: NDArray) -> None:
    x.wait_to_read()
    mx.base.check_call(mx.base._LIB.MXNDArrayGetData(x.handle, ctypes.byref(ctypes.c_void_p())))


def places(schedule: Schedule, vector: NDArray) -> List[NDArray]:
    """The schedule's chunks in a flat vector: views."""
    return [vector[start:stop] for start, stop in schedule.borders(vector.size)]


def divisions(vectors: Sequence[NDArray], op: str) -> List[Call]:
    """What is to be done after the sum: nothing, or for ``"mean"`` a division of each vector by their number.

    Raises:
        ValueError: ``op`` is unknown, or a mean of integers is asked for.
    """
    if op not in OPS:
        raise ValueError(f"op is 'sum' or 'mean', not {op!r}")
    if op == "sum":
        return []
    kind = onp.dtype(vectors[0].dtype)
    if kind.kind != "f":
        raise ValueError(f"a mean of {kind} would be cut off: sum, or convert to a float dtype first")
    return [prepare("_div_scalar", [vector], vector, scalar=len(vectors)) for vector in vectors if vector.size]


def _check_memory(schedule: Schedule, places: Places) -> None:
    if not any(send.action == READ for step in schedule.steps for send in step):
        return
    devices = [chunks[0].ctx for chunks in places if chunks]
    if not all(device.device_type.startswith("cpu") for device in devices):
        raise ValueError(
            f"{schedule.name} reads the other devices' memory, which only CPU devices can, not "
            f"{', '.join(map(str, devices))}: use 'direct', which sends"
        )
