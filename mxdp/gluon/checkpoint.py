"""Checkpoints of a gluon training: the network, its Trainer, and where the training stood."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List, Mapping, Optional, Union

import numpy as onp

from mxdp.backend import HostArray, mx, npx
from mxdp.errors import MxdpError, plural
from mxdp.gluon.record import settings, unique_names
from mxdp.gluon.states import from_bytes, to_bytes
from mxdp.gluon.store import Store
from mxdp.gluon.trainer import Trainer
from mxdp.processes import World
from mxdp.processes.checkpoint import CheckpointFolder, Report
from mxdp.processes.checkpoint_file import Arrays, Facts, match, plain

STATES = "optimizer"
CHANGING = (
    "rescale_grad",
    "num_update",
    "begin_num_update",
    "aggregate_num",
    "m_schedule",
    "base_lr",
    "count",
)
"""What an optimiser or its scheduler changes while it trains, and is no setting."""
PROCESSOR = "cores for which auto chose the all-reduces"
"""And who made them, which older checkpoints don't say; then auto chose as on an AMD EPYC."""


class Checkpoint(CheckpointFolder):
    """A folder with the last ``keep`` checkpoints of one gluon training. Every rank makes it and calls it alike.

    From the first :meth:`save`, or :meth:`load` with a Trainer, until this object is gone, other processes can only
    read: ``load(net)``. With ``"auto"``, a training that continues on as many devices sums as before on any processor.
    (A Store with a ``machine`` of your own needs the same one.)

    Args, errors: as for :class:`CheckpointFolder`. ``training``: JSON's values that identify the training, such as
    batch size and seed; a checkpoint with others is refused.
    """

    def __init__(
        self,
        folder: Union[str, Path],
        keep: int = 3,
        training: Optional[Mapping[str, Any]] = None,
        world: Optional[World] = None,
        report: Report = print,
    ) -> None:
        super().__init__(folder, keep, world, report)
        self._training = plain(dict(training or {}))

    def save(self, net: Any, trainer: Any, **facts: Any) -> None:
        """Save the parameters of a gluon network and the state of its ``Trainer``; ``facts`` come back from ``load``.

        Running means and variances are saved for each device, all else for one, since replicas are equal. Waits for the
        optimiser's state, not for the disk. MXNet's random numbers can't be saved: with dropout, call ``world.seed``
        where a training starts and after each ``save``.

        Raises an MxdpError, on every rank, if a parameter has no values yet, JSON can't say the facts, the optimiser
        can't be pickled, or gradients that ``no_sync`` has added up would be lost; also if another process writes
        checkpoints in this folder, or the newest one there is of another training.
        """
        self._check_ranks(trainer)
        facts = self._world.together(lambda: plain(facts))[0]
        params = self._params(net, "save")
        header = self._header(trainer)
        names = _names(net, trainer)
        arrays = {f"parameters/{name}": param.list_data()[0] for name, param in params.items()}
        if not self._ours:
            self.lock(header, arrays)
        states: List[bytes] = []
        self._world.together(lambda: states.append(_states(trainer, names, self._world.rank)))
        ranks = self._world.together(lambda: self._replicas(params))
        if self._world.rank == 0:
            for replicas in ranks:
                arrays.update(replicas)
            arrays[STATES] = onp.frombuffer(states[0], "uint8")
            store = _store(trainer)
            if store:
                facts[PROCESSOR] = " ".join(map(str, store.processor))
            self.write(header, arrays, facts)

    def load(self, net: Any, trainer: Optional[Any] = None) -> Optional[Facts]:
        """Read the newest checkpoint into a gluon network and its ``Trainer``; returns the facts, or None without one.

        The Trainer's settings, such as its learning rate, become those that were saved; a line names those that
        changed. Set others after ``load``. The optimiser's state is a pickle, which runs what it holds: load only files
        that you trust. Without a Trainer only the parameters are read, of any training, even while it goes on in
        another process.

        Raises an MxdpError, on every rank, if a parameter is not initialised, the checkpoint is of another training,
        another process writes checkpoints in this folder, or the optimiser's state can't be read.
        """
        params = self._params(net, "load")
        if trainer:
            self._check_ranks(trainer)
            self.lock()
        newest = self.read(self._header(trainer) if trainer else None, _check)
        if newest is None:
            return None
        arrays, facts, same_replicas = newest
        processor = str(facts.pop(PROCESSOR, ""))
        values = {}
        for name, x in arrays.items():
            kind, _, rest = name.partition("/")
            if kind == "parameters":
                values[rest] = x
        there = {name: _shape_and_dtype(x.shape, x.dtype) for name, x in values.items()}
        here = {
            name: _shape_and_dtype(param.shape, param.dtype, values.get(name))
            for name, param in params.items()
        }
        match(self.folder, there, here)
        make = mx.np.array if mx.util.is_np_array() else mx.nd.array
        for name, param in params.items():
            param.set_data(make(values[name], dtype=values[name].dtype))
            param._finish_deferred_init()
        if not trainer:
            return facts
        before = _kept_settings(trainer._optimizer)
        names = _names(net, trainer)
        self._world.together(
            lambda: _take_states(trainer, arrays[STATES].tobytes(), names, self.folder)
        )
        if same_replicas:
            if processor:
                _choose_for(trainer, processor)
            for name, param in params.items():
                for number, x in enumerate(param.list_data()):
                    own = _of_replica(name, self._world.rank, number)
                    x[:] = arrays.get(own, values[name])
        self._report_changes(before, _kept_settings(trainer._optimizer))
        return facts

    def _check_ranks(self, trainer: Any) -> None:
        """Raise an MxdpError on another rank than 0, if this checkpoint is of one process. (Rank 0 alone may save.)"""
        store = _store(trainer)
        if store and store.world.rank > 0 and self._world.size == 1:
            raise MxdpError(
                f"this is rank {store.world.rank} of {store.world.size}, and its checkpoint knows no other: give "
                "mxdp.Checkpoint world=world, and call save and load on every rank"
            )

    def _report_changes(self, before: Facts, after: Facts) -> None:
        changed = []
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                changed.append(f"{name} is {after.get(name)} (the Trainer had {before.get(name)})")
        if changed:
            self._report(
                f"the optimiser is again as it was saved: {', '.join(changed)}; change it after load, the learning "
                "rate by trainer.set_learning_rate"
            )

    def _params(self, net: Any, call: str) -> Dict[str, Any]:
        """The network's parameters by name. On every rank an MxdpError, if one has no values yet for this ``call``."""
        params: Dict[str, Any] = net._collect_params_with_prefix()

        def check() -> None:
            for name, param in params.items():
                if param._data is None and not (param._deferred_init and call == "load"):
                    how = "call net.initialize(ctx=devices)"
                    if param._deferred_init:
                        how = "run a forward pass"
                    raise MxdpError(f"the parameter {name} has no values yet: {how} before {call}")

        self._world.together(check)
        return params

    def _replicas(self, params: Mapping[str, Any]) -> Arrays:
        """The arrays that differ between this rank's devices, on the host. Waits."""
        npx.waitall()  # MXNet fails on an array that is read here and by an operator at the same time
        arrays = {}
        for name, param in params.items():
            if param.grad_req == "null":
                for number, x in enumerate(param.list_data()):
                    arrays[_of_replica(name, self._world.rank, number)] = x.asnumpy()
        return arrays

    _TO_READ = ", or read only, by load(net) without a Trainer"

    def _described(self, facts: Facts) -> str:
        return ", ".join(
            f"{name} {value}" for name, value in facts.items() if isinstance(value, (int, float))
        )

    def _header(self, trainer: Any) -> Facts:
        processes = plural(self._world.size, "process")
        devices = plural(len(trainer._contexts), "device")
        return {
            "training": {**self._training, "optimizer": type(trainer._optimizer).__name__},
            "replicas": f"{processes} of {devices}",
        }


