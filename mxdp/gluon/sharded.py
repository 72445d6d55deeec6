"""What each device updates, and holds the optimiser's state for: whole parameters, or in shards parts of them."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any, Dict, Iterable, List, Sequence, Tuple

from mxdp.backend import HostArray, mx
from mxdp.collectives.shards import Part
from mxdp.engine import Call, prepare
from mxdp.gluon.bucketed import ShardedGradients
from mxdp.gluon.updater import State, Updater, leaves, mapped
from mxdp.plans.collective.one_hop import owners

ELEMENTWISE = ("SGD", "NAG", "Signum", "Adam", "Adamax", "AdaGrad", "AdaDelta", "RMSProp", "Ftrl", "FTML", "DCASGD")
"""MXNet's optimisers that update each element by itself, so a part of a parameter as the whole."""


def check_shardable(optimizer: Any, store: Any) -> None:
    """Raise a ValueError unless the optimiser has a state and updates each element by itself, and the store is ours."""
    if store is None:
        raise ValueError("shard_optimizer needs one of mxdp's stores, such as kvstore='mxdpauto'")
    name = type(optimizer).__name__
    if type(optimizer) not in [getattr(mx.optimizer, known) for known in ELEMENTWISE]:
        raise ValueError(
            f"shard_optimizer cuts parameters, and {name} may need them whole: use one of {', '.join(ELEMENTWISE)}, or "
            "leave shard_optimizer out"
        )
    if optimizer.create_state(0, mx.nd.zeros((1,))) is None:
        raise ValueError(
            f"shard_optimizer needs a state to cut, and {name} as it is here has none: give it a momentum, or leave "
            "shard_optimizer out"
        )


class WholeParameters:
    """Each parameter as one part, on the device that updates it and copies it to the others.

    Args:
        params: the trainer's. They may get other devices or arrays at any time.
    """

    def __init__(self, params: Sequence[Any]) -> None:
        self._params = params
        self._ready: Dict[int, Tuple[Any, Any, Part, List[Call]]] = {}

    def parts(self, numbers: Iterable[int]) -> Dict[int, Sequence[Part]]:
        """By number of the parameter, what this process updates of it; doesn't wait."""
        return {number: [self._prepared(number)[2]] for number in numbers}

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy the updated parameters to the other devices; doesn't wait."""
        for copy in (copy for number in numbers for copy in self._prepared(number)[3]):
            copy()

    def whole(self, updater: Updater) -> Dict[int, State]:
        """The updater's states by number of the parameter, on the host. Waits."""
        return {number: updater.sync_state_context(its, mx.cpu()) for (number, _), its in updater.states.items()}

    def _prepared(self, number: int) -> Tuple[Any, Any, Part, List[Call]]:
        data, grads = self._params[number]._data, self._params[number]._grad
        ready = self._ready.get(number)
        if ready is None or ready[0] is not data or ready[1] is not grads:
            device = owners(len(data), [param._data[0].size for param in self._params])[number]
            arrays = [x.as_nd_ndarray() if x.stype == "default" else x for x in (data[device], grads[device])]
            copies = [prepare("_copyto", [arrays[0]], x) for x in data if x is not data[device]]
            ready = self._ready[number] = data, grads, Part(number, slice(None), *arrays), copies
        return ready


class Shards:
    """Parts of all parameters, as ``buckets`` cut them; else as :class:`WholeParameters`."""

    def __init__(self, buckets: ShardedGradients, params: Sequence[Any]) -> None:
        self._buckets, self._params = buckets, params
        first = {id(param): number for number, param in reversed(list(enumerate(params)))}
        self._numbers = [first[id(param)] for param in buckets.members]
        self._held = [[replace(part, number=self._numbers[part.number]) for part in its] for its in buckets.parts]
        self._parts: Dict[int, List[Part]] = {number: [] for number in self._numbers}
        for part in chain(*self._held):
            self._parts[part.number].append(part)

    def parts(self, numbers: Iterable[int]) -> Dict[int, Sequence[Part]]:
        """As of whole parameters. This process may have none of a parameter."""
        return {number: self._parts[number] for number in numbers}

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy the updated parts, and all others, to all devices and ranks; doesn't wait."""
        self._buckets.spread()

    def whole(self, updater: Updater) -> Dict[int, State]:
        """The states of all cut parameters as a trainer without shards has them, on the host. Waits; all ranks call
        it."""
        held = [[leaves(updater.states.get(part.key)) for part in its] for its in self._held]
        whole = {self._numbers[member]: arrays for member, arrays in self._buckets.whole(held).items() if arrays}
        return {number: self._state(updater.optimizer, number, arrays) for number, arrays in whole.items()}

    def _state(self, optimizer: Any, number: int, arrays: Sequence[HostArray]) -> State:
        """The arrays in the structure of the optimiser's states."""
        example = optimizer.create_state_multi_precision(number, mx.nd.zeros((1,), dtype=self._params[number].dtype))
        left = iter(arrays)
        return mapped(example, lambda x: mx.nd.array(next(left), ctx=mx.cpu(), dtype=x.dtype))
