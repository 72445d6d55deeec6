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

import ctypes
from contextlib import contextmanager
from typing import Dict, Iterator, List, Optional, Sequence, Union

from mxdp.backend import NDArray, address_of, autograd, check_params, check_replicas, mx
from mxdp.collectives.accumulation import Accumulating
from mxdp.collectives.allreduce import check_bucket_mb
from mxdp.collectives.buckets import Buckets, BucketSync
from mxdp.engine import prepare
from mxdp.errors import plural
from mxdp.plans.cost.machine import Machine
from mxdp.processes import World, agree_values
from mxdp.processes.world import ranks_of


class GradientSync(Accumulating):
    """Sums the gradients of all replicas in place, at each call.

    The constructor moves the gradients into buckets: each ``param.grad`` becomes a part of one, and its earlier values
    are lost. It waits for buckets of 2 MiB and more that are summed in shared memory; with several ranks also for them
    and for the parameters, whose values show their order.

    A gradient that no backward pass has written since the last sum counts as zero, and a call sets it to zero: the step
    has not used the parameter, or the device or rank had no samples. (If you write gradients yourself, write all of
    them: where backward has never written any, all count.)

    Only the last object that moved the gradients may sum them. After ``attach_grad``, or another ``GradientSync`` on
    the same replicas, backward writes elsewhere, and a call raises an error.

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
        super().__init__()
        for number, params in enumerate(device_params):
            check_params(params, f"replica {number}")
        check_replicas(device_params)
        check_bucket_mb(bucket_mb)
        first = device_params[0]
        adds = [accumulate] * len(first) if isinstance(accumulate, bool) else list(accumulate)
        self._device_params = [list(params) for params in device_params]
        self._overwritten = [number for number, add in enumerate(adds) if not add]
        self._written = False  # by backward, ever
        ranks = ranks_of(world)
        self._sums = self._lay_out(algorithm, bucket_mb, machine, adds, ranks)
        agree_values(ranks, first)
        self._mark("write", self._overwritten)
        self._mark("add", [number for number, add in enumerate(adds) if add])
        self._places = [
            (param, prepare("zeros_like", [gradients[number]], gradients[number]), address_of(gradients[number]))
            for params, gradients in zip(self._device_params, self.gradients)
            for number, param in enumerate(params)
            if param.size
        ]

    @property
    def buckets(self) -> List[BucketSync]:
        """The buckets, in the order in which they are summed."""
        return self._sums.buckets

    @property
    def gradients(self) -> List[Dict[int, NDArray]]:
        """For each replica, its gradients by parameter number."""
        return self._sums.gradients

    @property
    def adds(self) -> bool:
        """True if backward adds to the gradients until the next sum, and doesn't overwrite them."""
        return self.accumulating or not self._overwritten

    def __repr__(self) -> str:
        gradients, devices = plural(len(self._device_params[0]), "gradient"), plural(len(self._device_params), "device")
        algorithms = ", ".join(dict.fromkeys(bucket.algorithm for bucket in self.buckets))
        return f"<GradientSync: {gradients} on {devices}, {plural(len(self.buckets), 'bucket')}: {algorithms}>"

    def __call__(self) -> None:
        """Sum; doesn't wait. All devices get the same bits. Raises a RuntimeError inside :meth:`no_sync`, or if
        backward does not write a gradient into its bucket."""
        self._check_sum()
        self._zero_stale()
        self._sums.sum()
        self._check_places()  # while the devices work: a sum of unused buckets does no harm
        self.end_accumulating()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As :meth:`Accumulating.no_sync`. Raises a RuntimeError if backward writes a gradient elsewhere."""
        self._check_places()
        with super().no_sync():
            yield

    def _begin_adding(self) -> None:
        overwritten = set(self._overwritten)
        for bucket in self.buckets:
            if bucket.params[0] in overwritten:
                for of_device in bucket.vectors:
                    for vector in of_device:
                        vector[:] = 0
        self._mark("add", self._overwritten)

    def _end_adding(self) -> None:
        self._mark("write", self._overwritten)

    def _lay_out(
        self, algorithm: str, bucket_mb: float, machine: Optional[Machine], adds: Sequence[bool], world: World
    ) -> Buckets:
        return Buckets(self._device_params, algorithm, bucket_mb, machine, adds, world)

    def _zero_stale(self) -> None:
        """Make the gradients zero that backward has left out since the last sum."""
        fresh, get = ctypes.c_int(), mx.base._LIB.MXNDArrayGetGradState
        at_fresh, stale = ctypes.byref(fresh), []
        for param, zero, _ in self._places:
            get(param.handle, at_fresh)
            if not fresh.value:
                stale.append(zero)
        self._written = self._written or len(stale) < len(self._places)
        for zero in stale if self._written and not self.adds else ():  # what is added up starts at zero
            zero()

    def _check_places(self) -> None:
        """Raise a RuntimeError unless backward still writes into the buckets. Note what is there as summed."""
        # MXNet's C interface takes 2 us. ``param.grad`` takes twice as long, since each access makes an object.
        library, grad, place = mx.base._LIB, ctypes.c_void_p(), ctypes.c_void_p()
        get, read, free = library.MXNDArrayGetGrad, library.MXNDArrayGetData, library.MXNDArrayFree
        at_grad, at_place, note = ctypes.byref(grad), ctypes.byref(place), library.MXNDArraySetGradState
        for param, _, expected in self._places:
            failed = get(param.handle, at_grad) or not grad or read(grad, at_place) or free(grad)
            if failed or place.value != expected:
                raise RuntimeError(
                    f"GradientSync can't sum: the gradient of a parameter of shape {param.shape} on {param.ctx} was "
                    "replaced (by attach_grad, or by another GradientSync on the same replicas): make a new one, and "
                    "use only that"
                )
            note(param.handle, 0)

    def _mark(self, request: str, numbers: Sequence[int]) -> None:
        for params, gradients in zip(self._device_params, self.gradients):
            autograd.mark_variables([params[n] for n in numbers], [gradients[n] for n in numbers], request)
