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

from functools import partial
from typing import Dict, Iterator, List, Optional, Sequence, Set, Tuple, Union

import numpy as onp

from mxdp.backend import HostArray, NDArray, mx
from mxdp.collectives.buckets import Buckets, BucketSync
from mxdp.collectives.fresh import Replicas
from mxdp.collectives.gradients import GradientSync
from mxdp.collectives.program import Program, chunk_views, nbytes
from mxdp.collectives.sync import Part
from mxdp.engine import Call, prepare
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import Schedule
from mxdp.plans.cost.machine import Machine
from mxdp.plans.partition import bounds, offsets
from mxdp.processes import World
from mxdp.processes.world import Note

Place = Tuple[int, int]
"""A device's place in the list, and a parameter's number."""


class ShardedBuckets(Buckets):
    """Buckets of which each device sums only its piece, in a way of its own whatever the ``algorithm``. Afterwards call
    :meth:`take`, update ``parts``, and call :meth:`spread`. Arguments and errors are those of :class:`Buckets`."""

    def __init__(
        self,
        device_params: Replicas,
        algorithm: str,
        bucket_mb: float,
        machine: Optional[Machine],
        kinds: Sequence[bool],
        world: World,
    ) -> None:
        super().__init__(device_params, algorithm, bucket_mb, machine, kinds, world)
        self.parts: List[List[Part]] = [[] for _ in device_params]
        """For each device, what it updates."""
        self._vectors_of: Dict[Place, NDArray] = {}
        """The parameters that are cut, as vectors."""
        self._put_together: Set[Place] = set()
        """Such vectors whose elements come from all parts. The others hold one part, and are not copied back."""
        self._take: List[Call] = []
        self._spread: List[Call] = []
        for bucket in self.buckets:
            for device in range(len(device_params)):
                self._cut(bucket, device)
        for (device, number), vector in self._vectors_of.items():
            param = self._params[device][number]
            if any(part.number == number for part in self.parts[device]):
                self._take.append(prepare("Reshape", [param], vector, shape=(-1,)))
            if (device, number) in self._put_together:
                self._copy_later(vector.reshape(param.shape), param)

    def take(self) -> None:
        """Copy what the parameters are now into their parts; doesn't wait."""
        for call in self._take:
            call()

    def spread(self) -> None:
        """Copy each updated part to all devices and ranks; doesn't wait."""
        for call in self._spread:
            call()

    def whole(self, held: Sequence[Sequence[Sequence[NDArray]]]) -> Dict[int, List[HostArray]]:
        """Each parameter's arrays, by its number, in its shape, joined from those of its parts. ``held[device]``: for
        each part its arrays, of the part's length. Waits; all ranks call it."""
        pieces = []
        for parts, of_device in zip(self.parts, held):
            for part, arrays in zip(parts, of_device):
                pieces.append((part.number, part.where, [x.asnumpy() for x in arrays]))
        put_together: Dict[int, List[HostArray]] = {}
        for of_rank in self._world.gather(pieces):
            for number, where, arrays in of_rank:
                shape = self._params[0][number].shape
                if number not in put_together:
                    put_together[number] = [onp.zeros(shape, x.dtype) for x in arrays]
                for array, x in zip(put_together[number], arrays):
                    array.reshape(-1)[where] = x.reshape(-1)
        return put_together

    def _resolve(self, numbers: Sequence[int], algorithm: str, machine: Optional[Machine]) -> str:
        on_cpu = all(params[0].ctx.device_type == "cpu" for params in self._params)
        return "shared-memory" if on_cpu else "direct"

    def _make(self, numbers: Sequence[int], name: str) -> BucketSync:
        schedule = plan(name, len(self._params))
        half = Schedule("reduce-scatter", schedule.devices, schedule.chunks, schedule.steps[:1])
        vectors = [self._lay_out(rank, numbers) for rank in range(schedule.devices)]
        program = Program(half, [chunk_views(half, vector) for vector in vectors], again=True)
        whole = tuple((vector,) for vector in vectors)
        return BucketSync(tuple(numbers), nbytes(vectors[0]), name, program, whole)

    def _sum_over_ranks(self, bucket: BucketSync, note: Optional[Note]) -> None:
        for device in range(len(bucket.vectors)):
            self._world.reduce_scatter(_chunk(bucket, device)[1], note)

    def _cut(self, bucket: BucketSync, device: int) -> None:
        """Find the device's parts in this bucket, and prepare how they are spread."""
        (start, stop), chunk = _chunk(bucket, device)
        of_rank = self._world.shard(stop - start)
        first = start + of_rank.start
        last = start + of_rank.stop
        vector = bucket.vectors[device][0]
        several = self._world.size > 1
        for number, where, there in self._segments(bucket, first, last):
            weight = self._place(device, number, where)
            part = Part(number, where, weight, vector[there].reshape(weight.shape))
            self.parts[device].append(part)
            if several:
                self._copy_later(part.weight, part.gradient)
        if several:
            # MPI takes what lies side by side: the gradients' place, which is free by now.
            self._spread.append(partial(self._world.all_gather, chunk))
        for number, where, there in self._segments(bucket, start, stop):
            for other in range(len(bucket.vectors)):
                target = self._place(other, number, where)
                if target.size < self._params[other][number].size:
                    self._put_together.add((other, number))
                if several:
                    self._copy_later(vector[there].reshape(target.shape), target)
                elif other != device:
                    self._copy_later(self._place(device, number, where), target)

    def _copy_later(self, source: NDArray, target: NDArray) -> None:
        """Let :meth:`spread` copy this."""
        self._spread.append(prepare("_copyto", [source], target))

    def _place(self, device: int, number: int, where: slice) -> NDArray:
        """A part of a parameter: the parameter itself if that is the whole, else a part of a vector beside it. Not a
        view of the parameter: whenever an operator of an inference pass runs, it may push a change of its weights to a
        layout of oneDNN's, in which a view is another part, or none."""
        param = self._params[device][number]
        if where == slice(0, param.size):
            return param.as_nd_ndarray()
        place = device, number
        if place not in self._vectors_of:
            self._vectors_of[place] = mx.nd.empty((param.size,), param.ctx, param.dtype)
        return self._vectors_of[place][where]

    def _segments(
        self, bucket: BucketSync, start: int, stop: int
    ) -> Iterator[Tuple[int, slice, slice]]:
        """The parameters in elements ``start`` to ``stop`` of a bucket: number, where in it, where in the bucket."""
        borders = offsets([self._params[0][number].size for number in bucket.params])
        for number, first, last in zip(bucket.params, borders, borders[1:]):
            a = max(start, first)
            b = min(stop, last)
            if a < b:
                yield number, slice(a - first, b - first), slice(a, b)


