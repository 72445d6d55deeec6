"""gluon's Trainer with buckets: it sums many gradients by one all-reduce instead of one by one."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Optional, Sequence

from mxdp.backend import gluon, mx
from mxdp.errors import did_you_mean, plural
from mxdp.gluon.bucketed import BucketedGradients, astray, follow, zero_idle
from mxdp.gluon.store import Store, by_name
from mxdp.process import MxdpWarning
from mxdp.processes import World

MXNET_STORES = (
    "device",
    "dist",
    "dist_async",
    "dist_async_device",
    "dist_device_async",
    "dist_device_sync",
    "dist_sync",
    "dist_sync_device",
    "local",
    "local_allreduce_cpu",
    "local_allreduce_device",
    "local_update_cpu",
    "nccl",
)
"""The names of MXNet's own stores. For an unknown name MXNet would make a local store."""


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

    Raises:
        ValueError: an unknown name of a store (MXNet would make a local store); with a store of mxdp,
            ``compression_params``, ``update_on_kvstore=True`` or, on several devices, sparse parameters; or a
            ``bucket_mb`` that is not more than 0.
        TypeError: ``kvstore`` is neither a name nor a store nor None.

    Warns:
        MxdpWarning: at a step, if gradients are summed one by one.
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
    ) -> None:
        self._bucketing = _bucketing_store(kvstore, world)
        self._alone = not self._bucketing or self._bucketing.world.size == 1
        if self._bucketing:
            _check_options(self._bucketing, compression_params, update_on_kvstore)
            _check_dense(_listed(params))
        if not bucket_mb > 0:
            raise ValueError(f"bucket_mb must be more than 0, not {bucket_mb}")
        self._bucket_mb = bucket_mb
        self._buckets: Optional[BucketedGradients] = None
        self._held_back = False
        self._one_by_one = False
        # For the name of a store and a single device, MXNet makes no store.
        store = kvstore if self._alone else self._bucketing
        super().__init__(params, optimizer, optimizer_params, store, compression_params, update_on_kvstore)
        self._in_order = _listed(params)
        several = len(self._contexts) > 1 or not self._alone
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
        _check_batch_size(batch_size)
        self._check_initialised()
        super().step(batch_size, ignore_stale_grad)
        if self._bucketing:
            self._bucketing.world.step_done()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters: the second half of :meth:`step`, after :meth:`allreduce_grads`."""
        _check_batch_size(batch_size)
        self._check_initialised()
        super().update(batch_size, ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients: the first half of :meth:`step`."""
        self._check_initialised()
        super().allreduce_grads()

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

    def _find_strays(self) -> None:
        """If backward has not written into ``param.grad()``, sum the arrays that it has written, without buckets.

        Raises:
            RuntimeError: some accumulated gradients lie in buckets, and some do not.
        """
        strays = astray(self._in_order)
        if not strays:
            return
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
        _check_dense(self._in_order, always=True)
        store = self._bucketing
        machine = store.machine(self._contexts[0])
        self._buckets = BucketedGradients(self._in_order, store.algorithm, self._bucket_mb, machine, store.world)
        return self._buckets

    def _drop_buckets(self) -> None:
        if self._buckets and self._buckets.accumulating:
            self._buckets = None
            raise RuntimeError(
                "gradients added up inside no_sync are lost, since a parameter was initialised, cast or moved, has "
                "another grad_req or was taken by another trainer: call step before that"
            )
        self._buckets = None


def _bucketing_store(kvstore: Any, world: Optional[World]) -> Optional[Store]:
    """The store of mxdp with this name, or the given one; None for MXNet's stores.

    Raises:
        ValueError: no store has this name, or the store takes no ``world``.
        TypeError: neither a name nor a store.
    """
    if world and world.size > 1 and not (isinstance(kvstore, str) and kvstore.lower().startswith("mxdp")):
        raise ValueError(f"world is for mxdp's stores by name, such as 'mxdpauto', not for kvstore={kvstore!r}")
    if kvstore is None or isinstance(kvstore, mx.kv.KVStoreBase):
        return kvstore if isinstance(kvstore, Store) else None
    if not isinstance(kvstore, str):
        raise TypeError(f"kvstore is a store's name, a store or None, not {kvstore!r}")
    known = sorted({*MXNET_STORES, *mx.kv.KVStoreBase.kv_registry})
    name = kvstore.lower()
    if name not in known:
        raise ValueError(f"no store is called {kvstore!r}; {did_you_mean(name, known)}")
    return by_name(name, world)


def _check_batch_size(batch_size: float) -> None:
    if not batch_size > 0:
        raise ValueError(f"batch_size is the number of samples on all devices together, more than 0, not {batch_size}")


def _check_options(store: Store, compression_params: Any, update_on_kvstore: Optional[bool]) -> None:
    if compression_params:
        raise ValueError(
            f"the store {store.type} sums gradients as they are and compresses none ({compression_params=!r}): leave "
            "compression_params out, or use kvstore='device'"
        )
    if update_on_kvstore:
        raise ValueError(
            f"the store {store.type} runs no optimiser (update_on_kvstore=True): leave update_on_kvstore out, or use "
            "kvstore='device'"
        )


def _check_dense(params: Sequence[Any], always: bool = False) -> None:
    """Raise a ValueError if a parameter or its gradient is sparse.

    Sparse gradients on a single device are allowed, since gluon needs no store there, but not with ``always``.
    """
    for param in params:
        if not isinstance(param, gluon.Parameter):
            return  # gluon's Trainer says what it takes
        sparse = param._stype != "default" or (param._grad_stype != "default" and (always or len(param.list_ctx()) > 1))
        if sparse:
            raise ValueError(
                f"mxdp's stores sum dense gradients, and the parameter {param.name} is sparse (stype {param._stype}, "
                f"grad_stype {param._grad_stype}): use kvstore='device', or make it dense (sparse_grad=False)"
            )


def _listed(params: Any) -> List[Any]:
    if isinstance(params, (dict, gluon.ParameterDict)):
        return list(params.values())
    return list(params) if isinstance(params, (list, tuple)) else []
