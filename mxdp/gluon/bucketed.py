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
from itertools import chain
from typing import (
    Any,
    Collection,
    Dict,
    Iterable,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Set,
    Tuple,
)

from mxdp.backend import HostArray, NDArray, autograd, check_device_list, mx
from mxdp.collectives.accumulation import Accumulating
from mxdp.collectives.buckets import Buckets
from mxdp.collectives.fresh import Held
from mxdp.collectives.shards import ShardedBuckets
from mxdp.collectives.sync import Part
from mxdp.engine import Call, prepare
from mxdp.errors import MxdpError
from mxdp.gluon.checks import check_dense
from mxdp.gluon.store import Store
from mxdp.gluon.updater import State, Updater, leaves, mapped
from mxdp.plans.collective.one_hop import owners

Params = Sequence[Any]


class Stale(NamedTuple):
    """Gradients that backward has not written since the last sum: they count as zero."""

    devices: Dict[int, Set[int]]
    """For the number of each trained parameter, the devices on which its gradient is such a one."""
    unused: Set[int]
    """The numbers of parameters that no device has used; after a sum, none of another rank either."""

    def refuse_none(self) -> None:
        """After a sum: raise gluon's UserWarning if backward has run on no device of any rank."""
        if self.devices and self.unused.issuperset(self.devices):
            raise UserWarning(
                "no gradient has been updated by backward since the last step: call backward for a loss that was "
                "computed inside autograd.record()"
            )


class Replicas:
    """``params`` with the arrays that they have now; where these are replaced, make another object.

    Args:
        params: a trainer's, initialised, on the same devices.
        order: the numbers of those that are trained, as ``buckets`` have them.
        buckets: in which gradients are summed; None on a single device.
    """

    def __init__(self, params: Params, order: Sequence[int], buckets: Optional[Buckets]) -> None:
        self.buckets = buckets
        self.trained = list(order)
        self._params = params
        self._held = Held(arrays_of(params))
        self._parts: Dict[int, List[Part]] = {}
        self._fill: Dict[int, List[Tuple[Call, Call]]] = {}
        """For each device, a copy of the gradient into its bucket, and a call that puts zeros there."""
        self._back: List[Call] = []
        self._copies: Dict[int, List[Call]] = {}
        places = owners(len(params[0]._data), [param._data[0].size for param in params])
        for member, number in enumerate(order):
            place = places[number]
            data = params[number]._data
            gradients = params[number]._grad
            sums = [of_device[member] for of_device in buckets.gradients] if buckets else gradients
            part = Part(number, slice(None), _classic(data[place]), _classic(sums[place]))
            self._parts[number] = [part]
            self._copies[number] = [
                prepare("_copyto", [data[place]], x) for x in data if x is not data[place]
            ]
            if buckets:
                self._fill[number] = []
                for gradient, total in zip(gradients, map(_classic, sums)):
                    copy = prepare("_copyto", [gradient], total)
                    zero = prepare("zeros_like", [total], total)
                    self._fill[number].append((copy, zero))
                    self._back.append(prepare("_copyto", [total], gradient))

    def hold(self) -> bool:
        """False where a parameter has other arrays by now: after ``initialize(force_reinit=True)``, ``cast``,
        ``reset_ctx`` or a new ``grad_req``."""
        return self._held.is_in(arrays_of(self._params))

    def fill(self, stale: Mapping[int, Collection[int]]) -> None:
        """Copy the gradients into the buckets; doesn't wait. ``stale`` are devices, by the parameter's number, whose
        gradients count as zero."""
        for number, calls in self._fill.items():
            # Users set to zero what adds up.
            idle = stale.get(number, ()) if self._params[number].grad_req == "write" else ()
            for device, (copy, zero) in enumerate(calls):
                call = zero if device in idle else copy
                call()

    def hand_back(self, stale: Mapping[int, Collection[int]]) -> None:
        """Make all gradients the sums; on a single device those zero that are ``stale``. Doesn't wait."""
        for copy in self._back:
            copy()
        if self.buckets:
            return
        for number, devices in stale.items():
            param = self._params[number]
            if devices and param.grad_req == "write" and param._grad_stype == "default":
                param._grad[0][()] = 0

    def updates(self) -> Dict[int, List[Part]]:
        """What this process updates of each parameter, with the sums in the buckets. Doesn't wait."""
        return self._parts

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy the updated parameters to the other devices; doesn't wait."""
        for number in numbers:
            for copy in self._copies[number]:
                copy()

    def states(self, updater: Updater) -> Dict[int, State]:
        """The optimiser's states by number of the parameter, on the host; saved ones where they lie. Waits."""
        states = dict(updater.saved)
        for (number, _), state in updater.states.items():
            states[number] = updater.sync_state_context(state, mx.cpu())
        return states

    def for_amp(self) -> List[_Summed]:
        """All sums of gradients on the first device, in the form in which amp's loss scaler reads them."""
        if self.buckets:
            sums = list(chain(*(bucket.vectors[0] for bucket in self.buckets.buckets)))
        else:
            sums = [_classic(self._params[number]._grad[0]) for number in self.trained]
        return [_Summed([array]) for array in sums]


