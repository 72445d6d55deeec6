"""A plan bound to arrays: its operations, prepared as MXNet calls."""

from __future__ import annotations

from typing import Dict, List, Sequence

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.collectives.in_place import jobs
from mxdp.engine import Call, plain_layout, prepare, prepare_sum
from mxdp.plans.collective.operations import Slot, adds_in_place, operations
from mxdp.plans.collective.schedule import COPY, Schedule

Places = Sequence[Sequence[NDArray]]
"""``places[device][chunk]``: a flat array, or a view of a part of one."""

OPS = ("sum", "mean")


class Program:
    """Carries out one plan on the same arrays, in place, at each call. A call doesn't wait: MXNet starts each operation
    when its inputs are ready. Staging buffers are allocated once.

    Args:
        places: where the chunks lie. Empty chunks are left out.
        again: the program will be called many times, so large vectors in shared memory are summed in place
            (:mod:`mxdp.collectives.in_place`). The constructor then waits for the arrays, and each device's chunks must
            be views of one vector that keeps its memory.
        frugal: so are small vectors, which takes a little longer, but no staging buffers.

    Raises a ValueError if the plan reads other devices' memory, and the arrays are not all on CPU devices.
    """

    def __init__(
        self, schedule: Schedule, places: Places, again: bool = False, frugal: bool = False
    ) -> None:
        devices = [chunks[0].ctx for chunks in places if chunks]
        if schedule.reads and not all(device.device_type.startswith("cpu") for device in devices):
            raise ValueError(
                f"{schedule.name} reads the other devices' memory, which only CPU devices can do, not "
                f"{', '.join(map(str, devices))}: use 'direct', which sends copies"
            )
        self.buffers: Dict[Slot, NDArray] = {}
        self.calls: List[Call] = []
        filled = [place.size > 0 for place in places[0]]
        moved = sum(map(nbytes, places[0]))
        if (again and adds_in_place(schedule, moved)) or (frugal and schedule.reads):
            self.calls = jobs(operations(schedule, True, filled), places)
            return

        def array(slot: Slot) -> NDArray:
            place = places[slot.device][slot.chunk]
            if not slot.buffer:
                return place
            if slot not in self.buffers:
                self.buffers[slot] = mx.nd.empty(place.shape, place.ctx, place.dtype)
            return self.buffers[slot]

        for operation in operations(schedule, filled=filled):
            sources = [array(slot) for slot in operation.sources]
            target = array(operation.target)
            if operation.action == COPY:
                self.calls.append(prepare("_copyto", sources, target))
            else:
                self.calls.append(prepare_sum(sources, target))

    def __call__(self) -> None:
        """Push all operations; doesn't wait."""
        for call in self.calls:
            call()


def nbytes(x: NDArray) -> int:
    """The bytes of an array's numbers."""
    return int(x.size * onp.dtype(x.dtype).itemsize)


def as_vector(x: NDArray) -> NDArray:
    """``x`` as one vector: a view of the same memory. It is a classic MXNet array, whose reshape is a view."""
    for call in plain_layout([x]):
        call()
    return x.as_nd_ndarray().reshape((-1,))


def chunk_views(schedule: Schedule, vector: NDArray) -> List[NDArray]:
    """The schedule's chunks in a flat vector: views."""
    return [vector[start:stop] for start, stop in schedule.borders(vector.size)]


def divisions(vectors: Sequence[NDArray], op: str) -> List[Call]:
    """For ``"mean"`` the divisions after the sum. Raises a ValueError for an unknown ``op`` or the mean of integers."""
    if op not in OPS:
        raise ValueError(f"op is 'sum' or 'mean', not {op!r}")
    if op == "sum":
        return []
    kind = onp.dtype(vectors[0].dtype)
    if kind.kind != "f":
        raise ValueError(
            f"the mean of {kind} would be truncated: use op='sum', or convert to a float dtype first"
        )
    return [
        prepare("_div_scalar", [vector], vector, scalar=len(vectors))
        for vector in vectors
        if vector.size
    ]
