"""One updater for all devices: MXNet's optimisers with one state and one count of updates for each parameter.

gluon's default updates a parameter once, on its store, and copies the result to all devices. Here one device updates a
parameter, or a part of it, with the summed gradient::

    device 0    sums of a's and b's gradients    update a    copy a to device 1
    device 1    sums of a's and b's gradients    update b    copy b to device 0
"""

from __future__ import annotations

from itertools import chain
from typing import Any, Callable, Dict, Iterator, List, Mapping, Sequence, Tuple

import numpy as onp

from mxdp.backend import NDArray, mx
from mxdp.collectives.sync import Part
from mxdp.engine import Call
from mxdp.training.update import sgd_calls

State = Any
"""What an optimiser holds for a parameter: None, an array, or a tuple or list of states."""
ELEMENTWISE = (
    "SGD",
    "NAG",
    "Signum",
    "Adam",
    "Adamax",
    "AdaGrad",
    "AdaDelta",
    "RMSProp",
    "Ftrl",
    "FTML",
    "DCASGD",
)
"""MXNet's optimisers that update each element by itself, so a part of a parameter as the whole."""
MASTER_LAST = (mx.optimizer.SGD, mx.optimizer.NAG, mx.optimizer.LARS, mx.optimizer.LBSGD)
"""MXNet's optimisers whose state for weights in half precision ends with the copy in full precision, not begins."""


