"""SGD's update of all replicas, whole or in shards, by prepared calls."""

from __future__ import annotations

from itertools import chain
from typing import Any, Dict, Iterable, List, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import HostArray, NDArray, mx, upload
from mxdp.collectives.sync import Sync
from mxdp.datasets import finite
from mxdp.engine import Call, prepare

ROOM = 60
"""Arrays that MXNet's ``multi_sgd_update`` and ``multi_sgd_mom_update`` have room for. They don't check it."""
KEPT = 16
"""How many batch sizes keep their prepared calls, the most recently used ones."""


def updates_alone(x: NDArray) -> bool:
    """True for a large array on a CPU. ``sgd_update`` takes 1.2 ns an element. ``multi_sgd_update`` asks at each one
    which arrays have it, and takes 1.5 ns for arrays of one size, 2.9 for ResNet-18's."""
    return bool(x.ctx.device_type.startswith("cpu") and x.size >= 1 << 14)


def prepare_update(
    params: Sequence[NDArray],
    lr: float,
    gradients: Sequence[NDArray] = (),
    momenta: Sequence[NDArray] = (),
    momentum: float = 0.0,
) -> Call:
    """A function for ``param -= lr * gradient``, in place for all of them; ``gradients``: by default ``param.grad``.
    With ``momenta``, a ``v`` for each parameter, it is ``v = momentum * v - lr * gradient; param += v``."""
    gradients = gradients or [param.grad for param in params]
    columns = [params, gradients]
    options: Dict[str, float] = {}
    if momenta:
        columns.append(momenta)
        options["momentum"] = momentum
    calls = []
    rows = []
    for arrays in zip(*columns):
        if onp.dtype(arrays[0].dtype) == onp.float64:
            calls += _in_double(*arrays, lr=float(lr), momentum=momentum)
        else:
            rows.append((arrays, float(lr), 0.0))
    calls += sgd_calls(rows, **options)

    def update() -> None:
        for call in calls:
            call()

    return update


Row = Tuple[Sequence[NDArray], float, float]
"""A parameter, its gradient and perhaps its momentum; the rate; the weight decay."""


def sgd_calls(rows: Iterable[Row], **options: float) -> List[Call]:
    """Prepared calls of MXNet's operators for SGD: each large array by a call alone, small ones together.

    ``options``: the operators' own. The rows have momenta if it has a momentum."""
    calls = []
    name = "sgd_mom_update" if "momentum" in options else "sgd_update"
    groups: Dict[Any, List[Row]] = {}
    for row in rows:
        arrays, lr, wd = row
        weight = arrays[0]
        dtype = onp.dtype(weight.dtype)
        large = updates_alone(weight)
        # With weight decay and without momentum, sgd_update rounds otherwise than multi_sgd_update, as gluon's SGD.
        if large and dtype == onp.float32 and ("momentum" in options or not wd):
            calls.append(prepare(name, arrays, weight, lr=lr, wd=wd, **options))
        elif large:
            groups[id(weight)] = [row]
        else:
            groups.setdefault((weight.ctx, dtype), []).append(row)
    for group in groups.values():
        for start in range(0, len(group), ROOM):
            some = group[start : start + ROOM]
            calls.append(_of_several(f"multi_{name}", some, options))
    return calls


def _of_several(name: str, rows: Sequence[Row], options: Dict[str, float]) -> Call:
    """One call of MXNet's operator for several parameters."""
    arrays, lrs, wds = zip(*rows)
    weights = [weight for weight, *_ in arrays]
    inputs = list(chain(*arrays))
    return prepare(name, inputs, *weights, lrs=lrs, wds=wds, num_weights=len(rows), **options)


def _in_double(
    param: NDArray, gradient: NDArray, *momenta: NDArray, lr: float, momentum: float
) -> List[Call]:
    """The update in the operators of :func:`mxdp.scratch.sgd`: those of MXNet's optimisers round ``lr`` to float32."""
    change = mx.np.empty(param.shape, dtype=param.dtype, ctx=param.ctx)
    calls = [prepare("_mul_scalar", [gradient], change, scalar=lr)]
    if not momenta:
        return [*calls, prepare("broadcast_sub", [param, change], param)]
    (v,) = momenta
    calls.append(prepare("_mul_scalar", [v], v, scalar=momentum))
    calls.append(prepare("broadcast_sub", [v, change], v))
    calls.append(prepare("broadcast_add", [param, v], param))
    return calls


def check_momentum(momentum: float) -> None:
    """Raise a ValueError unless it is at least 0 and less than 1."""
    finite("momentum", momentum)
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum is at least 0 and less than 1, not {momentum}")


class Update:
    """``w -= lr / samples * g`` for all replicas. With ``momentum``: ``v = momentum * v - lr / samples * g; w += v``.

    ``sync`` has summed the gradients before each call. Each device updates, and has the momentum of, its parts alone,
    and sends them to those that lack them.
    """

    def __init__(self, sync: Sync, lr: float, momentum: float = 0.0) -> None:
        finite("lr", lr)
        check_momentum(momentum)
        self._sync = sync
        self._lr = float(lr)
        self._momentum = float(momentum)
        self._parts = sync.parts
        self._momenta: List[List[NDArray]] = [[] for _ in self._parts]
        if momentum:
            for parts, momenta in zip(self._parts, self._momenta):
                for part in parts:
                    w = part.weight
                    momenta.append(mx.np.zeros(w.shape, dtype=w.dtype, ctx=w.ctx))
        self._calls: Dict[int, List[Call]] = {}

    def __call__(self, samples: int) -> None:
        """Update; doesn't wait. ``samples``: of the whole batch."""
        calls = self._calls.pop(samples, None) or self._prepare(samples)
        self._calls[samples] = calls  # as the last
        if len(self._calls) > KEPT:
            del self._calls[next(iter(self._calls))]
        for call in calls:
            call()
        self._sync.spread()

    def _prepare(self, samples: int) -> List[Call]:
        """A call for each device that has parts."""
        calls = []
        for parts, momenta in zip(self._parts, self._momenta):
            if parts:
                weights = [part.weight for part in parts]
                gradients = [part.gradient for part in parts]
                rate = self._lr / samples
                calls.append(prepare_update(weights, rate, gradients, momenta, self._momentum))
        return calls

    def state(self) -> Sequence[Union[NDArray, HostArray]]:
        """Each parameter's momentum; nothing without one. Shards are put together: it waits, and all ranks call it."""
        return self._sync.whole(self._momenta) if self._momentum else []

    def load(self, state: Sequence[HostArray]) -> None:
        """Continue with what :meth:`state` gave, on these or other devices, whole or in shards. Nothing: from zero."""
        if not state:
            return
        for parts, momenta in zip(self._parts, self._momenta):
            for part, v in zip(parts, momenta):
                value = state[part.number].reshape(-1)[part.where]
                upload(value.reshape(v.shape), v.ctx).copyto(v)
