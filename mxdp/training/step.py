"""One step of training with few Python calls: a network as one recorded graph, an update as one prepared call.

Pushed operator by operator, a LeNet step is 28 operator calls a device, and backward. Python runs beside the devices,
but on as many cores as there are devices each wake-up of Python takes a core from one of them, and the others wait for
it at the next all-reduce. Bound to its arrays once (MXNet's ``Executor``), the network is one call forward and one
backward; the update of all parameters is a third. The operators are the same, so the numbers equal
:func:`mxdp.train_batch`'s, bit for bit.
"""

from __future__ import annotations

from collections import deque
from itertools import cycle
from types import FunctionType
from typing import Any, Callable, Deque, Dict, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, Device, NDArray, check_arrays, check_replicas, host_view, mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.datasets import finite
from mxdp.engine import Call, CompletionEvent, prepare, prepare_update
from mxdp.plans.partition import offsets
from mxdp.scratch import Params, check_batch, cross_entropy, lenet, split_batch, train_batch

RUN_AHEAD = 2
"""Steps that Python may be ahead of the devices. The devices then seldom wait for Python, and memory is bounded. Python
waits for completion events: ``wait_to_read`` queues behind all work on ``cpu(0)``, later steps' too."""


class TrainStep:
    """``step(X, y)`` trains the replicas on one batch, and returns the losses of each shard's samples, in arrays that
    the next step may overwrite. It doesn't wait for them, but for those of the step ``RUN_AHEAD`` steps before: Python
    is never further ahead of a device.

    Args:
        device_params, devices: a replica for each device. Their gradients stay in the arrays that they have now, and
            each step overwrites them.
        sync: sums the gradients of all replicas in place, by default a :class:`mxdp.GradientSync`.
    """

    def __init__(
        self,
        device_params: Sequence[Params],
        devices: Sequence[Device],
        lr: float,
        sync: Optional[Callable[[], Any]] = None,
    ) -> None:
        check_replicas(device_params, devices)
        finite("lr", lr)
        self._replicas, self._devices, self._lr = device_params, devices, float(lr)
        self._sync = sync or GradientSync(device_params)
        self._gradients = [[param.grad for param in params] for params in device_params]
        self._graph = record_graph(lenet, cross_entropy, len(device_params[0]))
        self._bound: Dict[Any, List[BoundGraph]] = {}
        self._updates: Dict[int, List[Call]] = {}
        self._pending: Deque[CompletionEvent] = deque()
        self._noted = True
        """Has each step that was begun an event? Not after Ctrl-C in a step."""

    def __call__(self, X: Batch, y: Batch, samples: Optional[int] = None) -> List[NDArray]:
        """``samples``: of the whole batch, if ``X`` is this process's part of it.

        Raises:
            ValueError: as :func:`mxdp.train_batch`.
            RuntimeError: inside ``no_sync``.
        """
        if not self._noted:
            npx.waitall()
        check_arrays(X=X, y=y)
        self._wait()  # for what Ctrl-C in the last call's wait left: its batch may not be copied yet
        self._noted = False
        samples = samples or len(X)
        if len(X) < len(self._devices) or getattr(self._sync, "accumulating", False):
            losses = train_batch(X, y, self._replicas, self._devices, self._lr, sync=self._sync, samples=samples)
        else:
            losses = self._step(X, y, samples)
        self._pending.append(CompletionEvent(losses))
        self._noted = True
        self._wait()
        return losses

    def _wait(self) -> None:
        while len(self._pending) > RUN_AHEAD:
            self._pending[0].wait()
            self._pending.popleft()

    def _step(self, X: Batch, y: Batch, samples: int) -> List[NDArray]:
        key = X.shape, y.shape, X.dtype, y.dtype
        if key not in self._bound:
            check_batch(X, y, self._replicas, lenet, cross_entropy)
            shards = list(zip(*split_batch(X, y, self._devices)))
            none: Sequence[Optional[BoundGraph]] = [None] * len(shards)
            first = next(iter(self._bound.values()), none)
            self._bound[key] = [
                BoundGraph(self._graph, *shard, params, gradients, other)
                for shard, params, gradients, other in zip(shards, self._replicas, self._gradients, first)
            ]
        graphs = self._bound[key]
        borders = offsets([graph.samples for graph in graphs])
        losses = [graph.forward(X[a:b], y[a:b]) for graph, a, b in zip(graphs, borders, borders[1:])]
        for graph in graphs:
            graph.backward()
        self._sync()
        if samples not in self._updates:
            self._updates[samples] = [prepare_update(params, self._lr / samples) for params in self._replicas]
        for update in self._updates[samples]:
            update()
        return losses


def record_graph(net: Callable[..., Any], loss: Callable[..., Any], params: int) -> Any:
    """``loss(net(X, params), y)`` as an MXNet symbol of ``X``, ``y``, ``w0``, ``w1`` ...

    Both functions are called once, with symbols in place of arrays: they may use arguments, ``np``, ``npx`` and
    operators, but no number of an array.
    """
    X, y, *weights = (mx.sym.var(name).as_np_ndarray() for name in _names(params))
    return _with_symbols(loss)(_with_symbols(net)(X, weights), y)


