"""gluon's Trainer with buckets: it sums many gradients by one all-reduce instead of one by one."""

from __future__ import annotations

import os
import tempfile
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional

from mxdp.backend import gluon, mx
from mxdp.errors import plural
from mxdp.gluon.bucketed import BucketedGradients, astray, follow, zero_idle
from mxdp.gluon.checks import bucketing_store, check_batch_size, check_dense, check_options, listed
from mxdp.gluon.sharded import Shard, ShardedStates, check_shardable
from mxdp.gluon.updater import Updater
from mxdp.process import MxdpWarning
from mxdp.processes import World, agree_names


class Trainer(gluon.Trainer):  # type: ignore[misc]
    """``gluon.Trainer`` with buckets: the same calls and results, but one all-reduce for many gradients.

    The gradients move into buckets (:class:`mxdp.collectives.GradientSync`): backward writes them there, and
    ``param.grad()`` and ``zero_grad`` use them there. The constructor moves them if all parameters are initialised,
    otherwise the first step does. After a parameter was cast, moved or initialised again, the next step makes new
    buckets.

    A batch may have fewer samples than there are devices: split it over ``devices[:len(X)]``. A device that has run no
    backward pass since the last step is updated like the others, with gradients of zero for its part of the sum.

    A network hybridised with ``static_shape=True`` keeps the gradient arrays of its first backward pass. If this pass
    came before the move, the gradients are summed one by one, as by ``gluon.Trainer``, with a warning.

    Args:
        params, optimizer, optimizer_params: as for ``gluon.Trainer``. Buckets are filled in the order of ``params``.
        kvstore: a store of mxdp, by name (``"mxdpauto"``, ``"mxdpring"``, ``"mxdpmpi"``, ...) or as a :class:`Store`.
            With a store of MXNet, or None, the trainer works as ``gluon.Trainer``, without buckets.
        compression_params, update_on_kvstore: only for MXNet's stores.
        bucket_mb: MiB that a bucket may hold.
        world: sum over its ranks, too (:func:`mxdp.world`): every rank makes a trainer alike, all start with rank 0's
            parameters, and ``step`` takes the whole batch over all ranks. Not together with a :class:`Store`, which has
            a world of its own.
        shard_optimizer: with k devices in all, each holds 1 / k of the optimiser's state, and updates 1 / k of the
            parameters (:mod:`mxdp.collectives.shards`). For optimisers with a state that update each element by itself.
            After a step the gradients hold no sums. ``allreduce_grads`` and ``update`` alone are refused. Every rank
            calls ``save_states``; its files are those of a trainer without shards, on any number of devices.

    Raises:
        ValueError: an unknown name of a store (MXNet would make a local store); with a store of mxdp,
            ``compression_params``, ``update_on_kvstore=True`` or, on several devices, sparse parameters; a
            ``bucket_mb`` that is not more than 0; or ``shard_optimizer`` with a store of MXNet, or with an optimiser
            that has no state or needs whole parameters.
        TypeError: ``kvstore`` is neither a name nor a store nor None.

    Warns:
        MxdpWarning: at a step, if gradients are summed one by one.
    """

    _optimizer: Any

    def __init__(
        self,
        params: Any,
        optimizer: Any,
        optimizer_params: Optional[Dict[str, Any]] = None,
        kvstore: Any = "mxdpauto",
        compression_params: Optional[Dict[str, Any]] = None,
        update_on_kvstore: Optional[bool] = None,
        bucket_mb: float = 25,
        world: Optional[World] = None,
        shard_optimizer: bool = False,
    ) -> None:
        self._bucketing = bucketing_store(kvstore, world)
        self._alone = not self._bucketing or self._bucketing.world.size == 1
        if self._bucketing:
            check_options(self._bucketing, compression_params, update_on_kvstore)
            check_dense(listed(params))
        if not bucket_mb > 0:
            raise ValueError(f"bucket_mb must be more than 0, not {bucket_mb}")
        self._bucket_mb = bucket_mb
        self._buckets: Optional[BucketedGradients] = None
        self._sharded: Optional[ShardedStates] = None
        self._states: Dict[int, Any] = {}  # whole, for the next buckets
        self._held_back = False
        self._one_by_one = False
        # For the name of a store and a single device, MXNet makes no store.
        store = kvstore if self._alone else self._bucketing
        super().__init__(params, optimizer, optimizer_params, store, compression_params, update_on_kvstore)
        self._in_order = listed(params)
        several = len(self._contexts) > 1 or not self._alone
        if shard_optimizer:
            check_shardable(self._optimizer, self._bucketing)
        self._shards = shard_optimizer and several
        if self._bucketing:
            updater = Shard if self._shards else Updater
            self._updaters = [updater(self._optimizer) for _ in self._contexts]
        ready = all(param._data for param in self._in_order)
        if not (self._alone or ready):
            raise ValueError(
                "with several ranks a parameter needs its values before the trainer is made, so that all ranks start "
                "with rank 0's: run a forward pass first"
            )
        if self._bucketing:
            agree_names(self._bucketing.world, [param.name for param in self._in_order])
        if self._bucketing and several and ready:
            self._ready_buckets()
        if not self._alone:
            self._init_kvstore()
            self._init_params()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Accumulate gradients: run k - 1 of k micro-batches inside this context and the last one after it, then step.

        Forward and backward pass of a micro-batch both belong inside. ``step(batch_size)`` takes the size of all
        micro-batches together. If an exception leaves the context, the gradients since the last step are dropped.
        (Those of parameters with ``grad_req="add"`` are not: there you set gradients to zero.)

        Raises:
            ValueError: the trainer has one of MXNet's stores.
            DeferredInitializationError: the shape of a parameter is unknown until a forward pass.
        """
        if self._bucketing is None:
            store = self._kvstore_params["kvstore"]
            raise ValueError(
                f"no_sync needs one of mxdp's stores, not {store!r}: use kvstore='mxdpauto', or grad_req='add'"
            )
        self._check_initialised()
        buckets = self._ready_buckets()
        self._one_by_one = False  # With grad_req="add", a static_shape network takes the new gradient arrays.
        outer, self._held_back = self._held_back, True
        try:
            with buckets.no_sync():
                yield
        finally:
            self._held_back = outer

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients, divide them by ``batch_size``, and update the parameters, as ``gluon.Trainer`` does.

        ``batch_size``: the samples of all devices, and of all ranks, together.

        Raises:
            ValueError: ``batch_size`` is not more than 0.
            DeferredInitializationError: as for :meth:`no_sync`.
        """
        check_batch_size(batch_size)
        self._check_initialised()
        super().step(batch_size, ignore_stale_grad)
        if self._bucketing:
            self._bucketing.world.step_done()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters: the second half of :meth:`step`, after :meth:`allreduce_grads`."""
        check_batch_size(batch_size)
        self._check_whole()
        super().update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients: the first half of :meth:`step`."""
        self._check_whole()
        super().allreduce_grads()

    def save_states(self, fname: str) -> None:
        """Save the optimiser and its whole state. With ``shard_optimizer`` every rank calls it, and rank 0 writes."""
        if not self._shards:
            super().save_states(fname)
            return
        data = self.states_as_bytes()
        if self._bucketing and self._bucketing.world.rank == 0:
            with open(fname, "wb") as file:
                file.write(data)

    def load_states(self, fname: str) -> None:
        """Load what :meth:`save_states` or ``gluon.Trainer`` has saved; every rank calls it."""
        if not self._shards:
            super().load_states(fname)
            return
        with open(fname, "rb") as file:
            self.take_states(file.read())

    def states_as_bytes(self) -> bytes:
        """What :meth:`save_states` writes, on rank 0; empty on others. Every rank calls it."""
        if not self._shards:
            with tempfile.TemporaryDirectory() as folder:
                super().save_states(os.path.join(folder, "states"))
                return Path(folder, "states").read_bytes()
        self._check_initialised()
        self._ready_buckets()
        assert self._sharded
        updater = mx.optimizer.get_updater(self._optimizer)
        updater.states = self._sharded.whole()
        alone = self._bucketing is None or self._bucketing.world.rank == 0
        return bytes(updater.get_states(dump_optimizer=True)) if alone else b""

    def take_states(self, data: bytes) -> None:
        """Load what :meth:`states_as_bytes` gave; every rank calls it with the same bytes."""
        if not self._shards:
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "states").write_bytes(data)
                super().load_states(os.path.join(folder, "states"))
            return
        first = self._updaters[0]
        first.set_states(data)
        check_shardable(first.optimizer, self._bucketing)
        for shard in self._updaters:
            shard.optimizer = first.optimizer
        self._optimizer, self._states = first.optimizer, first.states
        self._optimizer.param_dict = dict(enumerate(self._params))
        if self._sharded:
            self._sharded.take(self._states)

    def _check_whole(self) -> None:
        if self._shards:
            raise RuntimeError(
                "with shard_optimizer no device has all sums of gradients, so there is no time between the sum and the "
                "update: call step, or leave shard_optimizer out"
            )
        self._check_initialised()

    def _check_initialised(self) -> None:
        """Raise a DeferredInitializationError if the shape of a parameter is not known yet."""
        for param in self._params:
            if param._deferred_init:
                devices, where = plural(len(self._contexts), "device"), ", ".join(map(str, self._contexts))
                raise gluon.parameter.DeferredInitializationError(
                    f"the parameter {param.name} has no values yet, and will have them on {devices} "
                    f"({where}): run a forward pass there first, or for other devices call net.initialize(ctx=devices) "
                    "before the trainer is made"
                )

    def _allreduce_grads(self) -> None:
        if self._bucketing is None:
            super()._allreduce_grads()
            return
        if self._held_back:
            raise RuntimeError(
                "a step or allreduce_grads inside no_sync would leave each device with its own gradients: call it "
                "after no_sync"
            )
        if len(self._contexts) == 1 and self._alone and not self._buckets:
            return  # Nothing to sum: a single device has buckets only after no_sync.
        self._find_strays()
        buckets = None if self._one_by_one else self._ready_buckets()
        zero_idle(self._in_order, self._alone)
        (buckets or super()._allreduce_grads)()

    def _update(self, ignore_stale_grad: bool = False) -> None:
        if self._shards and getattr(self, "_amp_loss_scaler", None):
            raise RuntimeError("shard_optimizer and amp's loss scaling don't work together: leave one of them out")
        super()._update(ignore_stale_grad)
        if self._sharded:
            self._sharded.spread()

    def _find_strays(self) -> None:
        """If backward has not written into ``param.grad()``, sum the arrays that it has written, without buckets.

        Raises:
            RuntimeError: some accumulated gradients lie in buckets, and some do not.
        """
        strays = astray(self._in_order)
        if not strays:
            return
        if self._shards:
            raise RuntimeError(
                "backward does not write this network's gradients into the buckets, which shard_optimizer needs: run a "
                "forward pass before the trainer is made, or leave static_shape out"
            )
        self._drop_buckets()
        follow(strays)
        if not self._one_by_one:
            self._one_by_one = True
            warnings.warn(
                "Backward does not write this network's gradients into mxdp.Trainer's buckets, so they are summed one "
                "by one. This happens if the first backward pass after hybridize(static_shape=True) came before the "
                "buckets: run a forward pass before the trainer is made, or leave static_shape out.",
                MxdpWarning,
                stacklevel=5,
            )

    def _ready_buckets(self) -> BucketedGradients:
        """The buckets. They are made now if there are none, or if gluon has given the parameters other gradients.

        Raises:
            RuntimeError: accumulated gradients would be lost.
        """
        if self._buckets and self._buckets.hold():
            return self._buckets
        self._drop_buckets()
        assert self._bucketing is not None
        check_dense(self._in_order, always=True)
        store = self._bucketing
        machine = store.machine(self._contexts[0])
        self._buckets = BucketedGradients(
            self._in_order, store.algorithm, self._bucket_mb, machine, store.world, self._shards
        )
        if self._shards:
            states, self._states = self._states, {}
            self._sharded = ShardedStates(self._buckets, self._params, self._updaters, store.world, states)
        return self._buckets

    def _drop_buckets(self) -> None:
        if self._sharded:
            self._states, self._sharded = self._sharded.whole(), None
        if self._buckets and self._buckets.accumulating:
            self._buckets = None
            raise RuntimeError(
                "gradients added up inside no_sync are lost, since a parameter was initialised, cast or moved, has "
                "another grad_req or was taken by another trainer: call step before that"
            )
        self._buckets = None
