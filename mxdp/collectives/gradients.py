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
from itertools import chain
from typing import Iterator, List, Optional, Sequence, Type, Union

from mxdp.backend import ADDING, NDArray, autograd, check_params, check_replicas
from mxdp.collectives.accumulation import Accumulating
from mxdp.collectives.allreduce import check_bucket_mb
from mxdp.collectives.buckets import Buckets
from mxdp.collectives.fresh import Fresh, Replicas
from mxdp.collectives.sync import Sync, whole_parts
from mxdp.errors import plural
from mxdp.plans.cost.machine import Machine
from mxdp.processes import World, agree_values
from mxdp.processes.world import ranks_of


class GradientSync(Accumulating, Sync):
    """Sums the gradients of all replicas in place, at each call.

    The constructor moves the gradients into buckets: each ``param.grad`` becomes a part of one, and its earlier values
    are lost. It waits for buckets of 2 MiB and more that are summed in shared memory; with several ranks also for them
    and for the parameters, whose values show their order.

    A gradient that no backward pass has written since the last sum or update (:func:`mxdp.sgd`) counts as zero, and a
    call sets it to zero: the step has not used the parameter, or the device or rank had no samples. (If you write
    gradients yourself, write all of them: where backward has never written any, all count.)

    Only the last object that moved the gradients may sum them. After ``attach_grad``, or another ``GradientSync`` on
    the same replicas, backward writes elsewhere, and a call raises an error; also if the lists of the replicas hold
    other arrays. While ``no_sync`` has gradients that wait for a call, steps of another kind on the same replicas raise
    one.

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

    _kind: Type[Buckets] = Buckets

    def __init__(
        self,
        device_params: Replicas,
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
        self._requests = ["add" if add else "write" for add in adds]
        self._overwritten = [number for number, add in enumerate(adds) if not add]
        ranks = ranks_of(world)
        self._sums = self._kind(device_params, algorithm, bucket_mb, machine, adds, ranks)
        self.buckets = self._sums.buckets
        """The buckets, in the order in which they are summed."""
        self.gradients = self._sums.gradients
        """For each replica, its gradients by parameter number."""
        agree_values(ranks, first)
        self._mark("write", self._overwritten)
        self._mark("add", [number for number, add in enumerate(adds) if add])
        self.parts = whole_parts(device_params, self.gradients)
        self.fresh = Fresh(device_params, self.gradients, "GradientSync can't sum")

    @property
    def requests(self) -> List[str]:
        """For each parameter whether backward adds to its gradient until the next sum (``"add"``), or overwrites it
        (``"write"``)."""
        return ["add"] * len(self._requests) if self.accumulating else list(self._requests)

    def __repr__(self) -> str:
        gradients = plural(len(self._device_params[0]), "gradient")
        devices = plural(len(self._device_params), "device")
        buckets = plural(len(self.buckets), "bucket")
        algorithms = ", ".join(dict.fromkeys(bucket.algorithm for bucket in self.buckets))
        return f"<GradientSync: {gradients} on {devices}, {buckets}: {algorithms}>"

    def __call__(self) -> None:
        """Sum; doesn't wait. All devices get the same bits. Raises a RuntimeError inside :meth:`no_sync`, or if
        backward does not write a gradient into its bucket."""
        self._check_sum()
        # What is added up starts at zero.
        self.fresh.zero_stale([] if self.accumulating else self._overwritten)
        self._sums.sum()
        self.fresh.use()  # while the devices work: a sum of unused buckets does no harm
        self.end_accumulating()

    def adds_up(self, params: Sequence[NDArray]) -> bool:
        """Whether gradients of these arrays are added up here, and wait for a call: for objects in ``ADDING``."""
        moved = set(map(id, self.fresh.moved()))
        here = set(map(id, chain(*self._device_params))) - moved
        return not here.isdisjoint(map(id, params))

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As :meth:`Accumulating.no_sync`. Raises a RuntimeError if backward writes a gradient elsewhere."""
        self.fresh.stale()  # before `use` takes the marks away
        self.fresh.use()
        with super().no_sync():
            yield

    def _begin_adding(self) -> None:
        ADDING.add(self)
        overwritten = set(self._overwritten)
        for bucket in self.buckets:
            if bucket.params[0] in overwritten:
                for of_device in bucket.vectors:
                    for vector in of_device:
                        vector[:] = 0
        self._mark("add", self._overwritten)

    def _end_adding(self) -> None:
        ADDING.discard(self)
        self._mark("write", self._overwritten)

    def _mark(self, request: str, numbers: Sequence[int]) -> None:
        for params, gradients in zip(self._device_params, self.gradients):
            autograd.mark_variables(
                [params[n] for n in numbers], [gradients[n] for n in numbers], request
            )
