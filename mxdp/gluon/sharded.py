"""The optimiser's state in shards: each device holds, and updates, its parts of the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any, Dict, Iterable, Iterator, List, Sequence, Tuple

from mxdp.backend import NDArray, mx
from mxdp.collectives.shards import Part, ShardedSync
from mxdp.gluon.bucketed import BucketedGradients
from mxdp.gluon.states import State, leaves, mapped
from mxdp.gluon.updater import OwnedPiece, Updater

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


class Shards:
    """The pieces of all parameters that this process's devices update. Their states are the ``updater``'s.

    Args:
        buckets: of sharded gradients.
        params: the trainer's: their numbers are the optimiser's.
    """

    def __init__(self, buckets: BucketedGradients, params: Sequence[Any], updater: Updater) -> None:
        self._updater, first = updater, {id(param): number for number, param in reversed(list(enumerate(params)))}
        self._syncs = [
            (sync, members, [first[id(param)] for param in members])
            for members, sync in buckets.syncs
            if isinstance(sync, ShardedSync)
        ]
        self._parts: Dict[int, List[Part]] = {number: [] for *_, numbers in self._syncs for number in numbers}
        for sync, _, numbers in self._syncs:
            for part in (part for parts in sync.parts for part in parts):
                self._parts[numbers[part.number]].append(part)

    def take(self, states: Dict[int, State]) -> None:
        """Cut these whole states, which leave the dict. Those of frozen parameters stay there."""
        for number in self._parts.keys() & states.keys():
            state = states.pop(number)
            for part in self._parts[number]:
                key = _key(number, part)
                self._updater.states[key] = mapped(state, partial(_cut, part))
                self._updater.states_synced[key] = False

    def pieces(self, numbers: Iterable[int]) -> Dict[int, List[OwnedPiece]]:
        """Those of the parameters with these numbers that this process updates. It may have none of a parameter."""
        return {
            number: [OwnedPiece(_key(number, part), number, part.weight, part.gradient) for part in self._parts[number]]
            for number in numbers
        }

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy the updated pieces, and all others, to all devices and ranks; doesn't wait."""
        for sync, *_ in self._syncs:
            sync.spread()

    def whole(self) -> Dict[int, State]:
        """The states of all cut parameters as a trainer without shards has them, on the host. Waits; all ranks call
        it."""
        states: Dict[int, State] = {}
        for sync, members, numbers in self._syncs:
            held = [
                [leaves(self._updater.states.get(_key(numbers[part.number], part))) for part in parts]
                for parts in sync.parts
            ]
            for member, arrays in sync.whole(held).items():
                if arrays:
                    example = mx.nd.zeros((1,), dtype=members[member].dtype)
                    classic = iter([mx.nd.array(x, ctx=mx.cpu(), dtype=x.dtype) for x in arrays])
                    state = self._updater.optimizer.create_state_multi_precision(numbers[member], example)
                    states[numbers[member]] = mapped(state, partial(_next, classic))
        return states


def _next(arrays: Iterator[NDArray], _: NDArray) -> NDArray:
    return next(arrays)


def _key(number: int, part: Part) -> Tuple[int, int]:
    return number, part.where.start


def _cut(part: Part, x: Any) -> Any:
    return x.as_nd_ndarray().reshape((-1,))[part.where].reshape(part.weight.shape).copyto(part.weight.ctx)
