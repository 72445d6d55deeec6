"""The optimiser's state in shards: each device holds, and updates, its parts of the parameters."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

from mxdp.backend import mx
from mxdp.collectives.shards import Part, ShardedSync
from mxdp.gluon.bucketed import BucketedGradients
from mxdp.gluon.updater import Updater
from mxdp.processes import World

ELEMENTWISE = ("SGD", "NAG", "Signum", "Adam", "Adamax", "AdaGrad", "AdaDelta", "RMSProp", "Ftrl", "FTML", "DCASGD")
"""MXNet's optimisers that update each element by itself, so a part of a parameter as the whole."""

State = Any
"""What an optimiser holds for a parameter: None, an array, or a tuple or list of states."""


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


class Shard(Updater):
    """The updater of one device, for its ``parts`` of the parameters with their numbers."""

    parts: List[Tuple[int, Part]]

    def __call__(self, index: Sequence[int], grad: Any, weight: Any) -> None:
        """Update the parts of the parameters ``index``, whatever arrays the trainer gives."""
        wanted = set(index)
        todo = [(number, part.gradient, part.weight) for number, part in self.parts if number in wanted]
        if todo:
            super().__call__(*zip(*todo))


class ShardedStates:
    """The states of all parameters, each device's parts in its :class:`Shard`.

    Args:
        buckets: of sharded gradients.
        params: the trainer's: their numbers are the optimiser's.
        shards: one for each device, all with the same optimiser. They get their parts.
        states: whole, of some parameters or of none.
    """

    def __init__(
        self,
        buckets: BucketedGradients,
        params: Sequence[Any],
        shards: Sequence[Shard],
        world: World,
        states: Mapping[int, State],
    ) -> None:
        self._shards, self._world = shards, world
        numbers = {id(param): number for number, param in reversed(list(enumerate(params)))}
        self._syncs = [
            (sync, members, [numbers[id(param)] for param in members])
            for members, sync in buckets.syncs
            if isinstance(sync, ShardedSync)
        ]
        self._device_ids = [device.device_id for device in params[0].list_ctx()]
        for device, shard in enumerate(shards):
            shard.parts = [
                (numbers[part.number], part) for sync, _, numbers in self._syncs for part in sync.parts[device]
            ]
        self.take(states)

    def spread(self) -> None:
        """Copy each updated part to all devices and ranks; doesn't wait."""
        for sync, *_ in self._syncs:
            sync.spread()

    def whole(self) -> Dict[int, State]:
        """All states as one device of a trainer without shards holds them, on the host. Waits; all ranks call it."""
        states: Dict[int, State] = {}
        for sync, members, numbers in self._syncs:
            held = [
                [_leaves(shard.states.get(numbers[part.number])) for part in parts]
                for shard, parts in zip(self._shards, sync.parts)
            ]
            for member, arrays in sync.whole(held).items():
                if arrays:
                    example = mx.nd.zeros((1,), dtype=members[member].dtype)
                    classic = [mx.nd.array(x, ctx=mx.cpu(), dtype=x.dtype) for x in arrays]
                    state = self._shards[0].optimizer.create_state_multi_precision(numbers[member], example)
                    states[numbers[member]] = _mapped(state, partial(_next, iter(classic)))
        self._share_counts()
        return states

    def take(self, states: Mapping[int, State]) -> None:
        """Give each device its parts of whole states. All ranks call it."""
        for shard in self._shards:
            shard.states = {
                number: _mapped(states[number], partial(_cut, part)) for number, part in shard.parts if number in states
            }
            shard.states_synced = dict.fromkeys(shard.states, True)
        self._share_counts()

    def _share_counts(self) -> None:
        """Give each device all parameters' counts of updates: it has counted its parts alone, and may get others."""
        optimizer = self._shards[0].optimizer
        most: Dict[int, int] = {}
        for counts in self._world.gather(list(optimizer._all_index_update_counts.values())):
            for number, count in (item for each in counts for item in each.items()):
                most[number] = max(count, most.get(number, 0))
        for device in {*optimizer._all_index_update_counts, *self._device_ids}:
            optimizer._all_index_update_counts[device] = dict(most)
        optimizer._set_current_context(self._device_ids[0])


def _cut(part: Part, x: Any) -> Any:
    return x.as_nd_ndarray().reshape((-1,))[part.where].reshape(part.weight.shape).copyto(part.weight.ctx)


def _mapped(state: State, change: Callable[[Any], Any]) -> State:
    """The same structure, with each array changed."""
    if isinstance(state, (tuple, list)):
        return type(state)(_mapped(each, change) for each in state)
    return None if state is None else change(state)


def _next(arrays: Iterator[Any], _: Any) -> Any:
    return next(arrays)


def _leaves(state: State) -> List[Any]:
    found: List[Any] = []
    _mapped(state, found.append)
    return found