def _names(net: Any, trainer: Any) -> List[str]:
    """For each of the trainer's parameters its name in the network, as in a file of its parameters."""
    in_net = {id(param): name for name, param in net._collect_params_with_prefix().items()}
    names = unique_names(trainer._params)
    return [in_net.get(id(param), name) for param, name in zip(trainer._params, names)]


def _states(trainer: Any, names: List[str], rank: int) -> bytes:
    """The optimiser and its state as MXNet's pickle, on rank 0. Every rank calls it."""
    if _is_ours(trainer):
        return bytes(trainer.states_as_bytes(names))
    (updater, *_) = _updaters(trainer)
    return to_bytes(updater.states, updater.optimizer, names) if rank == 0 else b""


def _take_states(trainer: Any, states: bytes, names: List[str], folder: Path) -> None:
    try:
        if _is_ours(trainer):
            trainer.take_states(states, names)
            return
        updaters = _updaters(trainer)  # copies the first device's parameters to the others
        for updater in updaters:
            updater.states, updater.optimizer = from_bytes(
                states, updater.optimizer, names, trainer._params
            )
            updater.states_synced = dict.fromkeys(updater.states, False)
            trainer._optimizer = updater.optimizer = updaters[0].optimizer
        trainer._optimizer.param_dict = dict(enumerate(trainer._params))
    except ValueError as error:
        raise MxdpError(f"the optimiser's state in {folder} can't be taken: {error}") from error


