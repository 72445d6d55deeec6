"""Moves the gradients of a trainer's parameters into buckets, and notices when they are replaced.

gluon gives a parameter new gradients when it is cast, moved or initialised again. A network hybridised with
``static_shape=True`` keeps writing to the gradient arrays of its first backward pass, even after they were replaced
(source: ``StaticBackward`` in MXNet's ``cached_op.cc``): these are copied into the buckets at each step.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, Sequence, Set, Tuple

from mxdp.backend import NDArray, address_of, check_device_list, mx
from mxdp.collectives.gradients import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.engine import prepare

Parameter = Any
CURE = "call step before a parameter is initialised, cast or moved, or gets another grad_req or trainer"


class BucketedGradients(GradientSync):
    """Sums the gradients of all ``params`` over their devices, at each call.

    The constructor moves the gradients with their values: ``param.grad()`` is then a part of a bucket, classic or NumPy
    as before. It leaves out parameters without gradients, and waits as ``GradientSync``'s.

    Args:
        params: gluon parameters, all initialised, on the same devices, with dense gradients, in the order in which the
            network uses them.
        options: ``algorithm``, ``bucket_mb``, ``machine``, ``world``, as for ``GradientSync``.
    """

    def __init__(self, params: Sequence[Parameter], **options: Any) -> None:
        check_device_list(params[0].list_ctx())
        self._params = list(dict.fromkeys(params))  # one that is given twice has one gradient
        self.members = [param for param in self._params if param.grad_req != "null"]
        """Whose gradients it sums."""
        replicas = [[param.list_data()[n] for param in self.members] for n in range(len(params[0].list_ctx()))]
        with _freshness_kept(self.members):
            super().__init__(replicas, accumulate=[param.grad_req == "add" for param in self.members], **options)
            self._views = {id(param): self._moved(param, number) for number, param in enumerate(self.members)}

    def __call__(self) -> None:
        """Sum, in place; doesn't wait."""
        with _freshness_kept(self.members if self.accumulating else []):
            super().__call__()

    def fetch(self) -> None:
        """Copy into ``param.grad()`` what a network with ``static_shape=True`` has written elsewhere; doesn't wait.
        Raises a RuntimeError if only some accumulated gradients lie in buckets."""
        for param in self.members:
            for data, view in zip(param._data, param._grad):
                written = data.grad
                if written is not None and address_of(written) != address_of(view):
                    if self.accumulating:
                        raise RuntimeError(f"the gradient of {param.name} was added up outside its bucket: {CURE}")
                    prepare("_copyto", [written], view)()

    def hold(self) -> bool:
        """False where a parameter has other gradients: after ``initialize(force_reinit=True)``, ``cast``, ``reset_ctx``
        or a new ``grad_req``, or in another trainer's buckets."""
        return all(
            list(map(id, param._grad or ())) == list(map(id, self._views.get(id(param), ()))) for param in self._params
        )

    def _moved(self, param: Parameter, number: int) -> List[NDArray]:
        views = [gradients[number] for gradients in self.gradients]
        if not isinstance(param._grad[0], mx.np.ndarray):
            views = [view.as_nd_ndarray() for view in views]
        for grad, view in zip(param._grad, views):
            prepare("_copyto", [grad], view)()
        param._grad = list(views)
        return views

    def _check_replicas(self, device_params: Sequence[Sequence[NDArray]]) -> None:
        """No check here: gluon has made them, and all may be frozen."""

    def _check_places(self) -> None:
        """No check here: the trainer copies strays (:meth:`fetch`), or makes new buckets (:meth:`hold`)."""

    def _zero_stale(self) -> None:
        """Zero the sums of earlier steps where another device or rank may have a new gradient. Users zero those with
        ``grad_req="add"``; the trainer skips those that no device has replaced."""
        for param in self.members:
            stale = [grad for data, grad in zip(param._data, param._grad) if not data._fresh_grad]
            if param.grad_req == "write" and (self._world.size > 1 or len(stale) < len(param._data)):
                for grad in stale:
                    grad[()] = 0


class ShardedGradients(BucketedGradients, ShardedSync):
    """Where each device sums the gradients alone that it updates; without ``algorithm`` and ``machine``."""


def unwritten(params: Sequence[Parameter]) -> Dict[int, Set[int]]:
    """By number of a trained parameter, the devices where backward has not written its gradient since the last step."""
    return {
        number: {device for device, data in enumerate(param._data) if not data._fresh_grad}
        for number, param in enumerate(params)
        if param.grad_req != "null"
    }


def refuse_stale(params: Sequence[Parameter], stale: Mapping[int, Set[int]], alone: bool) -> None:
    """Raise gluon's UserWarning for the first of these gradients whose device had samples (one has, if ``alone``)."""
    idle = set.intersection(*stale.values()) if stale else set()
    for number, devices in stale.items():
        everywhere = alone and len(idle) == len(params[number]._data)
        for device in sorted(devices if everywhere else devices - idle):
            raise UserWarning(
                f"the gradient of parameter {params[number].name} on {params[number].list_ctx()[device]} has not been "
                "updated by backward since the last step: use the parameter in the forward pass, or call step with "
                "ignore_stale_grad=True"
            )


@contextmanager
def _freshness_kept(params: Sequence[Parameter]) -> Iterator[None]:
    """Keep the mark of gradients that backward has written, which the trainer reads: marking a variable clears it."""
    fresh: List[Tuple[NDArray, bool]] = [(array, array._fresh_grad) for param in params for array in param.list_data()]
    yield
    for array, was_fresh in fresh:
        array._fresh_grad = was_fresh
