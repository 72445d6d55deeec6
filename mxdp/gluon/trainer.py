"""gluon's Trainer with buckets: it sums many gradients by one all-reduce instead of one by one."""

from __future__ import annotations

from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, Collection, Dict, Iterator, Optional, Sequence

from mxdp.backend import gluon
from mxdp.collectives.allreduce import check_bucket_mb
from mxdp.collectives.checksums import Checksums
from mxdp.files import write_beside
from mxdp.gluon.bucketed import AddingUp, Replicas, Stale, forget, lay_out, refuse_stale, unwritten
from mxdp.gluon.checks import (
    bucketing_store,
    check_before_step,
    check_dense,
    check_halves,
    check_params,
    listed,
)
from mxdp.gluon.record import give_rank_0s, of_parameters, of_update, sum_and_compare, unique_names
from mxdp.gluon.states import from_bytes, to_bytes
from mxdp.gluon.updater import Updater, check_shardable
from mxdp.processes import ALONE, World, agree_names


class Trainer(gluon.Trainer):  # type: ignore[misc]
    """``gluon.Trainer`` with buckets: the same calls and results, but one all-reduce for many gradients.

    Gradients stay where gluon made them. A step copies them into buckets (:mod:`mxdp.gluon.bucketed`), sums these, and
    updates by the sums there; :meth:`allreduce_grads` copies the sums back. After a sum no gradient counts as written:
    one that backward has not written since is zero in the next sum.

    Each parameter has one state and one count of updates, as with gluon's default: one device updates it and copies it
    to the others. A device without samples runs no backward pass and adds zero.

    Args:
        params, optimizer, optimizer_params: as for ``gluon.Trainer``. Buckets are filled in the order of ``params``.
        kvstore: a store of mxdp, by name (``"mxdpring"``, ``"mxdpmpi"``, ...) or as a :class:`Store`. With a store of
            MXNet, or None, the trainer works as ``gluon.Trainer``, without buckets.
        compression_params, update_on_kvstore: only for MXNet's stores.
        bucket_mb: MiB that a bucket may hold.
        world: sum over its ranks, too (:func:`mxdp.world`): every rank makes a trainer alike, all start with rank 0's
            parameters, and ``step`` takes the whole batch over all ranks. What decides an update (optimiser, rates,
            batch size, what is frozen, ...) is compared at each step. Parameters that are changed on a rank become
            rank 0's again. A :class:`Store` has a world already.
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
        self._world = self._bucketing.world if self._bucketing else ALONE
        self._alone = self._world.size == 1
        in_order = listed(params)
        if self._bucketing:
            check_params(in_order)
        check_bucket_mb(bucket_mb)
        self._bucket_mb = bucket_mb
        # For the name of a store and a single device, MXNet makes no store.
        store = kvstore if self._alone else self._bucketing
        super().__init__(params, optimizer, optimizer_params, store, **options)
        numbers = {id(param): number for number, param in enumerate(self._params)}
        self._order = [numbers[id(param)] for param in in_order]
        agree_names(self._world, [param.name for param in in_order])
        if shard_optimizer:
            check_shardable(self._optimizer, self._bucketing)
        self._shards = shard_optimizer and not (self._alone and len(self._contexts) == 1)
        self._adding = AddingUp(self._params)
        self._replicas: Optional[Replicas] = None
        self._made = 0
        self._amp_loss_scaler: Any = None  # amp sets it
        self._summed: Optional[Stale] = None
        """After :meth:`allreduce_grads`, until the update: what counted as zero."""
        if self._bucketing:
            self._updaters = [Updater(self._optimizer)]
        ready = all(param._data for param in self._params)
        if not (self._alone or ready):
            raise ValueError(
                "with several ranks a parameter needs its values before the trainer is made, so that all ranks start "
                "with rank 0's: run a forward pass first"
            )
        if self._bucketing and ready:
            self._world.agree(self._record())
            self._lay_out()
        if not self._alone:
            agree_names(self._world, [param.name for param in self._params])  # sorted
            self._make_store()

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As :meth:`mxdp.GradientSync.no_sync`; then step by the size of all micro-batches together. Raises a
        ValueError with one of MXNet's stores, or a DeferredInitializationError if a parameter's shape is unknown."""
        if self._bucketing is None:
            raise ValueError(
                f"no_sync needs one of mxdp's stores, not {self._kvstore_params['kvstore']!r}: use kvstore='mxdpauto', "
                "or grad_req='add'"
            )
        check_before_step(self)
        check_dense(self._params, always=True)
        with self._adding.no_sync():
            yield

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients, divide them by ``batch_size``, and update the parameters, as ``gluon.Trainer`` does. The
        gradients stay as they are. With several ranks this waits for them.

        ``batch_size``: the samples of all devices, and of all ranks, together. ``ignore_stale_grad``: a gradient that
        backward has not written since the last sum counts as zero, and a parameter without any is not updated; else it
        raises a UserWarning, as on every rank if backward has run on none. Raises a ValueError unless ``batch_size`` is
        more than 0, or as :meth:`no_sync`; and an MxdpError, on every rank, if they differ in what decides the update.
        """
        check_before_step(self, batch_size)
        if self._bucketing is None:
            super().step(batch_size, ignore_stale_grad)
            return
        self._adding.check()
        self._check_and_rescale_grad(self._scale / batch_size)
        stale = unwritten(self._params)
        if not ignore_stale_grad:
            refuse_stale(self._params, stale)
        self._sum(stale, batch_size)
        if not ignore_stale_grad:
            stale.refuse_none()  # only a sum tells what other ranks have used
        self._apply(stale.unused if ignore_stale_grad else ())
        self._world.step_done()

    def allreduce_grads(self) -> None:
        """Sum the gradients: the first half of :meth:`step`. Each device's gradients are then the sums."""
        check_halves(self._shards)
        check_before_step(self)
        if self._bucketing is None:
            super().allreduce_grads()
            return
        self._adding.check()
        stale = unwritten(self._params)
        self._sum(stale)
        self._summed = stale
        self._laid_out().hand_back(stale.devices)

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters: the second half of :meth:`step`, after :meth:`allreduce_grads`."""
        check_halves(self._shards)
        check_before_step(self, batch_size)
        if self._bucketing is None:
            super().update(batch_size, ignore_stale_grad)
            return
        self._adding.check()
        stale = self._summed
        if stale is None:
            stale = unwritten(self._params)
            stale.unused.intersection_update(*self._world.gather(stale.unused))
        if not ignore_stale_grad:
            stale.refuse_none()
            refuse_stale(self._params, stale)
        self._check_and_rescale_grad(self._scale / batch_size)
        self._world.agree(self._record(batch_size))
        self._laid_out().fill({})  # gluon's gradients are the sums, which the user may have changed
        self._apply(stale.unused if ignore_stale_grad else ())

    def save_states(self, fname: str) -> None:
        """Save the optimiser and its whole state. With ``shard_optimizer`` every rank calls it, and rank 0 writes.
        Raises an MxdpError if Python can't pickle them, or if gradients that :meth:`no_sync` has added up would be
        lost."""
        states = self.states_as_bytes() if self._bucketing else super().save_states(fname)
        if states:
            write_beside(Path(fname), states)

    def load_states(self, fname: str) -> None:
        """Load what :meth:`save_states` or ``gluon.Trainer`` has saved, as :meth:`take_states`. Every rank calls it,
        and rank 0 reads: an error is one on all."""
        if self._bucketing:
            (saved, *_) = self._world.together(
                lambda: Path(fname).read_bytes() if self._world.rank == 0 else b""
            )
            self.take_states(saved)
        else:
            super().load_states(fname)

    def states_as_bytes(self, names: Optional[Sequence[str]] = None) -> bytes:
        """The optimiser and its whole state, as :meth:`save_states` writes them: a pickle. Waits. With
        ``shard_optimizer`` all ranks call it, and only rank 0 gets it. Raises as :meth:`save_states`.

        ``names``: those to which the states belong, for each parameter; by default gluon's, without its counts of
        layers."""
        check_before_step(self)
        self._adding.check_saved()
        # Without shards a rank may save alone, so it makes nothing together with others.
        replicas = self._replicas if self._replicas and not self._shards else self._laid_out()
        states = replicas.states(self._updaters[0])
        counts = self._optimizer._all_index_update_counts
        for device in self._contexts:  # where gluon looks for them
            counts[device.device_id] = dict(counts[0])
        if self._shards and self._world.rank > 0:
            return b""
        return to_bytes(states, self._optimizer, names or unique_names(self._params))

    def take_states(self, saved: bytes, names: Optional[Sequence[str]] = None) -> None:
        """Continue with what :meth:`states_as_bytes` gave, on any devices and ranks. It runs what the pickle holds:
        take only what you trust. Raises a ValueError, and changes nothing, for what is no state, or one of another
        network or of an optimiser that can't be cut."""
        check_before_step(self)
        names = names or unique_names(self._params)
        states, optimizer = from_bytes(saved, self._optimizer, names, self._params)
        if self._shards:
            check_shardable(optimizer, self._bucketing)
        self._make_store()  # else the first step would overwrite what is loaded into single replicas after this
        optimizer.param_dict = dict(enumerate(self._params))
        self._optimizer: Any = optimizer
        self._updaters[0].restart(optimizer, states)

    def choose_for(self, cores: int, made_by: str) -> None:
        """Let ``"auto"`` choose as on a processor with ``cores`` by that maker, also for buckets that are made."""
        self._bucketing.choose_for(cores, made_by)
        self._lay_out()

    def _make_store(self) -> None:
        """Make all replicas equal, as gluon does before its first sum."""
        if not self._kv_initialized:
            self._init_kvstore()
        if self._kvstore:
            self._kvstore.of_mxdp = True
        if self._params_to_init:
            self._init_params()

    def _sum(self, stale: Stale, batch_size: Optional[float] = None) -> None:
        """Sum all gradients but the ``stale`` ones. From then on, nothing counts as written by backward."""
        self._make_store()
        if self._alone:
            replicas = self._laid_out()
            replicas.fill(stale.devices)
            if replicas.buckets:
                replicas.buckets.sum()
        else:
            self._sum_over_ranks(stale, batch_size)
        self._adding.end_accumulating()
        forget(self._params)

    def _sum_over_ranks(self, stale: Stale, batch_size: Optional[float]) -> None:
        """Sum, and find what no rank has used. Ranks that differ in what decides the update notice it before they
        part."""
        replicas = self._replicas
        assert replicas
        assert replicas.buckets
        holds = replicas.hold()
        record = self._record(batch_size)
        used = bytes(number not in stale.unused for number in replicas.trained)
        if holds:
            replicas.fill(stale.devices)
        theirs = sum_and_compare(self._world, replicas.buckets, self._checksums, record, used)
        if not holds:  # on no rank
            self._lay_out()
            self._sum_over_ranks(stale, batch_size)
            return
        changed = self._checksums.differing([of_rank[len(used) :] for of_rank in theirs])
        give_rank_0s(self._world, [self._params[number] for number in changed])
        for number, of_ranks in zip(replicas.trained, zip(*theirs)):
            if any(of_ranks):
                stale.unused.discard(number)

    def _apply(self, unused: Collection[int]) -> None:
        """Update all but the ``unused`` by the sums in the buckets."""
        self._summed = None
        replicas = self._laid_out()
        scaler = self._amp_loss_scaler
        if scaler and scaler.has_overflow(replicas.for_amp()):
            return
        updater = self._updaters[0]
        all_parts = replicas.updates()
        parts = {n: all_parts[n] for n in sorted(replicas.trained) if n not in unused}
        updater(parts, alone=self._alone and len(self._contexts) == 1)
        if self._shards and self._optimizer.lr_scheduler:
            # A schedule goes on when it is asked. A rank without parts of the last parameters has not asked.
            self._optimizer.lr_scheduler(self._optimizer.num_update)
        if not updater.repeatable:
            self._world.broadcast([part.weight for part in chain(*parts.values())])
        replicas.spread(parts)

    def _record(self, batch_size: Optional[float] = None) -> Dict[str, Any]:
        """What decides an update of this rank."""
        if self._alone:
            return {}
        record = {**of_parameters(self._params), **of_update(self._optimizer, self._params)}
        record["scale of the loss"] = self._scale
        record["shard_optimizer"] = self._shards
        if self._shards:
            record["devices (in shards all need as many)"] = len(self._contexts)
        changes = self._made if not self._replicas or self._replicas.hold() else self._made + 1
        record["changes of its parameters' arrays (made anew, cast, moved)"] = changes
        if batch_size is not None:
            record["batch_size"] = batch_size
        return record

    def _laid_out(self) -> Replicas:
        """The replicas, found anew if parameters have got other arrays."""
        if self._replicas is None or not self._replicas.hold():
            self._lay_out()
        assert self._replicas
        return self._replicas

    def _lay_out(self) -> None:
        updater = self._updaters[0]
        if self._replicas and self._shards:
            updater.restart(self._optimizer, self._replicas.states(updater))
        self._replicas = lay_out(
            self._params, self._order, self._bucketing, self._bucket_mb, self._shards
        )
        if not self._alone:
            # Running means differ between devices.
            alike = [param for param in self._params if param._differentiable]
            self._checksums = Checksums([param._data[0].as_nd_ndarray() for param in alike])
        self._made += 1
