"""The gradients of a trainer's parameters, which stay where gluon made them, and the buckets that sum them.

A sum begins with copies into buckets. The update reads the sums there::

    cpu(0)    W.grad(), b.grad()    copy    bucket | b | W |
                                                               all-reduce    update of W by the sum, copied to cpu(1)
    cpu(1)    W.grad(), b.grad()    copy    bucket | b | W |                 update of b by the sum, copied to cpu(0)

So ``param.grad()`` has one home, to which backward, a hybridised graph and the user write. MXNet marks the gradients
that backward has written. The trainer takes the marks away at each sum: a gradient without one counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Optional, Sequence, Set

import numpy as onp

from mxdp.backend import NDArray, autograd, check_device_list, mx
from mxdp.collectives.accumulation import Accumulating
from mxdp.collectives.buckets import Buckets
from mxdp.collectives.shards import ShardedBuckets
from mxdp.engine import Call, prepare
from mxdp.errors import MxdpError
from mxdp.plans.cost.machine import Machine
from mxdp.processes import World

Parameter = Any
Stale = Mapping[int, Set[int]]
"""By number of a trained parameter, the devices whose gradient backward has not written since the last sum."""


class BucketedGradients:
    """Buckets for the trained ones of ``params``, which are initialised, on the same devices, with dense gradients.

    Args:
        params: a trainer's parameters.
        order: their numbers, in the order in which the network uses them.
        sharded: each device sums only its part, for an optimiser in shards.
        algorithm, bucket_mb, machine: as for :class:`mxdp.GradientSync`.
        world: sum over its ranks, too.
    """

    def __init__(
        self,
        params: Sequence[Parameter],
        order: Sequence[int],
        sharded: bool,
        algorithm: str,
        bucket_mb: float,
        machine: Machine,
        world: World,
    ) -> None:
        check_device_list(params[0].list_ctx())
        self._params = params
        self.members = [number for number in order if params[number].grad_req != "null"]
        """The numbers of the parameters that it sums, in the order of the buckets' parameters."""
        self._kept = arrays_of(params)
        members = [params[number] for number in self.members]
        replicas = [[param._data[device] for param in members] for device in range(len(params[0]._data))]
        kinds = [False] * len(members)
        if sharded:
            self.buckets: Buckets = ShardedBuckets(replicas, bucket_mb, kinds, world)
        else:
            self.buckets = Buckets(replicas, algorithm, bucket_mb, machine, kinds, world)
        self.checksums = Checksums(params)
        self._fill: Dict[int, List[Call]] = {}
        self._zero: Dict[int, List[Call]] = {}
        self._back: Dict[int, List[Call]] = {}
        self.sums: Dict[int, List[NDArray]] = {}
        """By number of the parameter, the place of its sum on each device."""
        for place, number in enumerate(self.members):
            gradients = params[number]._grad
            sums = [of_device[place].as_nd_ndarray() for of_device in self.buckets.gradients]
            self.sums[number] = sums
            self._fill[number] = [prepare("_copyto", [grad], sum_) for grad, sum_ in zip(gradients, sums)]
            self._zero[number] = [prepare("zeros_like", [sum_], sum_) for sum_ in sums]
            self._back[number] = [prepare("_copyto", [sum_], grad) for grad, sum_ in zip(gradients, sums)]

    def hold(self) -> bool:
        """False where a parameter has other arrays by now: after ``initialize(force_reinit=True)``, ``cast``,
        ``reset_ctx`` or a new ``grad_req``."""
        return same_arrays(self._params, self._kept)

    def fill(self, stale: Stale) -> None:
        """Copy the gradients into the buckets, zeros for those that are ``stale``; doesn't wait."""
        for number in self.members:
            # Users set to zero what adds up.
            idle = stale[number] if self._params[number].grad_req == "write" else set()
            for device, copy in enumerate(self._fill[number]):
                call = self._zero[number][device] if device in idle else copy
                call()

    def hand_back(self) -> None:
        """Copy the sums into the gradients of all devices; doesn't wait."""
        for copies in self._back.values():
            for copy in copies:
                copy()


class Checksums:
    """The sums of squares of parameters, by which ranks notice that they have other values.

    ``numbers``: of the parameters, in the order of the sums in ``arrays``, which lie on the host.
    """

    def __init__(self, params: Sequence[Parameter]) -> None:
        self.numbers: List[int] = []
        self.arrays: List[NDArray] = []
        self._calls: List[Call] = []
        groups: Dict[str, List[int]] = {}
        for number, param in enumerate(params):
            # Running means differ between devices, and can't be trained.
            if param._differentiable and param._data[0].size:
                groups.setdefault(str(param.dtype), []).append(number)
        for numbers in groups.values():
            weights = [params[number]._data[0].as_nd_ndarray() for number in numbers]
            sums = mx.nd.empty((len(numbers),), ctx=weights[0].ctx)
            host = mx.nd.empty((len(numbers),), ctx=mx.cpu())
            self._calls.append(prepare("multi_sum_sq", weights, sums, num_arrays=len(weights)))
            self._calls.append(prepare("_copyto", [sums], host))
            self.numbers.extend(numbers)
            self.arrays.append(host)

    def push(self) -> None:
        """Compute the sums; doesn't wait."""
        for call in self._calls:
            call()

    def differing(self, ranks: Sequence[bytes]) -> List[int]:
        """The numbers of the parameters whose sums aren't the same on all ``ranks``."""
        sums = onp.array([onp.frombuffer(of_rank, "uint32") for of_rank in ranks])
        return [number for number, of_ranks in zip(self.numbers, sums.T) if len(set(of_ranks)) > 1]