class ShardedSync(GradientSync):
    """Sums, at each call, the elements of the gradients that a device shall update, and no others. Then update
    ``parts``, and call :meth:`spread`. Afterwards the gradients hold no sums: use them for nothing. Arguments and
    errors are those of :class:`GradientSync`."""

    _kind = ShardedBuckets
    _sums: ShardedBuckets

    def __init__(
        self,
        device_params: Replicas,
        bucket_mb: float = 25,
        accumulate: Union[bool, Sequence[bool]] = False,
        world: Optional[World] = None,
    ) -> None:
        super().__init__(device_params, bucket_mb=bucket_mb, accumulate=accumulate, world=world)
        self.parts = self._sums.parts

    def __call__(self) -> None:
        """Sum; doesn't wait. Raises as :meth:`GradientSync.__call__`."""
        super().__call__()
        self._sums.take()

    def spread(self) -> None:
        """As :meth:`ShardedBuckets.spread`."""
        self._sums.spread()

    def whole(self, held: Sequence[Sequence[NDArray]]) -> Sequence[HostArray]:
        """An array for each parameter, from one for each part. Waits; all ranks call it."""
        singles = []
        for of_device in held:
            singles.append([[array] for array in of_device])
        joined = self._sums.whole(singles)
        arrays = []
        for number, param in enumerate(self._device_params[0]):
            # A parameter without elements has no parts.
            arrays.extend(joined.get(number) or [onp.zeros(param.shape, param.dtype)])
        return arrays


def _chunk(bucket: BucketSync, device: int) -> Tuple[Tuple[int, int], NDArray]:
    """Where the device's piece of a bucket lies, and this piece."""
    vector = bucket.vectors[device][0]
    start, stop = bounds(vector.size, len(bucket.vectors))[device]
    return (start, stop), vector[start:stop]