def _is_ours(trainer: Any) -> bool:
    """Whether this is an mxdp.Trainer with one of mxdp's stores."""
    return isinstance(trainer, Trainer) and trainer._bucketing is not None


def _updaters(trainer: Any) -> List[Any]:
    """The updaters of gluon's Trainer, whose store is made now if it wasn't: ranks may wait there for each other."""
    if not trainer._kv_initialized:
        trainer._init_kvstore()
    if trainer._params_to_init:
        trainer._init_params()
    return [trainer._kvstore._updater] if trainer._update_on_kvstore else trainer._updaters


def _check(arrays: Arrays, facts: Facts) -> None:
    """Raise a ValueError for what ``save`` can't have written."""
    if STATES not in arrays:
        raise ValueError("it has no optimiser's state")
    int(str(facts.get(PROCESSOR, 0)).partition(" ")[0])


def _store(trainer: Any) -> Optional[Store]:
    """The store of mxdp that sums. Its processor decides what ``"auto"`` chooses, and so the last bits."""
    store = trainer._bucketing if _is_ours(trainer) else trainer._kvstore
    return store if isinstance(store, Store) else None


def _choose_for(trainer: Any, processor: str) -> None:
    """Let ``"auto"`` choose as on this processor, also for buckets that were made."""
    store = _store(trainer)
    cores, _, made_by = processor.partition(" ")
    if store and store.processor != (int(cores), made_by):
        chooser = trainer if _is_ours(trainer) else store
        chooser.choose_for(int(cores), made_by)


def _of_replica(name: str, rank: int, number: int) -> str:
    return f"replicas/{rank}.{number}/{name}"


def _kept_settings(optimizer: Any) -> Facts:
    """The settings that stay while an optimiser trains."""
    return {
        name: value
        for name, value in settings(optimizer).items()
        if name.rpartition(".")[-1] not in CHANGING
    }


def _shape_and_dtype(shape: Any, dtype: Any, known: Optional[HostArray] = None) -> str:
    """A parameter's dtype and shape. Where gluon doesn't know a length yet, that of ``known`` is taken."""
    if known is not None and not shape:
        shape = known.shape
    elif known is not None and len(shape) == known.ndim:
        shape = [length if length > 0 else other for length, other in zip(shape, known.shape)]
    return f"{onp.dtype(dtype)} {tuple(shape or ())}"
