"""mxdp's all-reduces with the interface of an MXNet key-value store.

In MXNet a store looks like a server: values are pushed to a key and pulled from it. Here is no server. The devices sum
the pushed arrays by an all-reduce, and a key only identifies arrays that were prepared before.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from functools import partialmethod
from typing import Any, Hashable, List, NamedTuple, NoReturn, Optional, Sequence, Tuple

import numpy as onp

from mxdp import process
from mxdp.backend import Device, NDArray, autograd, gluon, mx
from mxdp.collectives.allreduce import prepare_allreduce
from mxdp.collectives.primitives import spread
from mxdp.collectives.tuning import maker, usual_machine
from mxdp.engine import Call, prepare
from mxdp.gluon.record import settings
from mxdp.plans.collective.algorithms import ALGORITHMS, AUTO, check_algorithm
from mxdp.plans.cost.machine import Machine
from mxdp.plugin import MPI_STORE, store_name
from mxdp.processes import World, agree_names
from mxdp.processes import world as find_world
from mxdp.processes.world import ranks_of

MOST_KEYS = 4096
"""The store remembers this many keys, far more than a network has parameters, and drops the least recently used."""


class PreparedKey(NamedTuple):
    """The calls that sum the arrays under a key, which it keeps, so that no others get their ``ids``."""

    ids: List[Optional[int]]
    arrays: List[NDArray]
    calls: List[Call]


class Store(mx.kv.KVStoreBase):  # type: ignore[misc]
    """A store for ``gluon.Trainer`` that sums by one of mxdp's all-reduces.

    ``gluon.Trainer(..., kvstore="mxdpring")`` makes one by name; ``kvstore=Store("ring")`` is the same. Make one for
    each trainer, since a key keeps only what was prepared for the last arrays. It sums dense gradients, classic or
    NumPy arrays, and runs no optimiser: unsupported methods raise a NotImplementedError. Only :meth:`pushpull` may
    wait, and with several ranks the constructor and :meth:`broadcast`.

    Args:
        algorithm: a name in ``ALGORITHMS``, or ``"auto"``: for each key the one with the least predicted time.
        machine: speeds for ``"auto"``, as :func:`mxdp.calibrate` measures them.
        world: the ranks to sum over, too (:func:`mxdp.world`). With several the store's name is ``mxdpmpi``, every rank
            calls it alike, and ``step(batch_size)`` takes the whole batch over all ranks. Give ``gluon.Trainer`` the
            store itself: for a name, and one device in each process, MXNet makes no store.

    Raises a ValueError if there is no such algorithm.
    """

    def __init__(
        self,
        algorithm: str = AUTO,
        machine: Optional[Machine] = None,
        world: Optional[World] = None,
    ) -> None:
        check_algorithm(algorithm, also=[AUTO])
        self.world = ranks_of(world)
        self.algorithm = algorithm
        self.of_mxdp = False
        """Whether an mxdp.Trainer uses it, which runs any optimiser, and compares its ranks itself."""
        self.world.seed()  # dropout draws other masks on each rank
        self._names: List[str] = []
        # Rank 0's for all: ranks with other processors would choose other algorithms.
        mine = machine, (process.cores(), maker())
        self._machine, self.processor = self.world.gather(mine)[0]
        self._ready: OrderedDict[Hashable, PreparedKey] = OrderedDict()

    def machine(self, device: Device) -> Machine:
        """The speeds by which ``"auto"`` chooses for devices of this kind."""
        return self._machine or usual_machine(device.device_type.startswith("cpu"), *self.processor)

    def choose_for(self, cores: int, made_by: str) -> None:
        """From now on, ``"auto"`` chooses as on a processor with ``cores`` by that maker, for known arrays, too."""
        self.processor = cores, made_by
        self._ready.clear()

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Copy ``value``, with several ranks rank 0's, into ``out``: an array, or a list of arrays on any devices that
        may contain ``value``. Waits for the ranks. With a list of keys, ``value`` and ``out`` have an item for each. A
        single ``key``, an int or str, has no effect, nor has ``priority``, which MXNet ignores on CPU devices. Raises a
        ValueError for different shapes or dtypes, sparse arrays, or lists of different lengths."""
        if isinstance(key, (list, tuple)):
            for arguments in _by_key(key, value, out):
                self.broadcast(*arguments)
            return
        if not self.of_mxdp:
            # gluon gives a store numbers, not names, and doesn't tell it which Trainer calls.
            self._check_caller(sys._getframe(1).f_locals.get("self"))
        values = _several(value)
        if len(values) != 1:
            raise ValueError(
                f"broadcast needs one array to copy from for each key, not {len(values)}"
            )
        arrays = _distinct([*values, *_several(out)])
        _check_dense(arrays)
        with autograd.pause():
            spread(arrays)
            if self.world.size > 1:
                self._agree(key, arrays[0])
                outs = _distinct(_several(out))
                self.world.broadcast(outs[:1])
                spread(outs)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum ``value``, the arrays of all devices, into every array of ``out``; without ``out``, into ``value``.

        ``value`` and ``out`` are an array or a list of arrays. ``out`` may lie on more or on other devices; with
        ``out``, the arrays of ``value`` stay unchanged. The prepared calls are kept under ``key``, an int or str, for
        the next call with the same array objects (``w.grad`` is another object each time). A list of keys, and
        ``priority``: as for :meth:`broadcast`; the same arrays under several keys are summed once, as by MXNet.

        It waits for the other ranks in the first call with a key, and for arrays of 2 MiB and more that are new under
        the key and summed in shared memory. Raises as :meth:`broadcast`, and an MxdpError on every rank if the ranks
        have other shapes or dtypes under a new key.
        """
        if isinstance(key, (list, tuple)):
            done = set()
            targets = [None] * len(key) if out is None else out
            for single, values, outs in _by_key(key, value, targets):
                arrays = tuple(map(id, _several(values)))
                if outs is not None or arrays not in done:
                    self.pushpull(single, values, outs)
                if outs is None:
                    done.add(arrays)
            return
        values = _several(value)
        outs = _several(out)
        kept = self._ready.get(key)
        if kept is None and self.world.size > 1:
            _check_dense([*values, *outs])
            self._agree(key, values[0])
        ids = [*map(id, values), None, *map(id, outs)]
        if kept is None or kept.ids != ids:
            calls = self._prepare(values, outs)
            kept = self._ready[key] = PreparedKey(ids, [*values, *outs], calls)
            if len(self._ready) > MOST_KEYS:
                self._ready.popitem(last=False)
        self._ready.move_to_end(key)
        with autograd.pause():
            for call in kept.calls:
                call()
            if self.world.size > 1:
                summed = _distinct(outs or values)
                self.world.sum(summed[:1])
                spread(summed)

    @staticmethod
    def is_capable(capability: str) -> bool:
        """False for the ``"optimizer"``, which runs outside the store; a ValueError for what MXNet never asks for."""
        if capability.lower() == mx.kv.KVStoreBase.OPTIMIZER:
            return False
        raise ValueError(
            f"the only capability that MXNet asks a store for is 'optimizer', not {capability!r}"
        )

    @property
    def type(self) -> str:
        """The name by which MXNet makes such a store, such as ``"mxdpring"``."""
        return MPI_STORE if self.world.size > 1 else store_name(self.algorithm)

    @property
    def rank(self) -> int:
        """This process's number."""
        return self.world.rank

    @property
    def num_workers(self) -> int:
        """The number of processes."""
        return self.world.size

    def _refuse(self, what: str, instead: str, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise a NotImplementedError with an alternative, for a method that needs a server."""
        raise NotImplementedError(f"the store {self.type} {what}: {instead}.")

    set_optimizer = partialmethod(_refuse, "runs no optimiser", "leave update_on_kvstore out")
    save_optimizer_states = partialmethod(
        _refuse, "runs no optimiser", "save the states by the trainer's save_states"
    )
    load_optimizer_states = partialmethod(
        _refuse, "runs no optimiser", "load the states by the trainer's load_states"
    )
    set_gradient_compression = partialmethod(
        _refuse,
        "compresses no gradients",
        "leave compression_params out, or use MXNet's 'device' store",
    )
    init = partialmethod(_refuse, "keeps no values", "use broadcast")
    push = partialmethod(_refuse, "keeps no values to push to", "use pushpull")
    pull = partialmethod(_refuse, "keeps no values to pull", "use pushpull or broadcast")
    row_sparse_pull = partialmethod(
        _refuse, "holds dense arrays only", "use MXNet's 'device' store for sparse ones"
    )

    def _prepare(self, values: Sequence[NDArray], outs: Sequence[NDArray]) -> List[Call]:
        """The calls that sum ``values`` into ``outs``, without more arrays if possible."""
        given = [*values, *outs]
        _check_dense(given)
        targets = outs or values
        places = [x.ctx for x in values]
        distinct = len(_distinct(given)) == len(given)
        if distinct and [x.ctx for x in targets] == places:
            copies = [prepare("_copyto", [x], y) for x, y in zip(values, outs)]
            return [*copies, *self._all_reduce(targets)]
        work = [mx.nd.empty(x.shape, x.ctx, x.dtype) for x in values]
        calls = [prepare("_copyto", [x], y) for x, y in zip(values, work)]
        calls += self._all_reduce(work)
        nearest = dict(zip(reversed(places), reversed(work)))
        for target in _distinct(targets):
            calls.append(prepare("_copyto", [nearest.get(target.ctx, work[0])], target))
        return calls

    def _all_reduce(self, arrays: Sequence[NDArray]) -> List[Call]:
        machine = self.machine(arrays[0].ctx)
        _, calls = prepare_allreduce(arrays, self.algorithm, "sum", machine, again=True)
        return calls

    def _check_caller(self, trainer: Any) -> None:
        """Check, if it is a gluon Trainer, that its devices and its ranks will stay equal."""
        if not isinstance(trainer, gluon.Trainer):
            return
        _check_optimiser(self.type, trainer)
        names = [param.name for param in trainer._params]
        if self.world.size > 1 and names != self._names:
            agree_names(self.world, names)
            self.world.agree(settings(trainer._optimizer))
            self._names = names

    def _agree(self, key: Hashable, array: NDArray) -> None:
        self.world.agree({f"under key {key!r}": f"{onp.dtype(array.dtype)} {array.shape}"})


def by_name(name: str, world: Optional[World] = None) -> Optional[Store]:
    """The store of mxdp with this name in MXNet's registry; None if it is none of mxdp's."""
    if name == MPI_STORE:
        return Store(world=world or find_world())
    ours = {store_name(algorithm): algorithm for algorithm in (*ALGORITHMS, AUTO)}
    return Store(ours[name], world=world) if name in ours else None


def _several(arrays: Any) -> Sequence[NDArray]:
    if isinstance(arrays, (list, tuple)):
        return arrays
    return [] if arrays is None else [arrays]


def _by_key(
    keys: Sequence[Any],
    values: Any,
    outs: Any,
) -> List[Tuple[Any, Any, Any]]:
    values = _several(values)
    outs = _several(outs)
    if not len(keys) == len(values) == len(outs):
        raise ValueError(
            f"a list of {len(keys)} keys needs as many values and outs, not {len(values)} and {len(outs)}"
        )
    return list(zip(keys, values, outs))


def _distinct(arrays: Sequence[NDArray]) -> List[NDArray]:
    return list({id(array): array for array in arrays}.values())


def _check_optimiser(store: str, trainer: Any) -> None:
    """Raise a ValueError if gluon's own Trainer would run an optimiser apart that devices must share."""
    optimizer = trainer._optimizer
    name = type(optimizer).__name__
    apart = len(trainer._contexts) > 1 or store == MPI_STORE
    # LARS corrects its momentum in the first update after the rate has changed, which is one device's.
    corrects = name == "LARS" and optimizer.momentum > 0 and optimizer.momentum_correction
    if apart and (name in ("Nadam", "LBSGD", "SGLD") or corrects):
        raise ValueError(
            f"with the store {store} gluon's Trainer runs {name} on each device apart, and the devices would get other "
            "parameters: use mxdp.Trainer, or kvstore='device'"
        )


def _check_dense(arrays: Sequence[NDArray]) -> None:
    """Raise a ValueError unless there is an array, and all are dense MXNet arrays of one shape and dtype."""
    if not arrays:
        raise ValueError("a store needs at least one array, and the list is empty")
    for array in arrays:
        if not isinstance(array, mx.nd.NDArray):
            raise ValueError(
                f"a store takes MXNet's arrays, or lists of them, not {type(array).__name__}"
            )
        if array.stype != "default":
            raise ValueError(
                f"mxdp's stores sum dense arrays, and this one is {array.stype}: use MXNet's 'device' store, or dense "
                "gradients (sparse_grad=False)"
            )
    kinds = [(tuple(array.shape), str(onp.dtype(array.dtype))) for array in arrays]
    for kind in kinds:
        if kind != kinds[0]:
            raise ValueError(
                f"values and outs of one key need one shape and dtype, not {kinds[0]} and {kind}"
            )
