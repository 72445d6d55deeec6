"""Moves the gradients of a trainer's parameters into buckets, and notices when they are replaced.

gluon gives a parameter new gradients when it is cast, moved or initialised again. A network hybridised with
``static_shape=True`` keeps writing to the gradient arrays of its first backward pass, even after they were replaced
(source: ``StaticBackward`` in MXNet's ``cached_op.cc``): these are copied into the buckets at each step.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from mxdp.backend import NDArray, mx
from mxdp.collectives.gradients import GradientSync, address
from mxdp.collectives.shards import ShardedSync
from mxdp.engine import prepare
from mxdp.plans.cost.machine import Machine
from mxdp.processes import World

Parameter = Any
CURE = "call step before a parameter is initialised, cast or moved, or gets another grad_req or trainer"


class BucketedGradients:
    """Sums the gradients of all ``params`` over their devices, at each call.

    The constructor moves the gradients with their values: ``param.grad()`` is then a part of a bucket, an array of the
    same kind (classic or NumPy) as before. Parameters without gradients are left out. Parameters with
    ``grad_req="add"`` have buckets of their own. It waits only where the constructor of ``GradientSync`` waits.

    Args:
        params: gluon parameters, all initialised, on the same devices, with dense gradients, in the order in which the
            network uses them.
        algorithm, bucket_mb, machine, world: as for :class:`~mxdp.collectives.GradientSync`.
        sharded: each device sums the gradients alone that it updates (:class:`~mxdp.collectives.shards.ShardedSync`);
            ``algorithm`` and ``machine`` have no effect.
    """

    def __init__(
        self,
        params: Sequence[Parameter],
        algorithm: str,
        bucket_mb: float,
        machine: Optional[Machine],
        world: Optional[World] = None,
        sharded: bool = False,
    ) -> None:
        self._params = list(dict.fromkeys(params))  # one that is given twice has one gradient
        self._views: Dict[int, List[NDArray]] = {}
        self.syncs: List[Tuple[List[Parameter], GradientSync]] = []
        """What sums, and the parameters whose gradients it sums."""
        for request in ("write", "add"):
            members = [param for param in self._params if param.grad_req == request]
            if members:
                replicas = list(zip(*[param.list_data() for param in members]))
                with _freshness_kept(members):
                    accumulate = request == "add"
                    sync: GradientSync
                    if sharded:
                        sync = _WatchedShards(replicas, bucket_mb, accumulate, world)
                    else:
                        sync = _Watched(replicas, algorithm, bucket_mb, machine, accumulate, world)
                    self._move(members, sync)
                self.syncs.append((members, sync))

    def __call__(self) -> None:
        """Sum, in place; doesn't wait."""
        with _freshness_kept(self._params if self.accumulating else []):
            for _, sync in self.syncs:
                sync()

    def fetch(self) -> None:
        """Copy into ``param.grad()`` what a network with ``static_shape=True`` has written elsewhere; doesn't wait.

        Raises:
            RuntimeError: some accumulated gradients lie in buckets, and some do not.
        """
        for param in self._params:
            for data, view in zip(param._data, param._grad or ()):
                written = data.grad
                if written is not None and address(written) != address(view):
                    if self.accumulating:
                        raise RuntimeError(f"the gradient of {param.name} was added up outside its bucket: {CURE}")
                    prepare("_copyto", [written], view)()

    @property
    def accumulating(self) -> bool:
        """Are there gradients from :meth:`no_sync` that are not summed yet?"""
        return any(sync.accumulating for _, sync in self.syncs)

    def hold(self) -> bool:
        """Do all parameters still have the gradients that this object sums?

        Not after ``initialize(force_reinit=True)``, ``cast``, ``reset_ctx`` or a new ``grad_req``, nor after another
        trainer has moved the gradients into its own buckets.
        """
        for param in self._params:
            grads, views = param._grad or (), self._views.get(id(param), ())
            if len(grads) != len(views) or any(grad is not view for grad, view in zip(grads, views)):
                return False
        return True

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As :meth:`mxdp.collectives.GradientSync.no_sync`."""
        with ExitStack() as stack:
            for _, sync in self.syncs:
                stack.enter_context(sync.no_sync())
            yield

    def _move(self, members: Sequence[Parameter], sync: GradientSync) -> None:
        for number, param in enumerate(members):
            before = param.list_grad()
            views = [gradients[number] for gradients in sync.gradients]
            if not isinstance(before[0], mx.np.ndarray):
                views = [view.as_nd_ndarray() for view in views]
            for grad, view in zip(before, views):
                prepare("_copyto", [grad], view)()
            self._views[id(param)] = views
            param._grad = list(views)


class _Watched(GradientSync):
    def _check_places(self) -> None:
        """No check here: the trainer copies strays (:meth:`BucketedGradients.fetch`), or makes new buckets
        (:meth:`BucketedGradients.hold`)."""

    _zero_stale = _check_places  # the trainer refuses, leaves out or zeroes what is stale


class _WatchedShards(_Watched, ShardedSync):
    pass


def unwritten(params: Sequence[Parameter]) -> Dict[int, Set[int]]:
    """By number of each parameter that is trained, the devices on which no backward pass has written its gradient since
    the last step."""
    return {
        number: {device for device, data in enumerate(param._data) if not data._fresh_grad}
        for number, param in enumerate(params)
        if param.grad_req != "null"
    }


def refuse_stale(params: Sequence[Parameter], stale: Mapping[int, Set[int]], alone: bool) -> None:
    """Raise gluon's UserWarning for the first of these gradients, which :func:`unwritten` found, unless the device had
    no samples; or this rank, if it isn't ``alone``."""
    idle = set.intersection(*stale.values()) if stale else set()
    for number, devices in stale.items():
        everywhere = alone and len(idle) == len(params[number]._data)
        for device in sorted(devices if everywhere else devices - idle):
            raise UserWarning(
                f"the gradient of parameter {params[number].name} on {params[number].list_ctx()[device]} has not been "
                "updated by backward since the last step: use the parameter in the forward pass, or call step with "
                "ignore_stale_grad=True"
            )


def zero(params: Sequence[Parameter], stale: Mapping[int, Set[int]]) -> None:
    """Make these gradients zero, in place: they are sums of earlier steps. With ``grad_req="add"`` they are the user's
    to set to zero."""
    for number, devices in stale.items():
        for device in devices if params[number].grad_req == "write" else ():
            params[number]._grad[device][()] = 0


@contextmanager
def _freshness_kept(params: Sequence[Parameter]) -> Iterator[None]:
    """Keep the mark of gradients that backward has written, which the trainer reads: marking a variable clears it."""
    fresh: List[Tuple[NDArray, bool]] = [
        (array, array._fresh_grad) for param in params if param.grad_req != "null" for array in param.list_data()
    ]
    yield
    for array, was_fresh in fresh:
        array._fresh_grad = was_fresh
