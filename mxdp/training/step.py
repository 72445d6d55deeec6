"""One step of training with few Python calls: a network as one recorded graph, an update as one prepared call.

Pushed operator by operator, a LeNet step is 28 operator calls a device, and backward. Python runs beside the devices,
but on as many cores as there are devices each wake-up of Python takes a core from one of them, and the others wait for
it at the next all-reduce. As MXNet's ``CachedOp`` forward is one call and backward another; the update of all
parameters is a third. The operators are the same, so the numbers equal :func:`mxdp.train_batch`'s, bit for bit.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Callable, Dict, List, Optional, Sequence

from mxdp.backend import Batch, Device, NDArray, autograd, mx
from mxdp.collectives import GradientSync
from mxdp.engine import Call, prepare_update
from mxdp.scratch import Params, cross_entropy, lenet, split_batch, train_batch

Graph = Callable[..., NDArray]


class TrainStep:
    """``step(X, y)`` trains the replicas on one batch, and returns the losses of each shard's samples. Doesn't wait.

    Args:
        device_params, devices: a replica for each device. Their gradients stay in the arrays that they have now.
        sync: sums the gradients of all replicas in place, by default a :class:`mxdp.GradientSync`.
    """

    def __init__(
        self,
        device_params: Sequence[Params],
        devices: Sequence[Device],
        lr: float,
        sync: Optional[Callable[[], Any]] = None,
    ) -> None:
        self._replicas, self._devices, self._lr = device_params, devices, lr
        self._sync = sync or GradientSync(device_params)
        self._losses = record_graph(lenet, cross_entropy, len(device_params[0]))
        self._updates: Dict[int, List[Call]] = {}

    def __call__(self, X: Batch, y: Batch, samples: Optional[int] = None) -> List[NDArray]:
        """``samples``: of the whole batch, if ``X`` is this process's part of it."""
        samples = samples or len(X)
        if len(X) < len(self._devices):
            return train_batch(X, y, self._replicas, self._devices, self._lr, sync=self._sync, samples=samples)
        shards = zip(*split_batch(X, y, self._devices), self._replicas)
        with autograd.record():
            losses = [self._losses(X_shard, y_shard, *params) for X_shard, y_shard, params in shards]
        autograd.backward(losses)
        self._sync()
        if samples not in self._updates:
            self._updates[samples] = [prepare_update(params, self._lr / samples) for params in self._replicas]
        for update in self._updates[samples]:
            update()
        return losses


def record_graph(net: Callable[..., Any], loss: Callable[..., Any], params: int) -> Graph:
    """``graph(X, y, *params)`` does ``loss(net(X, params), y)``, as one operator, on the device of its arguments.

    Both functions are called once, with symbols in place of arrays: they may use arguments, ``np``, ``npx`` and
    operators, but no number of an array. A call pushes the work and doesn't wait.
    """
    names = ["X", "y", *(f"w{number}" for number in range(params))]
    X, y, *weights = (mx.sym.var(name).as_np_ndarray() for name in names)
    graph = _with_symbols(loss)(_with_symbols(net)(X, weights), y)
    places = [names.index(name) for name in graph.list_inputs()]
    # With static shapes each operator keeps its temporary space. Else it takes the next of the 128 pieces that devices
    # share, and each of them grows: on one device, batch 256, by 1.7 GB in all, over 130 steps.
    operator = mx.nd.CachedOp(graph, [("static_alloc", True), ("static_shape", True)])

    def call(*arrays: NDArray) -> NDArray:
        found: NDArray = operator(*[arrays[place] for place in places])
        return found

    return call


def _with_symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, in whose module ``np`` and ``npx`` are those of symbols."""
    symbols = {"np": mx.sym.np, "npx": mx.sym.npx}
    return FunctionType(
        function.__code__,
        {**function.__globals__, **symbols},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