class Updater(mx.optimizer.Updater):  # type: ignore[misc]
    """Updates parameters or parts of them, each once for all devices, to the bits of gluon's default trainer. (MXNet's
    own updater counts the updates of each device: one that joins later counts from 0.)"""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.restart(optimizer, {})

    def restart(self, optimizer: Any, saved: Dict[int, State]) -> None:
        """Go on with these states of whole parameters, on any devices, each in ``saved`` until its parameter is
        updated. A parameter's count is the largest of all devices'."""
        counts: Dict[int, int] = {}
        for of_device in optimizer._all_index_update_counts.values():
            for number, count in of_device.items():
                counts[number] = max(count, counts.get(number, 0))
        optimizer._all_index_update_counts = {0: counts}
        self.optimizer = optimizer
        self.saved = saved
        self.states: Dict[Any, State] = {}
        """The states by their parts' keys."""
        self._weights: Dict[Any, NDArray] = {}
        self._prepared_for: Any = None
        self._calls: List[Call] = []

    def made_for(self, number: int, weight: NDArray) -> State:
        """A state for a weight that has not been updated yet."""
        return self.optimizer.create_state_multi_precision(number, weight)

    @property
    def repeatable(self) -> bool:
        """True for an optimiser that is known to do the same on each rank. SGLD and the user's may draw numbers."""
        kind = type(self.optimizer)
        return kind.__module__.startswith("mxnet.optimizer") and kind is not mx.optimizer.SGLD

    def __call__(self, parts: Mapping[int, Sequence[Part]], alone: bool = False) -> None:
        """Update these parts of parameters, in their order; doesn't wait. A parameter without parts is only counted.

        ``alone``: a single device trains. Then gluon gives MXNet several parameters at a time, else one; with a
        schedule, and parameters that were updated unequally often, this decides their rates. Raises a ValueError if SGD
        got a momentum after it had made its states without one.
        """
        optimizer = self.optimizer
        optimizer._set_current_context(0)  # one count, whatever the device
        for number, of_param in parts.items():
            for part in of_param:
                self._make_state(part)
            self.saved.pop(number, None)
        by_sgd: List[Tuple[Part, float, float]] = []
        for numbers in self._at_a_time(parts, alone):
            of_numbers = [parts[number] for number in numbers]
            if all(map(self._is_plain_sgd, chain(*of_numbers))):
                optimizer._update_count(numbers)
                lrs = optimizer._get_lrs(numbers)
                wds = optimizer._get_wds(numbers)
                for of_param, lr, wd in zip(of_numbers, lrs, wds):
                    by_sgd += [(part, lr, wd) for part in of_param]
            else:
                self._by_mxnet(numbers, of_numbers)
        if by_sgd:
            self._by_sgd(by_sgd)

    def _make_state(self, part: Part) -> None:
        key = part.key
        optimizer = self.optimizer
        if self._weights.get(key) is not part.weight:  # it is new, or the parameter has moved
            state = self.made_for(part.number, part.weight)
            if key in self.states:
                state = _continued(self._cut(part, self.states[key]), state)
            elif part.number in self.saved:
                state = _continued(self._cut(part, self.saved[part.number]), state)
            self.states[key] = state
            self._weights[key] = part.weight
        is_sgd = type(optimizer) is mx.optimizer.SGD
        if is_sgd and optimizer.momentum > 0 and self.states[key] is None:
            raise ValueError(
                f"SGD has a momentum of {optimizer.momentum} now and had none before: make a new trainer for it"
            )
        if optimizer.multi_precision and part.weight.dtype == onp.float16:
            self._follow(part)

    def _follow(self, part: Part) -> None:
        """Where the user has set a weight in half precision, its copy in full precision becomes equal to it."""
        state = self.states[part.key]
        master = state[1] if isinstance(self.optimizer, MASTER_LAST) else state[0]
        unchanged = master.astype("float16") == part.weight
        mx.nd.where(unchanged, master, part.weight.astype("float32"), out=master)

    def _cut(self, part: Part, state: State) -> State:
        """The part's piece of a parameter's state, on the part's device."""
        shape = part.weight.shape
        device = part.weight.ctx
        if part.where == slice(None):
            return self.sync_state_context(state, device)

        def cut(array: NDArray) -> NDArray:
            vector = array.as_nd_ndarray().reshape((-1,))
            return vector[part.where].reshape(shape).copyto(device)

        return mapped(state, cut)

    def _at_a_time(self, parts: Mapping[int, Sequence[Part]], alone: bool) -> Iterator[List[int]]:
        """The parameters' numbers in lists: MXNet counts the updates of a whole list, then chooses its rates."""
        most = self.optimizer.aggregate_num if alone else 0
        if most <= 0:
            for number in parts:
                yield [number]
            return
        of_dtype: Dict[Any, List[int]] = {}
        for number, of_param in parts.items():
            of_dtype.setdefault(of_param[0].weight.dtype, []).append(number)
        for numbers in of_dtype.values():
            for start in range(0, len(numbers), most):
                yield numbers[start : start + most]

    def _is_plain_sgd(self, part: Part) -> bool:
        sgd = self.optimizer
        weight = part.weight
        has_master = sgd.multi_precision and weight.dtype == onp.float16
        dense = weight.stype == part.gradient.stype == "default"
        return dense and not has_master and type(sgd) is mx.optimizer.SGD

    def _by_mxnet(self, numbers: Sequence[int], parts: Sequence[Sequence[Part]]) -> None:
        """Update by the optimiser itself. It counts each call: before a parameter's next part the count goes back."""
        optimizer = self.optimizer
        counts = optimizer._index_update_count
        before = {number: counts.get(number, optimizer.begin_num_update) for number in numbers}
        most = optimizer.num_update
        if not parts[0]:
            optimizer._update_count(numbers)
        for together in zip(*parts):
            counts.update(before)
            optimizer.num_update = most
            rows = []
            for part in together:
                rows.append((part.number, part.weight, part.gradient, self.states[part.key]))
            if optimizer.aggregate_num > 0:
                optimizer.update_multi_precision(*zip(*rows))
            else:
                optimizer.update_multi_precision(*rows[0])

    def _by_sgd(self, updates: Sequence[Tuple[Part, float, float]]) -> None:
        """Update by MXNet's operators for SGD, prepared anew where arrays or numbers are others than before."""
        sgd = self.optimizer
        options = {"rescale_grad": sgd.rescale_grad}
        if sgd.momentum > 0:
            options["momentum"] = sgd.momentum
        if sgd.clip_gradient:
            options["clip_gradient"] = sgd.clip_gradient
        rows = []
        key: List[Any] = [options]
        for part, lr, wd in updates:
            arrays = [part.weight, part.gradient]
            if sgd.momentum > 0:
                arrays.append(self.states[part.key])
            rows.append((arrays, lr, wd))
            key.append((*map(id, arrays), lr, wd))
        if key != self._prepared_for:
            self._prepared_for = key
            self._calls = sgd_calls(rows, **options)  # they keep the arrays, so the ids stay theirs
        for call in self._calls:
            call()


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


def leaves(state: State) -> List[NDArray]:
    """The arrays of a state."""
    arrays: List[NDArray] = []
    mapped(state, arrays.append)
    return arrays


def mapped(state: State, change: Callable[[Any], Any]) -> State:
    """The same structure, with each array changed."""
    if isinstance(state, (tuple, list)):
        return type(state)(mapped(part, change) for part in state)
    return change(state) if isinstance(state, mx.nd.NDArray) else state


def _continued(state: State, made: State) -> State:
    """A state in the dtypes of the one that was ``made`` for the parameter as it is now, after a cast perhaps."""
    arrays = leaves(state)
    dtypes = [array.dtype for array in leaves(made)]
    if not arrays and not isinstance(made, mx.nd.NDArray):
        return made  # at most a copy of the weight in full precision
    if len(arrays) != len(dtypes):
        raise ValueError(
            "after a cast to or from half precision with multi_precision the optimiser's state is another: make a new "
            "trainer"
        )
    left = iter(dtypes)
    return mapped(state, lambda x: x.astype(next(left), copy=False))