class ShardedReplicas(Replicas):
    """As :class:`Replicas`, but each device updates, and holds the state of, the parts that ``buckets`` cut for it."""

    buckets: ShardedBuckets

    def __init__(self, params: Params, order: Sequence[int], buckets: ShardedBuckets) -> None:
        super().__init__(params, order, buckets)
        self._parts = {number: [] for number in order}
        self._of_devices: List[List[Part]] = []
        for of_device in buckets.parts:
            parts = [replace(part, number=order[part.number]) for part in of_device]
            self._of_devices.append(parts)
            for part in parts:
                self._parts[part.number].append(part)

    def updates(self) -> Dict[int, List[Part]]:
        """What this process updates of each parameter, which may be nothing. Doesn't wait."""
        self.buckets.take()
        return self._parts

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy all parts to all devices and ranks; doesn't wait."""
        self.buckets.spread()

    def states(self, updater: Updater) -> Dict[int, State]:
        """The whole states, joined from all parts, on the host; saved ones where they lie. Waits; all ranks call it."""
        held = []
        for parts in self._of_devices:
            held.append([leaves(updater.states.get(part.key)) for part in parts])
        states = dict(updater.saved)
        for member, arrays in self.buckets.whole(held).items():
            if arrays:
                number = self.trained[member]
                like = mx.nd.zeros((1,), dtype=self._params[number].dtype)
                states[number] = _filled(updater.made_for(number, like), arrays)
        return states


def lay_out(
    params: Params, order: Sequence[int], store: Store, bucket_mb: float, sharded: bool
) -> Replicas:
    """The replicas of a trainer's ``params`` as they lie now. ``order``: their numbers, as buckets are filled. All
    ranks call it."""
    devices = check_device_list(params[0].list_ctx())
    trained = [number for number in order if params[number].grad_req != "null"]
    if len(devices) == 1 and store.world.size == 1 and not sharded:
        return Replicas(params, trained, None)
    check_dense(params, always=True)
    members = []
    for device in range(len(devices)):
        members.append([params[number]._data[device] for number in trained])
    kinds = [False] * len(trained)
    options = store.algorithm, bucket_mb, store.machine(devices[0]), kinds, store.world
    if sharded:
        return ShardedReplicas(params, trained, ShardedBuckets(members, *options))
    return Replicas(params, trained, Buckets(members, *options))


@dataclass(frozen=True)
class _Summed:
    """What amp's loss scaler reads of a parameter: the first of its gradients."""

    _grad: List[NDArray]


class AddingUp(Accumulating):
    """``no_sync`` for gradients where gluon made them."""

    def __init__(self, params: Params) -> None:
        super().__init__()
        self._params = params
        self._held = Held([])

    def check(self) -> None:
        """Raise a RuntimeError inside ``no_sync``, or if gradients that were added up have been replaced."""
        self._check_sum()
        if self.accumulating and not self._hold():
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
        self._held = Held(arrays_of(self._params))
        for param in self._params:
            if param.grad_req == "write":
                for gradient in param._grad:
                    gradient[()] = 0
        self._mark("add")

    def _end_adding(self) -> None:
        if self._hold():
            self._mark("write")

    def _hold(self) -> bool:
        return self._held.is_in(arrays_of(self._params))

    def _mark(self, request: str) -> None:
        for param in self._params:
            if param.grad_req == "write":
                autograd.mark_variables(param._data, param._grad, request)


def arrays_of(params: Params) -> List[List[NDArray]]:
    """The arrays of each parameter and of its gradient on all devices."""
    return [[*param._data, *(param._grad or [])] for param in params]


def unwritten(params: Params) -> Stale:
    """The gradients that have no mark of backward's now."""
    stale = Stale({}, set())
    for number, param in enumerate(params):
        if param.grad_req != "null":
            marks = enumerate(data._fresh_grad for data in param._data)
            devices = {device for device, fresh in marks if not fresh}
            stale.devices[number] = devices
            if len(devices) == len(param._data):
                stale.unused.add(number)
    return stale


def forget(params: Params) -> None:
    """Take MXNet's marks of written gradients away: all are summed."""
    for param in params:
        if param.grad_req != "null":
            for data in param._data:
                data._fresh_grad = False


def refuse_stale(params: Params, stale: Stale) -> None:
    """Raise gluon's UserWarning for the first of these gradients whose device had samples."""
    idle = set.intersection(*stale.devices.values()) if stale.devices else set()
    for number, devices in stale.devices.items():
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
