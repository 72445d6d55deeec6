"""gluon's Trainer with buckets: it sums many gradients by one all-reduce instead of one by one."""

from __future__ import annotations

import os
import pickle
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Set

from mxdp.backend import gluon
from mxdp.errors import plural
from mxdp.gluon.bucketed import CURE, BucketedGradients, unwritten
from mxdp.gluon.checks import bucketing_store, check_dense, check_options, check_step, listed
from mxdp.gluon.sharded import Shards, check_shapes, check_shardable, mapped, on_host
from mxdp.gluon.updater import Updater, WholeParameters, to_bytes
from mxdp.processes import World, agree_names


class Trainer(gluon.Trainer):  # type: ignore[misc]
    """``gluon.Trainer`` with buckets: the same calls and results, but one all-reduce for many gradients.

    The gradients move into buckets (:class:`mxdp.collectives.GradientSync`): backward writes them there, and
    ``param.grad()`` and ``zero_grad`` use them there. The constructor moves them if all parameters are initialised,
    otherwise the first step does. After a parameter was cast, moved or initialised again, the next step makes new
    buckets.

    A batch may have fewer samples than there are devices: split it over ``devices[:len(X)]``. A device that has run no
    backward pass since the last step is updated like the others, with gradients of zero for its part of the sum.

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
        self._placed: Optional[Shards] = None
        self._states: Dict[int, Any] = {}  # whole, with shard_optimizer: of frozen parameters, or for the next buckets
        self._held_back = False
        self._lenient = True  # False in a step that refuses stale gradients
        # For the name of a store and a single device, MXNet makes no store.
        store = kvstore if self._alone else self._bucketing
        super().__init__(params, optimizer, optimizer_params, store, compression_params, update_on_kvstore)
        self._in_order = listed(params)
        if self._bucketing:
            agree_names(self._bucketing.world, [param.name for param in self._in_order])
        several = len(self._contexts) > 1 or not self._alone
        if shard_optimizer:
            check_shardable(self._optimizer, self._bucketing)
        self._shards = shard_optimizer and several
        if self._bucketing:
            self._updaters = [Updater(self._optimizer)]
            self._whole = WholeParameters(self._params)
        ready = all(param._data for param in self._in_order)
        if not (self._alone or ready):
            raise ValueError(
                "with several ranks a parameter needs its values before the trainer is made, so that all ranks start "
                "with rank 0's: run a forward pass first"
            )
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
        outer, self._held_back = self._held_back, True
        try:
            with buckets.no_sync():
                yield
        finally:
            self._held_back = outer

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients, divide them by ``batch_size``, and update the parameters, as ``gluon.Trainer`` does.

        ``batch_size``: the samples of all devices, and of all ranks, together. ``ignore_stale_grad``: a gradient that
        backward has not written since the last step counts as zero, and a parameter without any is not updated. With
        several ranks this waits for them.

        Raises:
            ValueError: ``batch_size`` is not more than 0.
            UserWarning: a gradient was not written since the last step, without ``ignore_stale_grad``.
            DeferredInitializationError: as for :meth:`no_sync`.
        """
        check_step(batch_size)
        self._check_initialised()
        self._lenient = ignore_stale_grad
        try:
            super().step(batch_size, ignore_stale_grad)
        finally:
            self._lenient = True
        if self._bucketing:
            self._bucketing.world.step_done()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters: the second half of :meth:`step`, after :meth:`allreduce_grads`."""
        check_step(batch_size)
        self._check_whole()
        super().update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients: the first half of :meth:`step`."""
        self._check_whole()
        super().allreduce_grads()

    def save_states(self, fname: str) -> None:
        """Save the optimiser and its whole state. With ``shard_optimizer`` every rank calls it, and rank 0 writes."""
        if self._bucketing is None:
            super().save_states(fname)
            return
        states = self.states_as_bytes()
        if not self._shards or self._bucketing.world.rank == 0:
            part = Path(f"{fname}.{os.getpid()}.part")
            part.write_bytes(states)
            part.replace(fname)

    def load_states(self, fname: str) -> None:
        """Load what :meth:`save_states` or ``gluon.Trainer`` has saved. Every rank calls it, and rank 0 reads.

        Raises:
            OSError: rank 0 can't read the file; an MxdpError on the other ranks.
            ValueError: as for :meth:`take_states`.
        """
        if self._bucketing is None:
            super().load_states(fname)
            return
        world = self._bucketing.world
        (saved, *_) = world.together(lambda: Path(fname).read_bytes() if world.rank == 0 else b"")
        self.take_states(saved)

    def states_as_bytes(self) -> bytes:
        """The optimiser and its whole state, as :meth:`save_states` writes them: a pickle. Waits. With
        ``shard_optimizer`` all ranks call it, and only rank 0 gets it.

        Raises:
            MxdpError: Python can't pickle the optimiser or its schedule.
        """
        self._check_initialised()
        if self._shards:
            self._ready_buckets()
        states = {number: mapped(its, on_host) for number, its in self._updaters[0].states.items()}
        if self._placed:
            states = {**self._states, **self._placed.whole()}
        counts = self._optimizer._all_index_update_counts
        counts.update({device.device_id: dict(counts[0]) for device in self._contexts})  # where gluon looks for them
        if self._shards and self._bucketing and self._bucketing.world.rank > 0:
            return b""
        return to_bytes(states, self._optimizer)

    def take_states(self, saved: bytes) -> None:
        """Continue with what :meth:`states_as_bytes` gave, whatever devices and ranks it was on. All stays as it was if
        this raises. It runs what the pickle holds: take only what you trust.

        Raises:
            ValueError: these are no states, or those of another network or of an optimiser that can't be cut.
        """
        self._check_initialised()
        try:
            content = pickle.loads(saved)
            states, optimizer = content if isinstance(content, tuple) else (content, self._optimizer)
            states = dict(states.items())
        except Exception as error:
            raise ValueError(f"these are no states of a trainer ({type(error).__name__}: {error})") from error
        if self._shards:
            check_shardable(optimizer, self._bucketing)
            check_shapes(states, self._params)
        if not self._kv_initialized:
            self._init_kvstore()
        self._init_params()  # else the first step would overwrite what is loaded into single replicas after this
        self._optimizer, optimizer.param_dict = optimizer, dict(enumerate(self._params))
        self._updaters[0].restart(optimizer, {} if self._shards else states)
        self._states = states if self._shards else {}
        if self._placed:
            self._placed.take(self._states)

    def _check_whole(self) -> None:
        if self._shards:
            raise RuntimeError(
                "with shard_optimizer no device has all sums of gradients, so there is no time between the sum and the "
                "update: call step, or leave shard_optimizer out"
            )
        self._check_initialised()

    def _refuse_stale(self, stale: Dict[int, Set[int]]) -> None:
        """Raise gluon's UserWarning for gradients that are missing, unless the device, or this rank, had no samples."""
        idle = set.intersection(*stale.values()) if stale else set()
        if self._alone and len(idle) == len(self._contexts):
            idle = set()
        for number, devices in stale.items():
            for device in devices - idle:
                raise UserWarning(
                    f"the gradient of parameter {self._params[number].name} on {self._contexts[device]} has not been "
                    "updated by backward since the last step: use the parameter in the forward pass, or call step with "
                    "ignore_stale_grad=True"
                )

    def _check_initialised(self) -> None:
        """Raise a DeferredInitializationError if the shape of a parameter is not known yet."""
        for param in self._params:
            if not param._deferred_init:
                self._contexts = param.list_ctx()
            else:
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
        if not (self._several or self._buckets):
            return  # Nothing to sum: a single device has buckets only after no_sync.
        buckets = self._ready_buckets()
        buckets.fetch()
        stale = unwritten(self._params)
        if not self._lenient:
            self._refuse_stale(stale)
        if not self._alone or any(len(devices) < len(self._contexts) for devices in stale.values()):
            for param, device in ((self._params[number], device) for number in stale for device in stale[number]):
                if param.grad_req == "write":  # with "add" they are the user's to set to zero
                    param._grad[device][()] = 0  # it is the sum of an earlier step
        buckets()

    def _update(self, ignore_stale_grad: bool = False) -> None:
        if self._bucketing is None:
            super()._update(ignore_stale_grad)
            return
        scaler = getattr(self, "_amp_loss_scaler", None)
        if scaler and self._shards:
            raise RuntimeError("shard_optimizer and amp's loss scaling don't work together: leave one of them out")
        if scaler and scaler.has_overflow(self._params):
            return
        stale, world = unwritten(self._params), self._bucketing.world
        if ignore_stale_grad:
            skipped = {number for number, devices in stale.items() if len(devices) == len(self._contexts)}
            skipped = set.intersection(*world.gather(skipped))
        else:
            self._refuse_stale(stale)
            skipped = set()
        numbers = [number for number in stale if number not in skipped]
        place, updater = self._placed or self._whole, self._updaters[0]
        pieces = place.pieces(numbers)
        updater(pieces, alone=not self._several)
        if not updater.repeatable:
            world.broadcast([piece.weight for its in pieces.values() for piece in its])
        place.spread(numbers)
        for number in stale:
            for data in self._params[number]._data:
                data._fresh_grad = False

    @property
    def _several(self) -> bool:
        """True if gradients are summed: over devices, which may have changed, or ranks."""
        return not self._alone or len(self._contexts) > 1

    def _ready_buckets(self) -> BucketedGradients:
        """The buckets. They are made now if there are none, or if gluon has given the parameters other gradients.

        Raises:
            RuntimeError: accumulated gradients would be lost.
        """
        if self._buckets and self._buckets.hold():
            return self._buckets
        self._drop_buckets()
        assert self._bucketing is not None
        places = {str(param.list_ctx()) for param in self._params}
        if len(places) > 1:
            raise ValueError(f"all parameters must lie on the same devices, not on {' and '.join(sorted(places))}")
        check_dense(self._in_order, always=True)
        store = self._bucketing
        machine = store.machine(self._contexts[0])
        self._buckets = BucketedGradients(
            self._in_order, store.algorithm, self._bucket_mb, machine, store.world, self._shards
        )
        if self._shards:
            self._placed = Shards(self._buckets, self._params, self._updaters[0])
            self._placed.take(self._states)
        return self._buckets

    def _drop_buckets(self) -> None:
        if self._placed:
            self._states.update(self._placed.whole())
            self._updaters[0].restart(self._optimizer, {})
            self._placed = None
        if self._buckets and self._buckets.accumulating:
            self._buckets = None
            raise RuntimeError(f"gradients added up inside no_sync are lost: {CURE}")
        self._buckets = None
