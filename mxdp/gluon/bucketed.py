"""The gradients of a trainer's parameters, moved into buckets and watched: others may come to stand in their place.

gluon itself gives a parameter new gradients when it is cast, moved or initialised anew. And a network hybridised with
``static_shape=True`` goes on writing to the arrays of its first backward pass, whatever they were replaced by: then
autograd knows another gradient than the parameter does (source: ``StaticBackward`` in MXNet's ``cached_op.cc``).
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import NDArray, mx
from mxdp.collectives.gradients import GradientSync, address
from mxdp.plans.cost.machine import Machine
from mxdp.prepared import prepare

Parameter = Any


class BucketedGradients:
    """Sums the gradients of all ``params`` over their devices, whenever it is called.

    Making it moves the gradients, with what stands in them: ``param.grad()`` is then a part of a bucket, an array of
    the same kind (classic or NumPy's) as before. Parameters without gradients stay out, and those that add up their
    gradients (``grad_req="add"``) have buckets of their own. It waits only where making a ``GradientSync`` does.

    Args:
        params: gluon's parameters, all initialised, on the same devices, with dense gradients; in the order in which
            the network uses them.
        algorithm, bucket_mb, machine: as for :class:`~mxdp.collectives.GradientSync`.
    """

    def __init__(
        self, params: Sequence[Parameter], algorithm: str, bucket_mb: float, machine: Optional[Machine]
    ) -> None:
        self._params = list(params)
        self._views: Dict[int, List[NDArray]] = {}
        self._syncs: List[GradientSync] = []
        for request in ("write", "add"):
            members = [param for param in self._params if param.grad_req == request]
            if members:
                replicas = list(zip(*[param.list_data() for param in members]))
                with _freshness_kept(members):
                    sync = _Watched(replicas, algorithm, bucket_mb, machine, accumulate=request == "add")
                    self._move(members, sync)
                self._syncs.append(sync)

    def __call__(self) -> None:
        """Sum, in place; doesn't wait."""
        with _freshness_kept(self._params if self.accumulating else []):
            for sync in self._syncs:
                sync()

    @property
    def accumulating(self) -> bool:
        """Have backward passes inside :meth:`no_sync` added up gradients that are not summed yet?"""
        return any(sync.accumulating for sync in self._syncs)

    def hold(self) -> bool:
        """Do all parameters still have the gradients that this object sums?

        They don't after ``initialize(force_reinit=True)``, ``cast``, ``reset_ctx``, another ``grad_req``, or when
        another trainer has moved them into its own buckets.
        """
        return all(_same(param._grad, self._views.get(id(param))) for param in self._params)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """As :meth:`mxdp.collectives.GradientSync.no_sync`."""
        with ExitStack() as stack:
            for sync in self._syncs:
                stack.enter_context(sync.no_sync())
            yield

    def _move(self, members: Sequence[Parameter], sync: GradientSync) -> None:
        for number, param in enumerate(members):
            before = param.list_grad()
            views = [_alike(gradients[number], grad) for gradients, grad in zip(sync.gradients, before)]
            for grad, view in zip(before, views):
                prepare("_copyto", [grad], view)()
            self._views[id(param)] = views
            param._grad = list(views)


class _Watched(GradientSync):
    def _check_places(self) -> None:
        """Nothing: the trainer looks for itself (:func:`astray`, :meth:`BucketedGradients.hold`) and makes new ones."""


def astray(params: Sequence[Parameter]) -> List[Parameter]:
    """The parameters whose gradients backward writes elsewhere than where ``param.grad()`` reads them."""
    return [param for param in params if param._grad is not None and not all(map(_meet, param._data, param._grad))]


def follow(params: Sequence[Parameter]) -> None:
    """Let ``param.grad()`` read where backward writes."""
    for param in params:
        param._grad = [data.grad for data in param.list_data()]


def _meet(data: NDArray, grad: NDArray) -> bool:
    written = data.grad
    return written is None or address(written) == address(grad)


@contextmanager
def _freshness_kept(params: Sequence[Parameter]) -> Iterator[None]:
    """Let the trainer still see which gradients backward has written: to mark a variable anew forgets it."""
    fresh: List[Tuple[NDArray, bool]] = [
        (array, array._fresh_grad) for param in params if param.grad_req != "null" for array in param.list_data()
    ]
    yield
    for array, was_fresh in fresh:
        array._fresh_grad = was_fresh


def _alike(view: NDArray, grad: NDArray) -> NDArray:
    """``view`` as the kind of array that ``grad`` is."""
    return view if isinstance(grad, mx.np.ndarray) else view.as_nd_ndarray()


def _same(grads: Optional[Sequence[NDArray]], views: Optional[Sequence[NDArray]]) -> bool:
    if grads is None or views is None:
        return grads is views
    return len(grads) == len(views) and all(grad is view for grad, view in zip(grads, views))
