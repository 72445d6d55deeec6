"""SGD's update of all replicas, whole or in shards, by prepared calls."""

from __future__ import annotations

from itertools import chain
from typing import Any, Callable, Dict, Iterable, List, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import HostArray, NDArray, mx, upload
from mxdp.collectives.shards import ShardedSync
from mxdp.datasets import finite
from mxdp.engine import Call, prepare
from mxdp.scratch import Params

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
    arrays = zip(*filter(None, (params, gradients or [param.grad for param in params], momenta)))
    lr, calls, rows = float(lr), [], []
    for of_param in arrays:
        if onp.dtype(of_param[0].dtype) == onp.float64:
            calls += _in_double(*of_param, lr=lr, momentum=momentum)
        else:
            rows.append((of_param, lr, 0.0))
    calls += sgd_calls(rows, **({"momentum": momentum} if momenta else {}))

    def update() -> None:
        for call in calls:
            call()

    return update


def sgd_calls(
    rows: Iterable[Tuple[Sequence[NDArray], float, float]], **options: float
) -> List[Call]:
    """Prepared calls of MXNet's operators for SGD: each large array by a call alone, small ones together.

    ``rows``: a parameter, its gradient and, if the ``options`` have a momentum, its momentum; the rate; weight decay.
    """
    name, calls = "sgd_mom_update" if "momentum" in options else "sgd_update", []
    groups: Dict[Any, List[Tuple[Sequence[NDArray], float, float]]] = {}
    for arrays, lr, wd in rows:
        weight, large = arrays[0], updates_alone(arrays[0])
        # With weight decay and without momentum, sgd_update rounds otherwise than multi_sgd_update, as gluon's SGD.
        if large and onp.dtype(weight.dtype) == onp.float32 and ("momentum" in options or not wd):
            calls.append(prepare(name, arrays, weight, lr=lr, wd=wd, **options))
        else:
            kind = id(weight) if large else (weight.ctx, onp.dtype(weight.dtype))
            groups.setdefault(kind, []).append((arrays, lr, wd))
    for group in groups.values():
        for start in range(0, len(group), ROOM):
            some, lrs, wds = zip(*group[start : start + ROOM])
            weights, many = (
                [weight for weight, *_ in some],
                dict(lrs=lrs, wds=wds, num_weights=len(some)),
            )
            calls.append(prepare(f"multi_{name}", list(chain(*some)), *weights, **many, **options))
    return calls


def _in_double(
    param: NDArray, gradient: NDArray, *momenta: NDArray, lr: float, momentum: float
) -> List[Call]:
    """The update in the operators of :func:`mxdp.scratch.sgd`: those of MXNet's optimisers round ``lr`` to float32."""
    change = mx.np.empty(param.shape, dtype=param.dtype, ctx=param.ctx)
    calls = [prepare("_mul_scalar", [gradient], change, scalar=lr)]
    if not momenta:
        return [*calls, prepare("broadcast_sub", [param, change], param)]
    (v,) = momenta
    calls += [
        prepare("_mul_scalar", [v], v, scalar=momentum),
        prepare("broadcast_sub", [v, change], v),
    ]
    return [*calls, prepare("broadcast_add", [param, v], param)]


def check_momentum(momentum: float) -> None:
    """Raise a ValueError unless it is at least 0 and less than 1."""
    finite("momentum", momentum)
    if not 0 <= momentum < 1:
        raise ValueError(f"momentum is at least 0 and less than 1, not {momentum}")


class Update:
    """``w -= lr / samples * g`` for all replicas. With ``momentum``: ``v = momentum * v - lr / samples * g; w += v``.

    Args:
        sync: has summed the gradients before each call. With a :class:`ShardedSync` each device has, and updates, the
            momentum and the parameters of its part alone, and sends these to the others.
    """

    def __init__(
        self,
        device_params: Sequence[Params],
        lr: float,
        sync: Callable[[], Any],
        momentum: float = 0.0,
    ) -> None:
        finite("lr", lr)
        check_momentum(momentum)
        self._lr, self._momentum = float(lr), float(momentum)
        self._sync = sync if isinstance(sync, ShardedSync) else None
        if self._sync:
            self._weights = [[part.weight for part in parts] for parts in self._sync.parts]
            self._gradients = [[part.gradient for part in parts] for parts in self._sync.parts]
        else:
            self._weights = [list(params) for params in device_params]
            self._gradients = [[param.grad for param in params] for params in device_params]
        self._momenta = [
            [mx.np.zeros(w.shape, dtype=w.dtype, ctx=w.ctx) for w in weights] if momentum else []
            for weights in self._weights
        ]
        self._shapes = [param.shape for param in device_params[0]]
        self._calls: Dict[int, List[Call]] = {}

    def __call__(self, samples: int) -> None:
        """Update; doesn't wait. ``samples``: of the whole batch."""
        calls = self._calls.pop(samples, None) or [
            prepare_update(weights, self._lr / samples, gradients, momenta, self._momentum)
            for weights, gradients, momenta in zip(self._weights, self._gradients, self._momenta)
            if weights
        ]
        self._calls[samples] = calls  # as the last
        if len(self._calls) > KEPT:
            del self._calls[next(iter(self._calls))]
        for call in calls:
            call()
        if self._sync:
            self._sync.spread()

    def state(self) -> Sequence[Union[NDArray, HostArray]]:
        """Each parameter's momentum; nothing without one. Shards are put together: it waits, and all ranks call it."""
        if not (self._sync and self._momentum):
            return self._momenta[0]
        whole = self._sync.whole([[[x] for x in momenta] for momenta in self._momenta])
        return [
            whole[n][0] if n in whole else onp.zeros(shape, "float32")
            for n, shape in enumerate(self._shapes)
        ]

    def load(self, state: Sequence[HostArray]) -> None:
        """Continue with what :meth:`state` gave, on these or other devices, whole or in shards. Nothing: from zero."""
        for device, momenta in enumerate(self._momenta if state else ()):
            values: Sequence[HostArray] = state
            if self._sync:
                values = [
                    state[part.number].reshape(-1)[part.where] for part in self._sync.parts[device]
                ]
            for v, value in zip(momenta, values):
                upload(value.reshape(v.shape), v.ctx).copyto(v)
