"""One updater for all devices: MXNet's optimisers with one state and one count of updates for each parameter.

gluon's default updates a parameter once, on its store, and copies the result to all devices. Here one device updates a
parameter, or a part of it, with the summed gradient::

    device 0    sums of a's and b's gradients    update a    copy a to device 1
    device 1    sums of a's and b's gradients    update b    copy b to device 0
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, Hashable, Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.engine import Call, prepare
from mxdp.plans.collective.one_hop import owners
from mxdp.training.update import updates_alone

TOGETHER = 16
"""Small arrays that one operator updates. MXNet's has room for 60, and does not check."""


class OwnedPiece(NamedTuple):
    """A parameter's number, and classic arrays of the parameter or a part of it, and of its summed gradient. ``key``:
    of its state, which is the parameter's number if it is whole."""

    key: Hashable
    number: int
    weight: NDArray
    gradient: NDArray


class Updater(mx.optimizer.Updater):  # type: ignore[misc]
    """Updates pieces of parameters, each once for all devices, to the bits of gluon's default trainer.

    MXNet's own updater counts the updates on each device apart: a device that joins later counts from 0.
    """

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.restart(optimizer, {})

    def restart(self, optimizer: Any, states: Dict[Any, Any]) -> None:
        """Go on with these states, on whatever devices they lie. A parameter's count is the largest of all devices'."""
        counts: Dict[int, int] = {}
        for number, count in (item for its in optimizer._all_index_update_counts.values() for item in its.items()):
            counts[number] = max(count, counts.get(number, 0))
        optimizer._all_index_update_counts = {0: counts}
        self.optimizer, self.states, self.states_synced = optimizer, states, dict.fromkeys(states, False)

    @property
    def repeatable(self) -> bool:
        """True for an optimiser that is known to do the same on each rank. SGLD and the user's may draw numbers."""
        kind = type(self.optimizer)
        return kind.__module__.startswith("mxnet.optimizer") and kind is not mx.optimizer.SGLD

    def __call__(self, pieces: Mapping[int, Sequence[OwnedPiece]], alone: bool = False) -> None:
        """Update these parameters, in their order; doesn't wait. A parameter without pieces is only counted.

        ``alone``: a single device trains. Then gluon gives MXNet several parameters at a time, else one; with a
        schedule, and parameters that were updated unequally often, this decides their rates.

        Raises:
            ValueError: SGD got a momentum after it had made its states without one.
        """
        optimizer = self.optimizer
        optimizer._set_current_context(0)  # one count, whatever the device
        for piece in (piece for its in pieces.values() for piece in its):
            self._make_state(piece)
        by_sgd: List[Tuple[OwnedPiece, float, float]] = []
        for numbers in self._at_a_time(pieces, alone):
            if all(map(self._is_plain_sgd, (piece for number in numbers for piece in pieces[number]))):
                optimizer._update_count(numbers)
                rates = zip(numbers, optimizer._get_lrs(numbers), optimizer._get_wds(numbers))
                by_sgd += [(piece, lr, wd) for number, lr, wd in rates for piece in pieces[number]]
            else:
                self._by_mxnet(numbers, [pieces[number] for number in numbers])
        if by_sgd:
            self._by_sgd(by_sgd)

    def _make_state(self, piece: OwnedPiece) -> None:
        key, optimizer = piece.key, self.optimizer
        if key not in self.states:
            self.states[key] = optimizer.create_state_multi_precision(piece.number, piece.weight)
        elif self.states_synced[key] is not piece.weight:  # it is new, or the parameter has moved
            self.states[key] = self.sync_state_context(self.states[key], piece.weight.ctx)
        self.states_synced[key] = piece.weight
        if self.states[key] is None and type(optimizer) is mx.optimizer.SGD and optimizer.momentum > 0:
            raise ValueError(
                f"SGD has a momentum of {optimizer.momentum} now and had none before: make a new trainer for it"
            )

    def _at_a_time(self, pieces: Mapping[int, Sequence[OwnedPiece]], alone: bool) -> Iterator[List[int]]:
        """The numbers of the parameters, as many in a list as are counted before MXNet chooses their rates."""
        most = self.optimizer.aggregate_num if alone else 0
        kinds: Dict[Any, List[int]] = {}
        for number in pieces:
            kinds.setdefault(pieces[number][0].weight.dtype if most else number, []).append(number)
        for numbers in kinds.values():
            yield from (numbers[start : start + max(1, most)] for start in range(0, len(numbers), max(1, most)))

    def _is_plain_sgd(self, piece: OwnedPiece) -> bool:
        sgd, weight = self.optimizer, piece.weight
        copied = type(sgd) is mx.optimizer.SGD and sgd.multi_precision and weight.dtype == onp.float16
        return type(sgd) is mx.optimizer.SGD and not copied and weight.stype == piece.gradient.stype == "default"

    def _by_mxnet(self, numbers: Sequence[int], pieces: Sequence[Sequence[OwnedPiece]]) -> None:
        """Update by the optimiser itself. It counts each call: before a parameter's next piece the count goes back."""
        optimizer, counts = self.optimizer, self.optimizer._index_update_count
        before = {number: counts.get(number, optimizer.begin_num_update) for number in numbers}
        most = optimizer.num_update
        if not pieces[0]:
            optimizer._update_count(numbers)
        for together in zip(*pieces):
            counts.update(before)
            optimizer.num_update = most
            _, _, weights, gradients = zip(*together)
            states = [self.states[piece.key] for piece in together]
            if optimizer.aggregate_num > 0:
                optimizer.update_multi_precision(tuple(numbers), weights, gradients, states)
            else:
                optimizer.update_multi_precision(numbers[0], weights[0], gradients[0], states[0])

    def _by_sgd(self, updates: Sequence[Tuple[OwnedPiece, float, float]]) -> None:
        """Update by MXNet's operators for SGD: a large array by a call of its own, small ones together."""
        sgd, by_momentum = self.optimizer, self.optimizer.momentum > 0
        options = {"momentum": sgd.momentum} if by_momentum else {}
        options.update({"clip_gradient": sgd.clip_gradient} if sgd.clip_gradient else {}, rescale_grad=sgd.rescale_grad)
        groups: Dict[Any, List[Tuple[List[NDArray], float, float]]] = {}
        for piece, lr, wd in updates:
            weight, large = piece.weight, updates_alone(piece.weight)
            arrays = [weight, piece.gradient, *([self.states[piece.key]] if by_momentum else [])]
            # With weight decay and without momentum, sgd_update rounds otherwise than gluon's SGD does.
            if large and weight.dtype == onp.float32 and (by_momentum or not wd):
                update = mx.nd.sgd_mom_update if by_momentum else mx.nd.sgd_update
                update(*arrays, out=weight, lr=lr, wd=wd, **options)
            else:
                kind = piece.key if large else (str(weight.ctx), str(weight.dtype))
                groups.setdefault(kind, []).append((arrays, lr, wd))
        update = mx.nd.multi_sgd_mom_update if by_momentum else mx.nd.multi_sgd_update
        for group in groups.values():
            for start in range(0, len(group), TOGETHER):
                rows, lrs, wds = zip(*group[start : start + TOGETHER])
                weights = [weight for weight, *_ in rows]
                update(*chain(*rows), out=weights, num_weights=len(weights), lrs=lrs, wds=wds, **options)


