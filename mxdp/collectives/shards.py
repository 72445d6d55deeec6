"""Gradients summed in shards, for an optimiser whose state is sharded too.

Each device sums, and updates, one piece of each bucket alone, so it needs the optimiser's state for this piece only::

                          device 0                        device 1
    backward              gradients   a0 b0               gradients   a1 b1
    reduce-scatter                    A  .                            .  B         A = a0 + a1, B = b0 + b1
    update                parameters  w' v     state w    parameters  w  v'    state v
    all-gather            parameters  w' v'               parameters  w' v'

As many bytes are moved as by an all-reduce, which is these two halves without the update between them. With several
ranks, a device's piece is cut once more, into one for each rank.

Source: Rajbhandari et al., "ZeRO: Memory Optimizations Toward Training Trillion Parameter Models", SC 2020: the stage
that it calls P_os, and that everybody calls stage 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Dict, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import HostArray, NDArray
from mxdp.collectives.gradients import BucketSync, GradientSync
from mxdp.collectives.program import Program, flat, places
from mxdp.engine import Call, plain_layout, prepare
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.partition import bounds, offsets
from mxdp.processes import World


@dataclass(frozen=True)
class Part:
    """Neighbouring elements of a parameter that one device updates: the parameter's number, where they lie in it as a
    vector, and views of them and of their summed gradient."""

    number: int
    where: slice
    weight: NDArray
    gradient: NDArray


class ShardedSync(GradientSync):
    """Sums, at each call, the elements of the gradients that a device shall update, and no others.

    Then update ``parts``, and call :meth:`spread`. Afterwards the gradients hold no sums: use them for nothing.

    Args:
        device_params, bucket_mb, accumulate, world: as for :class:`GradientSync`, with its errors.
    """

    def __init__(
        self,
        device_params: Sequence[Sequence[NDArray]],
        bucket_mb: float = 25,
        accumulate: bool = False,
        world: Optional[World] = None,
    ) -> None:
        memory = {param.ctx.device_type for params in device_params for param in params} <= {"cpu"}
        algorithm = "shared-memory" if memory else "direct"
        super().__init__(device_params, algorithm, bucket_mb, accumulate=accumulate, world=world)
        self.parts: List[List[Part]] = [[] for _ in device_params]
        """Of each device."""
        self._flat = [[flat(param) if param.size else param for param in params] for params in self._device_params]
        self._layout = plain_layout([param for params in self._device_params for param in params])
        self._spread: List[Call] = []
        for bucket in self.buckets:
            for device in range(len(device_params)):
                self._cut(bucket, device)

    def __call__(self) -> None:
        """Sum; doesn't wait. Raises as :meth:`GradientSync.__call__`."""
        super().__call__()
        for call in self._layout:  # the parts are views of the parameters
            call()

    def spread(self) -> None:
        """Copy each updated part to all devices and ranks; doesn't wait."""
        for call in self._spread:
            call()

    def whole(self, held: Sequence[Sequence[Sequence[NDArray]]]) -> Dict[int, List[HostArray]]:
        """What is held for each of ``parts``, put together: by number of the parameter, as many arrays of its shape as
        are held for its parts. ``held[device]``: for each part the arrays, of its length. Waits; all ranks call it."""
        pieces = [
            (part.number, part.where, [x.asnumpy() for x in arrays])
            for parts, own in zip(self.parts, held)
            for part, arrays in zip(parts, own)
        ]
        found: Dict[int, List[HostArray]] = {}
        for number, where, arrays in (piece for rank in self._world.gather(pieces) for piece in rank):
            shape = self._device_params[0][number].shape
            whole = found.setdefault(number, [onp.zeros(shape, x.dtype) for x in arrays])
            for array, x in zip(whole, arrays):
                array.reshape(-1)[where] = x
        return found

    def _make(self, numbers: Sequence[int], name: str) -> BucketSync:
        schedule = plan(name, len(self._device_params))
        half = Schedule("reduce-scatter", schedule.devices, schedule.chunks, schedule.steps[:1])
        vectors = [self._lay_out(rank, numbers) for rank in range(schedule.devices)]
        program = Program(half, [places(half, vector) for vector in vectors], again=True)
        nbytes = vectors[0].size * onp.dtype(vectors[0].dtype).itemsize
        return BucketSync(tuple(numbers), nbytes, name, program, tuple((vector,) for vector in vectors))

    def _sum(self, bucket: BucketSync) -> None:
        bucket.program()
        for device in range(len(bucket.vectors) if self._world.size > 1 else 0):
            self._world.reduce_scatter(_chunk(bucket, device)[1])

    def _cut(self, bucket: BucketSync, device: int) -> None:
        """Find the device's parts in this bucket, and prepare how they are spread."""
        (start, stop), chunk = _chunk(bucket, device)
        vector, mine, own = bucket.vectors[device][0], self._flat[device], self._world.shard(stop - start)
        after: List[Call] = []
        for number, where, there in self._segments(bucket, start + own.start, start + own.stop):
            self.parts[device].append(Part(number, where, mine[number][where], vector[there]))
            if self._world.size > 1:
                self._spread.append(prepare("_copyto", [mine[number][where]], vector[there]))
        if self._world.size > 1:  # MPI takes what lies side by side: the gradients' place, which is free by now
            self._spread.append(partial(self._world.all_gather, chunk))
        for number, where, there in self._segments(bucket, start, stop):
            for other, params in enumerate(self._flat):
                if self._world.size > 1:
                    after.append(prepare("_copyto", [vector[there]], params[number][where]))
                elif other != device:
                    after.append(prepare("_copyto", [mine[number][where]], params[number][where]))
        self._spread += after

    def _segments(self, bucket: BucketSync, start: int, stop: int) -> Iterator[Tuple[int, slice, slice]]:
        """The parameters in elements ``start`` to ``stop`` of a bucket: number, where in it, where in the bucket."""
        borders = offsets([self._device_params[0][number].size for number in bucket.params])
        for number, first, last in zip(bucket.params, borders, borders[1:]):
            a, b = max(start, first), min(stop, last)
            if a < b:
                yield number, slice(a - first, b - first), slice(a, b)


def _chunk(bucket: BucketSync, device: int) -> Tuple[Tuple[int, int], NDArray]:
    """Where the device's piece of a bucket lies, and this piece."""
    vector = bucket.vectors[device][0]
    start, stop = bounds(vector.size, len(bucket.vectors))[device]
    return (start, stop), vector[start:stop]
