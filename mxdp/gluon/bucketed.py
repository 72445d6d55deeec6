"""A trainer's parameters as they lie on the devices, with the buckets that sum their gradients.

gluon's gradients stay where gluon made them. A sum begins with copies into buckets. The update reads the sums there::

    cpu(0)    W.grad(), b.grad()    copy    bucket | b | W |
                                                               all-reduce    update of W by the sum, copied to cpu(1)
    cpu(1)    W.grad(), b.grad()    copy    bucket | b | W |                 update of b by the sum, copied to cpu(0)

So ``param.grad()`` has one home, to which backward, a hybridised graph and the user write. MXNet marks the gradients
that backward has written. The trainer takes the marks away at each sum: a gradient without one counts as zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Set

from mxdp.backend import HostArray, NDArray, autograd, check_device_list, mx
from mxdp.collectives.accumulation import Accumulating
from mxdp.collectives.buckets import Buckets
from mxdp.collectives.shards import Part, ShardedBuckets
from mxdp.engine import Call, prepare
from mxdp.errors import MxdpError
from mxdp.gluon.updater import State, Updater, leaves, mapped
from mxdp.plans.collective.one_hop import owners

Parameter = Any
Stale = Mapping[int, Set[int]]
"""By number of a trained parameter, the devices whose gradient backward has not written since the last sum."""


class Replicas:
    """``params`` with the arrays that they have now; where these are replaced, make another object.

    Args:
        params: a trainer's, initialised, on the same devices.
        order: the numbers of those that are trained, as ``buckets`` have them.
        buckets: in which gradients are summed; None on a single device.
    """

    def __init__(
        self, params: Sequence[Parameter], order: Sequence[int], buckets: Optional[Buckets]
    ) -> None:
        devices = len(check_device_list(params[0].list_ctx()))
        self.buckets, self.trained = buckets, list(order)
        self._params, self._kept = params, arrays_of(params)
        places = owners(devices, [param._data[0].size for param in params])
        weights = [_classic(param._data[place]) for param, place in zip(params, places)]
        self._copies = [_copies(param, place) for param, place in zip(params, places)]
        # By number of the parameter, what this process updates: by gluon's gradients, and by the sums in the buckets.
        self._own: Dict[int, List[Part]] = {}
        self._parts: Dict[int, List[Part]] = {}
        self._fill: Dict[int, List[Call]] = {}
        self._zero: Dict[int, List[Call]] = {}
        self._back: List[Call] = []
        for member, number in enumerate(order):
            gradients, place = params[number]._grad, places[number]
            self._own[number] = [
                Part(number, slice(None), weights[number], _classic(gradients[place]))
            ]
            if buckets:
                sums = [_classic(of_device[member]) for of_device in buckets.gradients]
                self._parts[number] = [replace(self._own[number][0], gradient=sums[place])]
                self._fill[number] = [
                    prepare("_copyto", [grad], sum_) for grad, sum_ in zip(gradients, sums)
                ]
                self._zero[number] = [prepare("zeros_like", [sum_], sum_) for sum_ in sums]
                self._back += [
                    prepare("_copyto", [sum_], grad) for grad, sum_ in zip(gradients, sums)
                ]

    def hold(self) -> bool:
        """False where a parameter has other arrays by now: after ``initialize(force_reinit=True)``, ``cast``,
        ``reset_ctx`` or a new ``grad_req``."""
        return same_arrays(self._params, self._kept)

    def fill(self, stale: Stale) -> None:
        """Copy the gradients into the buckets, zeros for those that are ``stale``; doesn't wait."""
        for number, copies in self._fill.items():
            # Users set to zero what adds up.
            idle = stale[number] if self._params[number].grad_req == "write" else ()
            for device, copy in enumerate(copies):
                call = self._zero[number][device] if device in idle else copy
                call()

    def hand_back(self, stale: Stale) -> None:
        """Make all gradients the sums; on a single device those zero that are ``stale``. Doesn't wait."""
        for copy in self._back:
            copy()
        for number, devices in stale.items() if self.buckets is None else ():
            param = self._params[number]
            if devices and param.grad_req == "write" and param._grad_stype == "default":
                param._grad[0][()] = 0

    def updates(self, summed: bool) -> Dict[int, List[Part]]:
        """By number of the parameter, what this process updates: by the sums in the buckets if they are ``summed``
        there, else by gluon's gradients. Doesn't wait."""
        return self._parts if summed and self.buckets else self._own

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy the updated parameters to the other devices; doesn't wait."""
        for number in numbers:
            for copy in self._copies[number]:
                copy()

    def states(self, updater: Updater) -> Dict[int, State]:
        """The optimiser's states by number of the parameter, on the host; saved ones where they lie. Waits."""
        states = {
            number: updater.sync_state_context(state, mx.cpu())
            for (number, _), state in updater.states.items()
        }
        return {**updater.saved, **states}

    def for_amp(self, summed: bool) -> List[_Summed]:
        """All sums of gradients on the first device, in the form in which amp's loss scaler reads them."""
        if summed and self.buckets:
            vectors = [vector for bucket in self.buckets.buckets for vector in bucket.vectors[0]]
        else:
            vectors = [_classic(self._params[number]._grad[0]) for number in self.trained]
        return [_Summed([vector]) for vector in vectors]


