"""Sums all gradients of all replicas, in buckets.

LeNet has eight gradients, most of them tiny. Summed one by one, each costs several Python calls, and the devices wait
for one another each time. Here the gradients of a replica lie side by side in buckets. The buckets are filled from the
last parameter to the first, the order in which backward produces gradients::

    replica 0   bucket 0 | b4 | W4 | b3 | W3 |    bucket 1 | b2 | W2 | b1 | W1 |      backward writes directly
    replica 1   bucket 0 | b4 | W4 | b3 | W3 |    bucket 1 | b2 | W2 | b1 | W1 |      into the buckets

No gradient is copied, and each bucket has one all-reduce. The engine starts the all-reduce of a bucket when the bucket
is complete, while backward still computes other gradients. (MXNet pushes backward in bulks of 15 operators, and a
gradient is ready when its bulk is done. The environment variable ``MXNET_EXEC_BULK_EXEC_MAX_NODE_TRAIN_BWD``, set
before Python starts, makes the bulks smaller.)

Source of the idea: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training", VLDB 2020.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Dict, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import NDArray, autograd, check_params, check_replicas, mx, np
from mxdp.collectives.allreduce import check_bucket_mb
from mxdp.collectives.fresh import Fresh
from mxdp.collectives.program import Program, chunk_views
from mxdp.collectives.tuning import plan_for
from mxdp.errors import plural
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.one_hop import owners
from mxdp.plans.cost.machine import Machine
from mxdp.plans.partition import fill_buckets, offsets
from mxdp.processes import World, agree_values
from mxdp.processes.world import ranks_of

_ACCUMULATING: List[GradientSync] = []
"""Objects inside ``no_sync``, kept alive: else Python may free a dead cycle's arrays before the clean-up needs them."""


@dataclass(frozen=True)
class BucketSync:
    """One bucket: the numbers of its parameters, its bytes, the algorithm and program that sum it over this process's
    devices, and its vectors on each device (several where one device sums whole gradients)."""

    params: Tuple[int, ...]
    nbytes: int
    algorithm: str
    program: Program
    vectors: Tuple[Tuple[NDArray, ...], ...]


