"""Vectors in which the gradients of a device lie side by side, and an all-reduce for each of them.

The buckets are filled from the last parameter to the first, the order in which backward produces gradients::

    device 0    bucket 0 | b4 | W4 | b3 | W3 |    bucket 1 | b2 | W2 | b1 | W1 |
    device 1    bucket 0 | b4 | W4 | b3 | W3 |    bucket 1 | b2 | W2 | b1 | W1 |

How gradients get there is the caller's affair: backward writes into the buckets (:class:`mxdp.GradientSync`), or they
are copied (:class:`mxdp.Trainer`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import NDArray, mx, np
from mxdp.collectives.allreduce import check_bucket_mb
from mxdp.collectives.fresh import Replicas
from mxdp.collectives.program import Places, Program, chunk_views, nbytes
from mxdp.collectives.tuning import plan_for
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.one_hop import owners
from mxdp.plans.cost.machine import Machine
from mxdp.plans.partition import fill_buckets, offsets
from mxdp.processes import World
from mxdp.processes.world import Note


@dataclass(frozen=True)
class BucketSync:
    """One bucket: the numbers of its parameters, its bytes, the algorithm and program that sum it over this process's
    devices, and its vectors on each device (several where one device sums whole gradients)."""

    params: Tuple[int, ...]
    nbytes: int
    algorithm: str
    program: Program
    vectors: Tuple[Tuple[NDArray, ...], ...]


class Buckets:
    """The buckets of replicas, filled with zeros at first.

    Args:
        device_params: for each device its parameters, equal in shapes and dtypes.
        algorithm, bucket_mb, machine: as for :class:`mxdp.GradientSync`.
        kinds: for each parameter a value; a bucket holds parameters of one kind.
        world: sum over its ranks, too.

    Raises an MxdpError, on every rank, if the ranks have other parameters or buckets.
    """

    def __init__(
        self,
        device_params: Replicas,
        algorithm: str,
        bucket_mb: float,
        machine: Optional[Machine],
        kinds: Sequence[bool],
        world: World,
    ) -> None:
        check_bucket_mb(bucket_mb)
        self._params = [list(params) for params in device_params]
        self._world = world
        self.gradients: List[Dict[int, NDArray]] = [{} for _ in device_params]
        """For each device, the places of the gradients in the buckets, by parameter number."""
        first = self._params[0]
        dtypes = [str(onp.dtype(param.dtype)) for param in first]
        sizes = [nbytes(param) for param in first]
        contents = fill_buckets(sizes, list(zip(dtypes, kinds)), bucket_mb * 2**20)
        described: Dict[str, Any] = {"bucket_mb": bucket_mb}
        for number, param in enumerate(first):
            described[f"parameter {number}"] = f"{dtypes[number]} {param.shape}"
        world.agree(described)
        # Ranks with other cores would choose other algorithms, which may divide a bucket otherwise.
        chosen = [self._resolve(numbers, algorithm, machine) for numbers in contents]
        of_rank_0 = world.gather(chosen)[0]
        self.buckets = [self._make(numbers, name) for numbers, name in zip(contents, of_rank_0)]
        lengths = []
        for bucket in self.buckets:
            lengths.append([vector.size for vector in bucket.vectors[0]])
        world.agree({"buckets' vectors of length": lengths})

    def sum(self, note: Optional[Note] = None) -> None:
        """Sum all buckets, in place; doesn't wait. ``note``: travels with the first sum over ranks, if there is one."""
        for bucket in self.buckets:
            bucket.program()
            if self._world.size > 1:
                self._sum_over_ranks(bucket, note)

    def _sum_over_ranks(self, bucket: BucketSync, note: Optional[Note]) -> None:
        first, *others = bucket.vectors
        self._world.sum(first, note)
        for device in others:
            for vector, summed in zip(device, first):
                summed.copyto(vector)

    def _resolve(self, numbers: Sequence[int], algorithm: str, machine: Optional[Machine]) -> str:
        params = [self._params[0][number] for number in numbers]
        devices = [replica[0].ctx for replica in self._params]
        itemsize = onp.dtype(params[0].dtype).itemsize
        sizes = [param.size for param in params]
        chosen, _ = plan_for(algorithm, devices, sizes, itemsize, machine)
        return chosen

    def _make(self, numbers: Sequence[int], name: str) -> BucketSync:
        devices = len(self._params)
        sizes = [self._params[0][number].size for number in numbers]
        schedule = plan(name, devices, sizes)
        groups = [list(numbers)]
        if schedule.sizes:
            # The gradients that one device sums lie side by side: one message instead of one for each gradient.
            of_owner: Dict[int, List[int]] = {}
            for number, owner in zip(numbers, owners(devices, sizes)):
                of_owner.setdefault(owner, []).append(number)
            groups = [of_owner[owner] for owner in sorted(of_owner)]
        vectors = []
        for device in range(devices):
            vectors.append(tuple(self._lay_out(device, group) for group in groups))
        chunks: Places = vectors
        if schedule.sizes:
            schedule = plan(name, devices, [vector.size for vector in vectors[0]])
        else:
            chunks = [chunk_views(schedule, vector) for (vector,) in vectors]
        program = Program(schedule, chunks, again=True)
        size = sum(map(nbytes, vectors[0]))
        return BucketSync(tuple(numbers), size, name, program, tuple(vectors))

    def _lay_out(self, device: int, numbers: Sequence[int]) -> NDArray:
        """A vector of zeros in which these parameters' gradients lie side by side."""
        params = [self._params[device][number] for number in numbers]
        borders = offsets([param.size for param in params])
        # mx.nd.zeros allocates only when it writes the zeros, and users compare addresses. So: empty, then 0.
        like = params[0]
        vector = mx.nd.empty((borders[-1],), ctx=like.ctx, dtype=like.dtype)
        vector[:] = 0
        for number, param, start, stop in zip(numbers, params, borders, borders[1:]):
            if param.size:
                # Only the reshape of a classic array is a view.
                gradient = vector[start:stop].reshape(param.shape).as_np_ndarray()
            else:  # a classic reshape takes 0 for "as before"
                gradient = np.empty(param.shape, dtype=param.dtype, ctx=param.ctx)
            self.gradients[device][number] = gradient
        return vector