class BoundGraph:
    """A recorded graph with its arrays on one device, for shards like ``X`` and ``y``.

    All that its operators write is allocated once: asked for anew in each step, the memory of a step costs page faults.
    ``gradients`` are overwritten. It uses the memory of ``other``, a graph for shards of another length on this device:
    then each backward pass must follow its own forward pass.
    """

    def __init__(
        self,
        graph: Any,
        X: NDArray,
        y: NDArray,
        params: Sequence[NDArray],
        gradients: Sequence[NDArray],
        other: Optional[BoundGraph] = None,
    ) -> None:
        names = _names(len(params))
        self.samples = len(X)
        inputs = X.copy(), y.copy()
        self.inputs = [Inbox(array) for array in inputs]
        arrays = dict(zip(names, [*inputs, *params]))
        self._executor: Any = graph.bind(
            X.ctx,
            {name: arrays[name] for name in graph.list_inputs()},
            args_grad=dict(zip(names[2:], gradients)),
            grad_req=dict.fromkeys(names[2:], "write"),
            shared_exec=other and other._executor,
        )
        self._losses = self._executor.outputs[0].as_np_ndarray()
        self._ones = np.ones_like(self._losses)
        self._heads = mx.base.c_handle_array([self._ones])

    def forward(self, X: Batch, y: Batch) -> NDArray:
        """The loss of each sample, in an array that the next call overwrites. Doesn't wait."""
        for own, given in zip(self.inputs, (X, y)):
            own.put(given)
        # Executor.forward makes an array object for each result as well, and takes twice as long.
        mx.base.check_call(mx.base._LIB.MXExecutorForward(self._executor.handle, 1))
        return self._losses

    def backward(self) -> None:
        """Write the gradients of the losses' sum. Doesn't wait."""
        mx.base.check_call(mx.base._LIB.MXExecutorBackwardEx(self._executor.handle, 1, self._heads, 1))


class Inbox:
    """Takes batches to ``array``: a NumPy array by way of a few arrays in turn, each with a prepared copy.

    With an upload and a copy for each batch, Python takes 1.10 ms in place of 0.91 for a step of LeNet on two devices
    (``speed.md``). For a GPU, the arrays lie in the host's memory (not run on a GPU).
    """

    def __init__(self, array: NDArray) -> None:
        self.array = array
        host = array.ctx if array.ctx.device_type == "cpu" else mx.cpu()
        stages = [np.empty(array.shape, array.dtype, ctx=host) for _ in range(RUN_AHEAD + 1)]
        self._turns = cycle([(host_view(stage), prepare("_copyto", [stage], array)) for stage in stages])

    def put(self, batch: Batch) -> None:
        """Copy ``batch``, which may be overwritten as soon as this returns. Doesn't wait: it is the caller who sees to
        it that the copy of ``RUN_AHEAD + 1`` calls before is done."""
        if isinstance(batch, onp.ndarray):
            memory, copy = next(self._turns)
            memory[...] = batch
            copy()
        else:
            batch.copyto(self.array)


class BoundNet:
    """``net(X, params)``, to give to :func:`mxdp.evaluate`: recorded, bound for each number of samples. Doesn't wait.

    Each of MXNet's temporary spaces (``MXNET_CPU_TEMP_COPY``) comes to hold what a training step needs, 26 MB with
    batches of 256. A bound operator always has the same one. Pushed one by one, operators take all of them in turn: one
    device's process grew from 520 to 1,980 MB when it evaluated after it had trained.
    """

    def __init__(self, net: Callable[..., Any]) -> None:
        self._net = net
        self._bound: Dict[Tuple[int, ...], Tuple[NDArray, Any]] = {}

    def __call__(self, X: NDArray, params: Params) -> NDArray:
        """The scores: a new array."""
        key = (*X.shape, *map(id, params))
        if key not in self._bound:
            names, own = _names(len(params)), X.copy()
            X_, _, *weights = (mx.sym.var(name).as_np_ndarray() for name in names)
            arrays = dict(zip(["X", *names[2:]], [own, *params]))
            scores = _with_symbols(self._net)(X_, weights)
            # With no gradient at all MXNet fuses operators, and those go on with the weights of their first call.
            gradient = {names[-1]: np.zeros_like(params[-1])}
            executor = scores.bind(X.ctx, arrays, gradient, dict.fromkeys(gradient, "write"))
            self._bound[key] = own, executor  # which keeps the parameters, so no others get their ids
        own, executor = self._bound[key]
        X.copyto(own)
        mx.base.check_call(mx.base._LIB.MXExecutorForward(executor.handle, 0))
        return executor.outputs[0].as_np_ndarray().copy()


def _names(params: int) -> List[str]:
    return ["X", "y", *(f"w{number}" for number in range(params))]


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
