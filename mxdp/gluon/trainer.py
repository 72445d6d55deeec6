"""gluon's Trainer with buckets: it sums many gradients by one all-reduce instead of one by one."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any, Dict, Iterator, Optional, Set, Union

from mxdp.backend import gluon
from mxdp.collectives.allreduce import check_bucket_mb
from mxdp.gluon.bucketed import CURE, BucketedGradients, ShardedGradients, refuse_stale, unwritten
from mxdp.gluon.checks import bucketing_store, check_batch_size, check_dense, check_halves, check_initialised, listed
from mxdp.gluon.updater import Shards, Updater, WholeParameters, check_shapes, check_shardable, from_bytes, to_bytes
from mxdp.plans.show.files import write_beside
from mxdp.processes import World, agree_names


class Trainer(gluon.Trainer):  # type: ignore[misc]
    """``gluon.Trainer`` with buckets: the same calls and results, but one all-reduce for many gradients.

    Gradients move into buckets (:class:`mxdp.GradientSync`) when the trainer is made, and in the first step after a
    parameter was initialised, cast or moved: ``param.grad()`` is then a part of a bucket.

    Each parameter has one state and one count of updates, as with gluon's default: one device updates it and copies it
    to the others. A device without samples runs no backward pass and adds zero: split a small batch over
    ``devices[:len(X)]``.

    Args:
        params, optimizer, optimizer_params: as for ``gluon.Trainer``. Buckets are filled in the order of ``params``.
        kvstore: a store of mxdp, by name (``"mxdpring"``, ``"mxdpmpi"``, ...) or as a :class:`Store`. With a store of
            MXNet, or None, the trainer works as ``gluon.Trainer``, without buckets.
        compression_params, update_on_kvstore: only for MXNet's stores.
        bucket_mb: MiB that a bucket may hold.
        world: sum over its ranks, too (:func:`mxdp.world`): every rank makes a trainer alike, all start with rank 0's
            parameters, and ``step`` takes the whole batch over all ranks. A :class:`Store` has a world already.
        shard_optimizer: each of k devices in all holds 1 / k of the optimiser's state, and updates 1 / k of the
            parameters (:mod:`mxdp.collectives.shards`). For optimisers with a state that update each element by itself.
            After a step the gradients hold no sums, and ``allreduce_grads`` and ``update`` alone are refused. Every
            rank calls ``save_states``; its files are those of a trainer without shards, on any number of devices.

    Raises a ValueError or TypeError for an argument that mxdp's stores can't take.
    """

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
        options = {"compression_params": compression_params, "update_on_kvstore": update_on_kvstore}
        self._bucketing: Any = bucketing_store(kvstore, world, **options)
        self._world = self._bucketing.world if self._bucketing else World()
        self._alone = self._world.size == 1
        if self._bucketing:
            check_dense(listed(params))
        check_bucket_mb(bucket_mb)
        self._bucket_mb = bucket_mb
        self._buckets: Optional[BucketedGradients] = None
        # For the name of a store and a single device, MXNet makes no store.
        store = kvstore if self._alone else self._bucketing
        super().__init__(params, optimizer, optimizer_params, store, **options)
        self._in_order = listed(params)
        agree_names(self._world, [param.name for param in self._in_order])
        self._several = len(self._contexts) > 1 or not self._alone
        if shard_optimizer:
            check_shardable(self._optimizer, self._bucketing)
        self._shards = shard_optimizer and self._several
        if self._bucketing:
            self._updaters = [Updater(self._optimizer)]
        self._place: Union[WholeParameters, Shards] = WholeParameters(self._params)
        ready = all(param._data for param in self._in_order)
        if not (self._alone or ready):
            raise ValueError(
                "with several ranks a parameter needs its values before the trainer is made, so that all ranks start "
                "with rank 0's: run a forward pass first"
            )
        if self._bucketing and self._several and ready:
            self._ready_buckets()
        if not self._alone:
            self._init_kvstore()
            self._init_params()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As :meth:`mxdp.GradientSync.no_sync`; then step by the size of all micro-batches together. Raises a
        ValueError with one of MXNet's stores, or a DeferredInitializationError if a parameter's shape is unknown."""
        if self._bucketing is None:
            raise ValueError(
                f"no_sync needs one of mxdp's stores, not {self._kvstore_params['kvstore']!r}: use kvstore='mxdpauto', "
                "or grad_req='add'"
            )
        self._check_initialised()
        with self._ready_buckets().no_sync():
            yield

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients, divide them by ``batch_size``, and update the parameters, as ``gluon.Trainer`` does. With
        several ranks this waits for them.

        ``batch_size``: the samples of all devices, and of all ranks, together. ``ignore_stale_grad``: a gradient that
        backward has not written since the last step counts as zero, and a parameter without any is not updated; else it
        raises a UserWarning. Raises a ValueError unless ``batch_size`` is more than 0, or as :meth:`no_sync`.
        """
        self._check_step(batch_size, ignore_stale_grad)
        super().step(batch_size, ignore_stale_grad)
        self._world.step_done()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters: the second half of :meth:`step`, after :meth:`allreduce_grads`."""
        check_halves(self._shards)
        self._check_step(batch_size, ignore_stale_grad)
        super().update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients: the first half of :meth:`step`."""
        check_halves(self._shards)
        self._check_initialised()
        super().allreduce_grads()

    def save_states(self, fname: str) -> None:
        """Save the optimiser and its whole state. With ``shard_optimizer`` every rank calls it, and rank 0 writes."""
        states = self.states_as_bytes() if self._bucketing else super().save_states(fname)
        if states:
            write_beside(Path(fname), states)

    def load_states(self, fname: str) -> None:
        """Load what :meth:`save_states` or ``gluon.Trainer`` has saved, as :meth:`take_states`. Every rank calls it,
        and rank 0 reads: an error is one on all."""
        if self._bucketing:
            (saved, *_) = self._world.together(lambda: Path(fname).read_bytes() if self._world.rank == 0 else b"")
            self.take_states(saved)
        else:
            super().load_states(fname)

    def states_as_bytes(self) -> bytes:
        """The optimiser and its whole state, as :meth:`save_states` writes them: a pickle. Waits. With
        ``shard_optimizer`` all ranks call it, and only rank 0 gets it. An MxdpError, if Python can't pickle them."""
        self._check_initialised()
        if self._shards:
            self._ready_buckets()
        states = self._place.whole(self._updaters[0])
        counts = self._optimizer._all_index_update_counts
        counts.update({device.device_id: dict(counts[0]) for device in self._contexts})  # where gluon looks for them
        return to_bytes(states, self._optimizer) if self._world.rank == 0 or not self._shards else b""

    def take_states(self, saved: bytes) -> None:
        """Continue with what :meth:`states_as_bytes` gave, on any devices and ranks. It runs what the pickle holds:
        take only what you trust. Raises a ValueError, and changes nothing, for what is no state, or one of another
        network or of an optimiser that can't be cut."""
        self._check_initialised()
        states, optimizer = from_bytes(saved, self._optimizer)
        if self._shards:
            check_shardable(optimizer, self._bucketing)
            check_shapes(states, self._params)
        if not self._kv_initialized:
            self._init_kvstore()
        self._init_params()  # else the first step would overwrite what is loaded into single replicas after this
        optimizer.param_dict = dict(enumerate(self._params))
        self._optimizer: Any = optimizer
        self._updaters[0].restart(optimizer, states)

    def _check_initialised(self) -> None:
        check_initialised(self._params, self._contexts)
        self._contexts: Any = self._params[-1].list_ctx()  # the parameters may have moved
        self._several = len(self._contexts) > 1 or not self._alone

    def _check_step(self, batch_size: float, ignore_stale_grad: bool) -> None:
        check_batch_size(batch_size)
        self._check_initialised()
        if self._buckets and self._buckets.accumulating:
            self._ready_buckets()  # first says what is lost
        if self._bucketing and not ignore_stale_grad:
            refuse_stale(self._params, unwritten(self._params), self._alone)

    def _allreduce_grads(self) -> None:
        if self._bucketing is None:
            super()._allreduce_grads()
        elif self._several or self._buckets:  # a single device has buckets only after no_sync
            buckets = self._ready_buckets()
            buckets.fetch()
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
        trained = [number for number, param in enumerate(self._params) if param.grad_req != "null"]
        unused: Set[int] = set()
        if ignore_stale_grad:
            stale = unwritten(self._params)
            unused = {number for number, devices in stale.items() if len(devices) == len(self._contexts)}
            unused = set.intersection(*self._world.gather(unused))
        numbers = [number for number in trained if number not in unused]
        parts, updater = self._place.parts(numbers), self._updaters[0]
        updater(parts, alone=not self._several)
        if not updater.repeatable:
            self._world.broadcast([part.weight for of_param in parts.values() for part in of_param])
        self._place.spread(numbers)
        for number in trained:
            for data in self._params[number]._data:
                data._fresh_grad = False

    def _ready_buckets(self) -> BucketedGradients:
        """The buckets. They are made now if there are none, or if gluon has given the parameters other gradients."""
        if self._buckets and self._buckets.hold():
            return self._buckets
        self._drop_buckets()
        check_dense(self._in_order, always=True)
        store, given = self._bucketing, {"bucket_mb": self._bucket_mb, "world": self._world}
        if self._shards:
            self._buckets = shards = ShardedGradients(self._in_order, **given)
            self._place = Shards(shards, self._params)
        else:
            machine = store.machine(self._contexts[0])
            self._buckets = BucketedGradients(self._in_order, algorithm=store.algorithm, machine=machine, **given)
        return self._buckets

    def _drop_buckets(self) -> None:
        if self._shards:
            self._updaters[0].restart(self._optimizer, self._place.whole(self._updaters[0]))
        lost, self._buckets = self._buckets and self._buckets.accumulating, None
        if lost:
            raise RuntimeError(f"gradients added up inside no_sync are lost: {CURE}")
