"""A recorded network, bound to its arrays once: one call forward, one backward.

All results of its operators are allocated when it is bound::

    record (:mod:`mxdp.training.record`)    dot -> add -> maximum -> ...       operators, with the shapes of this call
    bind                                    Executor                           all results allocated; a call each way
"""

from __future__ import annotations

import math
from itertools import cycle
from typing import Any, Dict, Iterator, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, HostArray, NDArray, autograd, host_view, mx, np
from mxdp.engine import Call, prepare
from mxdp.scratch import Function, Params
from mxdp.training.record import name_of, record_graph

KEPT = 4
"""Batch shapes whose graphs a device keeps, the most recently used ones. LeNet's takes 28 MB for 256 pictures."""


class BoundGraph:
    """``loss(net(X, params), y)`` with its arrays on one device, for shards like ``X`` and ``y``.

    All that its operators write is allocated once: new memory in each step costs page faults. ``requests`` say of each
    of the ``gradients`` whether it is overwritten (``"write"``) or added to (``"add"``). It uses the memory of
    ``other``, a graph for shards of another length on this device: then each backward pass must follow its own forward
    pass. ``run_ahead`` is the :class:`Inbox`'s.
    """

    def __init__(
        self,
        net: Function,
        loss: Function,
        X: NDArray,
        y: NDArray,
        params: Params,
        gradients: Sequence[NDArray],
        requests: Sequence[str],
        other: Optional[BoundGraph] = None,
        run_ahead: float = math.inf,
    ) -> None:
        self.samples = len(X)
        x = X.copy()
        labels = y.copy()
        self.inputs = [Inbox(x, run_ahead), Inbox(labels, run_ahead)]
        graph, names, scores = record_graph(net, x, params, True, loss, labels)
        self.classes = scores.shape[-1] if scores.ndim else 0
        used = set(graph.list_inputs())
        self._used = [param for name, param in zip(names[1:], params) if name in used]
        if not self._used:
            raise ValueError(
                f"{name_of(net)} uses none of its params, so there is nothing to train"
            )
        self._executor: Any = graph.bind(
            X.ctx,
            dict(zip(names, [x, *params, labels])),
            args_grad=dict(zip(names[1:], gradients)),
            grad_req=dict(zip(names[1:], requests)),
            shared_exec=other and other._executor,
        )
        self._losses = self._executor.outputs[0].as_np_ndarray()
        self._ones = np.ones_like(self._losses)
        self._heads = mx.base.c_handle_array([self._ones])

    def forward(self, X: Batch, y: Batch) -> NDArray:
        """The loss of each sample, in an array that the next call overwrites. Doesn't wait."""
        for inbox, part in zip(self.inputs, (X, y)):
            inbox.put(part)
        # Executor.forward makes an array object for each result as well, and takes twice as long.
        mx.base.check_call(mx.base._LIB.MXExecutorForward(self._executor.handle, 1))
        return self._losses

    def backward(self) -> None:
        """Write or add the gradients of the losses' sum, and note that they are fresh, as autograd does. Those of
        parameters that the graph doesn't use stay as they are. Doesn't wait."""
        library = mx.base._LIB
        mx.base.check_call(library.MXExecutorBackwardEx(self._executor.handle, 1, self._heads, 1))
        for param in self._used:
            library.MXNDArraySetGradState(param.handle, 1)  # 0.3 us


class Inbox:
    """Takes batches to ``array``. A NumPy array is copied through a ring of ``run_ahead + 1`` staging arrays, each with
    a prepared copy; without a bound through a new array each time.

    With new arrays, Python takes 1.10 ms in place of 0.91 for a step of LeNet on two devices (``speed.md``). For a GPU,
    staging arrays lie in the host's memory (not run on a GPU).
    """

    def __init__(self, array: NDArray, run_ahead: float) -> None:
        self.array = array
        host = array.ctx if array.ctx.device_type == "cpu" else mx.cpu()

        def stage() -> Tuple[HostArray, Call]:
            made = np.empty(array.shape, array.dtype, ctx=host)
            return host_view(made), prepare("_copyto", [made], array)

        self._turns: Iterator[Tuple[HostArray, Call]] = iter(stage, None)
        if run_ahead < math.inf:
            self._turns = cycle([stage() for _ in range(int(run_ahead) + 1)])

    def put(self, batch: Batch) -> None:
        """Copy ``batch``, which may then be overwritten. Doesn't wait: the caller must ensure that the copy of
        ``run_ahead + 1`` calls before is done."""
        if isinstance(batch, onp.ndarray):
            memory, copied = next(self._turns)
            memory[...] = batch
            copied()
        else:
            batch.copyto(self.array)


class BoundNet:
    """``net(X, params)``, to give to :func:`mxdp.evaluate`: recorded, and bound for each number of samples and mode,
    the last ``KEPT`` on each device. Doesn't wait.

    Each of MXNet's temporary spaces (``MXNET_CPU_TEMP_COPY``) comes to hold what a training step needs, 26 MB with
    batches of 256. A bound operator always has the same one. Operators that are pushed one by one take all of them in
    turn: one device's process grew from 520 to 1,980 MB when it evaluated after it had trained.
    """

    def __init__(self, net: Function) -> None:
        self._net = net
        self._bound: Dict[Tuple[Any, ...], Tuple[NDArray, Any]] = {}

    def __call__(self, X: NDArray, params: Params) -> NDArray:
        """The scores: a new array, as ``net`` gives it in autograd's mode, training or evaluation. Raises a TypeError
        or ValueError if ``net`` can't be recorded, and inside ``autograd.record()``: there is no way back."""
        if autograd.is_recording():
            raise ValueError(
                "BoundNet has no backward pass, so it can't be called inside autograd.record(): use "
                f"{name_of(self._net)} itself"
            )
        training = autograd.is_training()
        key = (training, *X.shape, X.dtype, *map(id, params))
        bound = self._bound.pop(key, None) or self._bind(X, params, training)
        self._bound[key] = bound  # as the last
        x, executor = bound
        X.copyto(x)
        mx.base.check_call(mx.base._LIB.MXExecutorForward(executor.handle, int(training)))
        return executor.outputs[0].as_np_ndarray().copy()

    def _bind(self, X: NDArray, params: Params, training: bool) -> Tuple[NDArray, Any]:
        """An input and an executor, in place of the device's oldest."""
        on_device = [key for key, (kept, _) in self._bound.items() if kept.ctx == X.ctx]
        for oldest in on_device[: max(0, len(on_device) + 1 - KEPT)]:
            del self._bound[oldest]
        x = X.copy()
        graph, names, _ = record_graph(self._net, x, params, training)
        arrays = dict(zip(names, [x, *params]))
        used = set(names[1:]) & set(graph.list_inputs())
        # With no gradient at all MXNet fuses operators, and those go on with the weights of their first call.
        gradient = {name: np.zeros_like(arrays[name]) for name in sorted(used)[-1:]}
        # The executor keeps the parameters, so no others get their ids.
        return x, graph.bind(X.ctx, arrays, gradient, dict.fromkeys(gradient, "write"))