@dataclass(frozen=True)
class _Summed:
    """What amp's loss scaler looks at: the first of ``_grad``."""

    _grad: List[NDArray]


def sums_for_amp(params: Sequence[Parameter], buckets: Optional[BucketedGradients]) -> List[_Summed]:
    """All sums of gradients, in the form of gluon's parameters."""
    if buckets:
        return [_Summed([vector]) for bucket in buckets.buckets.buckets for vector in bucket.vectors[0]]
    return [_Summed([param._grad[0].as_nd_ndarray()]) for param in params if param._grad]


def zero_stale(params: Sequence[Parameter], stale: Stale) -> None:
    """Set gradients to zero, in place, that backward has not written; doesn't wait."""
    for number, devices in stale.items():
        param = params[number]
        if param.grad_req == "write" and param._grad_stype == "default":
            for device in devices:
                params[number]._grad[device][()] = 0


class AddingUp(Accumulating):
    """``no_sync`` for gradients where gluon made them."""

    def __init__(self, params: Sequence[Parameter]) -> None:
        super().__init__()
        self._params = params
        self._kept: List[List[NDArray]] = []

    def check(self) -> None:
        """Raise a RuntimeError inside ``no_sync``, or if gradients that were added up have been replaced."""
        self._check_sum()
        if self.accumulating and not same_arrays(self._params, self._kept):
            self.accumulating = False
            raise RuntimeError(
                "gradients added up inside no_sync are lost: call step before a parameter is initialised, cast or "
                "moved, or gets another grad_req"
            )

    def check_saved(self) -> None:
        """Raise an MxdpError if there are gradients that a checkpoint would lose."""
        if self.accumulating or self._held_back:
            raise MxdpError("gradients that no_sync has added up are not saved: save after the next step")

    def end(self) -> None:
        """After a sum: backward overwrites gradients again."""
        self._end_accumulating()

    def _begin_adding(self) -> None:
        self._kept = arrays_of(self._params)
        for param in self._overwritten():
            for gradient in param._grad:
                gradient[()] = 0
        self._mark("add")

    def _end_adding(self) -> None:
        if same_arrays(self._params, self._kept):
            self._mark("write")

    def _mark(self, request: str) -> None:
        for param in self._overwritten():
            autograd.mark_variables(param._data, param._grad, request)

    def _overwritten(self) -> List[Parameter]:
        return [param for param in self._params if param.grad_req == "write"]


def arrays_of(params: Sequence[Parameter]) -> List[List[NDArray]]:
    """The arrays of each parameter and of its gradient on all devices."""
    return [[*param._data, *(param._grad or [])] for param in params]


def same_arrays(params: Sequence[Parameter], kept: Sequence[Sequence[NDArray]]) -> bool:
    """True if the parameters still have the arrays that :func:`arrays_of` gave."""
    return [list(map(id, arrays)) for arrays in arrays_of(params)] == [list(map(id, arrays)) for arrays in kept]


def unwritten(params: Sequence[Parameter]) -> Stale:
    """The gradients that backward has not written since the last sum."""
    return {
        number: {device for device, data in enumerate(param._data) if not data._fresh_grad}
        for number, param in enumerate(params)
        if param.grad_req != "null"
    }


def forget(params: Sequence[Parameter]) -> None:
    """Take MXNet's marks of written gradients away: all are summed."""
    for param in params:
        if param.grad_req != "null":
            for data in param._data:
                data._fresh_grad = False


def refuse_stale(params: Sequence[Parameter], stale: Stale, alone: bool) -> None:
    """Raise gluon's UserWarning for the first of these gradients whose device had samples (one has, if ``alone``)."""
    idle = set.intersection(*stale.values()) if stale else set()
    if alone and stale and len(idle) == len(params[0]._data):
        raise UserWarning(
            "no gradient has been updated by backward since the last step: call backward for a loss that was computed "
            "inside autograd.record()"
        )
    for number, devices in stale.items():
        for device in sorted(devices - idle):
            raise UserWarning(
                f"the gradient of parameter {params[number].name} on {params[number].list_ctx()[device]} has not been "
                "updated by backward since the last step: use the parameter in the forward pass, or call step with "
                "ignore_stale_grad=True"
            )