class GradientSync:
    """Sums the gradients of all replicas in place, at each call.

    The constructor moves the gradients into buckets: each ``param.grad`` becomes a part of one, and its earlier values
    are lost. It waits for buckets of 2 MiB and more that are summed in shared memory; with several ranks also for them
    and for the parameters, whose values show their order.

    A gradient that no backward pass has written since the last sum or update (:func:`mxdp.sgd`) counts as zero, and a
    call sets it to zero: the step has not used the parameter, or the device or rank had no samples. (If you write
    gradients yourself, write all of them: where backward has never written any, all count.)

    Only the last object that moved the gradients may sum them. After ``attach_grad``, or another ``GradientSync`` on
    the same replicas, backward writes elsewhere, and a call raises an error; also if the lists of the replicas hold
    other arrays.

    Args:
        device_params: the replicas, as :func:`mxdp.get_params` makes them: equal in number, shapes and dtypes, each on
            a device of its own.
        algorithm: a name in ``ALGORITHMS``, or ``"auto"``: for each bucket the one with the least predicted time.
        bucket_mb: MiB that a bucket may hold; a larger gradient has a bucket of its own. ``math.inf``: one bucket for
            each dtype.
        machine: speeds for ``"auto"``, as :func:`mxdp.calibrate` measures them.
        accumulate: backward adds to the gradients (``grad_req="add"``), and you set them to zero. One bool for all
            parameters, or one for each.
        world: sum over its ranks, too: a bucket over this process's devices, then from the first over all ranks, then
            back to the devices. Every rank makes one, of replicas of the same shapes; rank 0's ``"auto"`` counts.

    Raises:
        ValueError, TypeError: no replicas, or some that differ, share a device, lie on several, have no parameters or
            hold one twice; an unknown algorithm; a ``bucket_mb`` that is not a number more than 0; or a ``world`` that
            :func:`mxdp.world` has not made.
        MxdpError: on every rank, if the ranks have other gradients or buckets, or rank 0's parameters in another order.
    """

    def __init__(
        self,
        device_params: Sequence[Sequence[NDArray]],
        algorithm: str = "auto",
        bucket_mb: float = 25,
        machine: Optional[Machine] = None,
        accumulate: Union[bool, Sequence[bool]] = False,
        world: Optional[World] = None,
    ) -> None:
        self._check_replicas(device_params)
        check_bucket_mb(bucket_mb)
        self._device_params = [list(params) for params in device_params]
        self._world = ranks_of(world)
        self._held_back = False
        self.accumulating = False
        """True if there are gradients from :meth:`no_sync` that are not summed yet."""
        self.gradients: List[Dict[int, NDArray]] = [{} for _ in device_params]
        """For each replica, its gradients by parameter number."""
        self._vectors: List[NDArray] = []
        first = device_params[0]
        adds = [accumulate] * len(first) if isinstance(accumulate, bool) else list(accumulate)
        self._requests = ["add" if add else "write" for add in adds]
        self._overwritten = [number for number, add in enumerate(adds) if not add]
        kinds = [str(onp.dtype(param.dtype)) for param in first]
        nbytes = [param.size * onp.dtype(param.dtype).itemsize for param in first]
        buckets = fill_buckets(nbytes, list(zip(kinds, adds)), bucket_mb * 2**20)
        described = {f"parameter {number}": f"{kind} {first[number].shape}" for number, kind in enumerate(kinds)}
        self._world.agree({"bucket_mb": bucket_mb, **described})
        agree_values(self._world, first)
        # Ranks with other cores would choose other algorithms, which may divide a bucket otherwise.
        names = self._world.gather([self._resolve(numbers, algorithm, machine) for numbers in buckets])[0]
        self.buckets = [self._make(numbers, name) for numbers, name in zip(buckets, names)]
        self._world.agree(
            {"buckets' vectors of length": [[x.size for x in bucket.vectors[0]] for bucket in self.buckets]}
        )
        self._mark("write", self._overwritten)
        self._mark("add", [number for number, add in enumerate(adds) if add])
        self.fresh = Fresh(device_params, self.gradients, "GradientSync can't sum")

    @property
    def requests(self) -> List[str]:
        """For each parameter whether backward adds to its gradient until the next sum (``"add"``), or overwrites it
        (``"write"``)."""
        return ["add"] * len(self._requests) if self.accumulating else self._requests

    @property
    def adds(self) -> bool:
        """True if backward adds to all gradients until the next sum, and doesn't overwrite them."""
        return "write" not in self.requests

    def sums(self, device_params: Sequence[Sequence[NDArray]]) -> bool:
        """Whether it sums the gradients of these arrays, in this order."""
        return self.fresh.held.is_in(device_params)

    def __repr__(self) -> str:
        gradients, devices = plural(len(self._device_params[0]), "gradient"), plural(len(self._device_params), "device")
        algorithms = ", ".join(dict.fromkeys(bucket.algorithm for bucket in self.buckets))
        return f"<GradientSync: {gradients} on {devices}, {plural(len(self.buckets), 'bucket')}: {algorithms}>"

    def __call__(self) -> None:
        """Sum; doesn't wait. All devices get the same bits. Raises a RuntimeError inside :meth:`no_sync`, or if
        backward does not write a gradient into its bucket."""
        if self._held_back:
            raise RuntimeError(
                "a step or a sum inside no_sync would leave each device with its own gradients: call it after no_sync"
            )
        self._zero_stale()
        for bucket in self.buckets:
            self._sum(bucket)
        self._check_places()  # while the devices work: a sum of unused buckets does no harm
        self._end_accumulating()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients: backward passes inside this context, and after it, add up until the next sum.

        For k micro-batches with one all-reduce, run the forward and backward passes of k - 1 inside and of the last one
        after it, then call the object. Inside, a call is refused; nesting has no effect. After an exception, the next
        backward pass overwrites the gradients since the last sum (with ``accumulate=True`` you set them to zero). MXNet
        1.9.1 adds nothing up for ``astype`` of a parameter: add it to zeros of the other dtype instead. Raises a
        RuntimeError if backward does not write a gradient into its bucket.
        """
        self._check_places()
        outer = self._held_back
        _ACCUMULATING.append(self)
        try:
            if not self.accumulating:
                for vector in self._vectors:
                    vector[:] = 0
                self._mark("add", self._overwritten)
                self.accumulating = True
            self._held_back = True
            yield
        except BaseException:
            if not outer:
                self._end_accumulating()
            raise
        finally:
            self._held_back = outer
            _ACCUMULATING.remove(self)

    def _check_replicas(self, device_params: Sequence[Sequence[NDArray]]) -> None:
        for number, params in enumerate(device_params):
            check_params(params, f"replica {number}")
        check_replicas(device_params)

    def _sum(self, bucket: BucketSync) -> None:
        bucket.program()
        if self._world.size > 1:
            first, *others = bucket.vectors
            self._world.sum(first)
            for device in others:
                for vector, summed in zip(device, first):
                    summed.copyto(vector)

    def _end_accumulating(self) -> None:
        if self.accumulating:
            self._mark("write", self._overwritten)
        self.accumulating = False

    def _zero_stale(self) -> None:
        """Make the gradients zero that backward has left out. What is added up starts at zero."""
        self.fresh.zero_stale([] if self.accumulating else self._overwritten)

    def _check_places(self) -> None:
        """Raise a RuntimeError unless backward still writes into the buckets. Note what is there as summed."""
        self.fresh.use()

    def _resolve(self, numbers: Sequence[int], algorithm: str, machine: Optional[Machine]) -> str:
        params = [self._device_params[0][number] for number in numbers]
        devices = [params[0].ctx for params in self._device_params]
        itemsize = onp.dtype(params[0].dtype).itemsize
        return plan_for(algorithm, devices, [param.size for param in params], itemsize, machine)[0]

    def _make(self, numbers: Sequence[int], name: str) -> BucketSync:
        first, devices = self._device_params[0], self._device_params
        sizes, dtype = [first[number].size for number in numbers], onp.dtype(first[numbers[0]].dtype)
        schedule = plan(name, len(devices), sizes)
        groups = [list(numbers)]
        if schedule.sizes:
            # The gradients that one device sums lie side by side: one message instead of one for each gradient.
            owner = owners(len(devices), sizes)
            groups = [[n for n, device in zip(numbers, owner) if device == rank] for rank in range(len(devices))]
            groups = [group for group in groups if group]
            schedule = plan(name, len(devices), [sum(first[n].size for n in group) for group in groups])
        vectors = tuple(tuple(self._lay_out(rank, group) for group in groups) for rank in range(len(devices)))
        chunks = [list(of_rank) if schedule.sizes else chunk_views(schedule, of_rank[0]) for of_rank in vectors]
        program = Program(schedule, chunks, again=True)
        return BucketSync(tuple(numbers), sum(sizes) * dtype.itemsize, name, program, vectors)

    def _lay_out(self, rank: int, numbers: Sequence[int]) -> NDArray:
        """A vector of zeros in which these parameters' gradients lie side by side."""
        params = [self._device_params[rank][number] for number in numbers]
        borders = offsets([param.size for param in params])
        # mx.nd.zeros allocates only when it writes the zeros, and Fresh compares addresses. So: empty, then 0.
        vector = mx.nd.empty((borders[-1],), ctx=params[0].ctx, dtype=params[0].dtype)
        vector[:] = 0
        if numbers[0] in self._overwritten:
            self._vectors.append(vector)
        for number, param, start, stop in zip(numbers, params, borders, borders[1:]):
            if param.size:
                # Only the reshape of a classic array is a view.
                gradient = vector[start:stop].reshape(param.shape).as_np_ndarray()
            else:  # a classic reshape takes 0 for "as before"
                gradient = np.empty(param.shape, dtype=param.dtype, ctx=param.ctx)
            self.gradients[rank][number] = gradient
        return vector

    def _mark(self, request: str, numbers: Sequence[int]) -> None:
        for params, gradients in zip(self._device_params, self.gradients):
            autograd.mark_variables([params[n] for n in numbers], [gradients[n] for n in numbers], request)
