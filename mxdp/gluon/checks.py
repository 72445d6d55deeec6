"""Checks of ``mxdp.Trainer``'s arguments and parameters, before anything is trained."""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

from mxdp.backend import autograd, gluon, mx
from mxdp.errors import did_you_mean, plural, refuse_step
from mxdp.gluon.store import Store, by_name
from mxdp.processes import World
from mxdp.processes.world import ranks_of

LOCAL_STORES = [
    "device",
    "local",
    "local_allreduce_cpu",
    "local_allreduce_device",
    "local_update_cpu",
    "nccl",
]
DISTRIBUTED = ("async", "async_device", "device_async", "sync", "sync_device", "device_sync")
MXNET_STORES = [*LOCAL_STORES, "dist", *[f"dist_{kind}" for kind in DISTRIBUTED]]
"""The names of MXNet's own stores. For an unknown name MXNet would make a local store."""


def bucketing_store(kvstore: Any, world: Optional[World], **options: Any) -> Optional[Store]:
    """The store of mxdp with this name, or the given one; None for MXNet's stores, which alone have the ``options``.
    Raises a ValueError for an unknown name, or a ``world`` or option that the store can't take; else a TypeError."""
    ours = isinstance(kvstore, str) and kvstore.lower().startswith("mxdp")
    if ranks_of(world).size > 1 and not ours:
        raise ValueError(
            f"world is for mxdp's stores by name, such as 'mxdpauto', not for kvstore={kvstore!r}"
        )
    store = None
    if isinstance(kvstore, Store):
        store = kvstore
    elif isinstance(kvstore, str):
        name = kvstore.lower()
        known = sorted({*MXNET_STORES, *mx.kv.KVStoreBase.kv_registry})
        if name not in known:
            raise ValueError(f"no store is called {kvstore!r}; {did_you_mean(name, known)}")
        store = by_name(name, world)
    elif not (kvstore is None or isinstance(kvstore, mx.kv.KVStoreBase)):
        raise TypeError(f"kvstore is a store's name, a store or None, not {kvstore!r}")
    for option, value in options.items():
        if store and value:
            raise ValueError(
                f"the store {store.type} sums gradients, compresses none and runs no optimiser ({option}={value!r}): "
                f"leave {option} out, or use kvstore='device'"
            )
    return store


def check_before_step(trainer: Any, batch_size: float = 1) -> None:
    """Check that a trainer can sum or update, and note where its parameters lie now.

    Raises a ValueError unless ``batch_size`` is more than 0 and all parameters lie on the same devices, a RuntimeError
    inside ``autograd.record``, or a DeferredInitializationError if a parameter's shape is unknown.
    """
    refuse_step(autograd.is_recording())
    if not batch_size > 0:
        raise ValueError(
            f"batch_size is the number of samples on all devices together, more than 0, not {batch_size}"
        )
    params = trainer._params
    devices = trainer._contexts
    for param in params:
        if param._deferred_init:
            raise gluon.parameter.DeferredInitializationError(
                f"the parameter {param.name} has no values yet, and will have them on {plural(len(devices), 'device')} "
                f"({', '.join(map(str, devices))}): run a forward pass there first, or for other devices call "
                "net.initialize(ctx=devices) before the trainer is made"
            )
        if param._ctx_list != params[0]._ctx_list:
            places = sorted({str(param.list_ctx()) for param in params})
            raise ValueError(
                f"all parameters must lie on the same devices, not on {' and '.join(places)}"
            )
    trainer._contexts = params[-1].list_ctx()  # the parameters may have moved
    # With loss scaling a step is skipped after an overflow, which no device can see in shards.
    if trainer._shards and trainer._amp_loss_scaler:
        raise RuntimeError(
            "shard_optimizer and amp's loss scaling don't work together: leave one of them out"
        )


def check_halves(sharded: bool) -> None:
    """Raise a RuntimeError for half of a step with ``shard_optimizer``."""
    if sharded:
        raise RuntimeError(
            "with shard_optimizer no device has all sums of gradients, so there is no time between the sum and the "
            "update: call step, or leave shard_optimizer out"
        )


def check_params(params: Sequence[Any]) -> None:
    """Raise a ValueError if a parameter is given twice, as by collecting tied layers one by one, or is sparse."""
    for number, param in enumerate(params):
        if any(param is earlier for earlier in params[:number]):
            raise ValueError(
                f"the parameter {param.name} stands in the trainer's list twice, so it would be updated twice: give "
                "each parameter once, as net.collect_params() does"
            )
    check_dense(params)


def check_dense(params: Sequence[Any], always: bool = False) -> None:
    """Raise a ValueError if a parameter or its gradient is sparse. Without ``always`` sparse gradients on a single
    device are allowed, since gluon needs no store there."""
    for param in params:
        summed = always or len(param.list_ctx()) > 1
        if param._stype != "default" or (summed and param._grad_stype != "default"):
            raise ValueError(
                f"mxdp's stores sum dense gradients, and the parameter {param.name} is sparse (stype {param._stype}, "
                f"grad_stype {param._grad_stype}): use kvstore='device', or make it dense (sparse_grad=False)"
            )


def listed(params: Any) -> List[Any]:
    """The parameters in their order, as gluon's Trainer takes them; none if it will refuse them, and say why."""
    if isinstance(params, (dict, gluon.ParameterDict)):
        params = list(params.values())
    if not isinstance(params, (list, tuple)):
        return []
    taken = all(isinstance(param, gluon.Parameter) for param in params)
    return list(params) if taken else []