class WholeParameters:
    """Each parameter as one piece, on the device that updates it and copies it to the others.

    Args:
        params: the trainer's. They may get other devices or arrays at any time.
    """

    def __init__(self, params: Sequence[Any]) -> None:
        self._params = params
        self._ready: Dict[int, Tuple[Any, Any, OwnedPiece, List[Call]]] = {}

    def pieces(self, numbers: Iterable[int]) -> Dict[int, List[OwnedPiece]]:
        """By number of the parameter; doesn't wait."""
        return {number: [self._prepared(number)[2]] for number in numbers}

    def spread(self, numbers: Iterable[int]) -> None:
        """Copy the updated parameters to the other devices; doesn't wait."""
        for copy in (copy for number in numbers for copy in self._prepared(number)[3]):
            copy()

    def _prepared(self, number: int) -> Tuple[Any, Any, OwnedPiece, List[Call]]:
        data, grads = self._params[number]._data, self._params[number]._grad
        ready = self._ready.get(number)
        if ready is None or ready[0] is not data or ready[1] is not grads:
            device = owners(len(data), [param._data[0].size for param in self._params])[number]
            arrays = [x.as_nd_ndarray() if x.stype == "default" else x for x in (data[device], grads[device])]
            piece = OwnedPiece(number, number, *arrays)
            copies = [prepare("_copyto", [piece.weight], x) for x in data if x is not data[device]]
            ready = self._ready[number] = data, grads, piece, copies
        return ready