class ShardedReplicas(Replicas):
    """As :class:`Replicas`, but each device updates, and holds the state of, the parts that ``buckets`` cut for it."""

    buckets: ShardedBuckets

    def __init__(
        self, params: Sequence[Parameter], order: Sequence[int], buckets: ShardedBuckets
    ) -> None:
        super().__init__(params, order, buckets)
        self._held = [
            [replace(part, number=order[part.number]) for part in of_device]
            for of_device in buckets.parts
        ]
        self._parts = {number: [] for number in order}
        for of_device in self._held:
            for part in of_device:
                self._parts[part.number].append(part)

    def updates(self, summed: bool) -> Dict[int, List[Part]]:
        """As without shards; a process may have no part of a parameter."""
        self.buckets.take()
        return self._parts

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy all parts to all devices and ranks; doesn't wait."""
        self.buckets.spread()

    def states(self, updater: Updater) -> Dict[int, State]:
        """As without shards. All ranks call it."""
        held = [
            [leaves(updater.states.get(part.key)) for part in of_device] for of_device in self._held
        ]
        states = dict(updater.saved)
        for member, arrays in self.buckets.whole(held).items():
            number = self.trained[member]
            if arrays:
                example = updater.made_for(
                    number, mx.nd.zeros((1,), dtype=self._params[number].dtype)
                )
                states[number] = _filled(example, arrays)
        return states


@dataclass(frozen=True)
class _Summed:
    """What amp's loss scaler reads of a parameter: the first of its gradients."""

    _grad: List[NDArray]


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
        if self.accumulating:
            raise MxdpError(
                "gradients that no_sync has added up are not saved: save after the next step"
            )

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
    return [list(map(id, arrays)) for arrays in arrays_of(params)] == [
        list(map(id, arrays)) for arrays in kept
    ]


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
        for data in param._data if param.grad_req != "null" else ():
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


def _filled(example: State, arrays: Iterable[HostArray]) -> State:
    """The arrays in the structure of an example."""
    left = iter(arrays)
    return mapped(example, lambda x: mx.nd.array(next(left), mx.cpu(), x.dtype))


def _classic(array: NDArray) -> NDArray:
    return array.as_nd_ndarray() if array.stype == "default" else array


def _copies(param: Parameter, place: int) -> List[Call]:
    """Calls that copy a parameter from this place to all others."""
    updated = param._data[place]
    return [prepare("_copyto", [updated], x) for x in param._data if x is not updated]
