"""A network as one recorded graph, bound to its arrays once: one call forward, one backward.

MXNet's autograd notes every operator that works on its arrays, also in helper functions, closures and other modules. So
a network is recorded by calling it once on arrays of the right shapes; autograd's notes become MXNet's ``Symbol``::

    net(X, params)            h = relu(dense(X, W, b))           Python, once for each shape
    record                    dot -> add -> maximum -> ...       operators, with the shapes of this call
    bind                      Executor                           all results allocated; a call each way

The graph holds operators, shapes and plain numbers. Arrays from elsewhere are refused: the graph would freeze their
values.
"""

from __future__ import annotations

import copy
import math
import threading
from itertools import cycle
from typing import Any, Dict, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, HostArray, NDArray, autograd, host_view, mx, np, upload
from mxdp.engine import Call, prepare
from mxdp.scratch import Function, Params

KEPT = 4
"""Batch shapes whose graphs a device keeps, the most recently used ones. LeNet's takes 28 MB for 256 pictures."""
_RECORDING = threading.RLock()
"""Held while a network is recorded."""


def name_of(function: Function) -> str:
    """The name of a function in messages and checkpoints; of a partial one, that of the function inside.

    >>> from functools import partial
    >>> name_of(len), name_of(partial(print, end="")), name_of(lambda X, params: X)
    ('len', 'print', '<lambda>')
    """
    return getattr(function, "__name__", "") or name_of(getattr(function, "func", type(function)))


def record_graph(
    net: Function, X: NDArray, params: Params, loss: Optional[Function] = None, y: Optional[NDArray] = None
) -> Tuple[Any, List[str], NDArray]:
    """``net(X, params)`` as in evaluation, or ``loss(net(X, params), y)`` as in training. Doesn't wait.

    Returns the symbol; its names of ``X``, of the parameters and of ``y``; and the scores. Raises a TypeError if a
    function returns no array; a ValueError if one reads numbers of an array, or uses an array that is none of its
    arguments, or batch_norm, or if ``loss`` doesn't give a loss for each sample, (n,).
    """
    # Copies, since batch_norm writes into its arguments. Nothing runs backward, so no gradient is written.
    marked = [array.copy() for array in (X, *params, *([] if y is None else [y]))]
    autograd.mark_variables(marked, marked)
    name = name_of(net)
    with autograd.record(train_mode=loss is not None):
        result = scores = _called(net, marked[0], marked[1 : len(params) + 1])
        if loss is not None:
            name = f"{name} or {name_of(loss)}"
            result = _called(loss, scores, marked[-1])
    names = [autograd.get_symbol(array).name for array in marked]
    try:
        # Without the copy, the symbol keeps all results of this call.
        graph = copy.copy(autograd.get_symbol(result))
    except mx.MXNetError:  # it depends on no argument
        graph = None
    if graph is not None and "BatchNorm" in graph.tojson():
        raise ValueError(
            f"{name} uses batch_norm, whose running means would differ by device: normalise by the batch's mean and "
            "variance, or train with mxdp.Trainer"
        )
    if graph is None or not set(graph.list_inputs()) <= set(names):
        raise ValueError(
            f"{name} uses an array that is none of its arguments, such as np.ones or np.random make, or a global: make "
            "it from the arguments (np.ones_like, npx.one_hot, npx.pick, npx.dropout), or use mxdp.train_batch"
        )
    used = set(graph.list_inputs())
    shapes = {name: array.shape for name, array in zip(names, marked) if name in used}
    if None in graph.get_internals().infer_shape_partial(**shapes)[1]:
        raise ValueError(
            f"{name} has an array whose shape depends on numbers, as np.unique or a mask as an index give it: use "
            "np.where, or train with mxdp.train_batch"
        )
    if loss is not None and result.shape != (len(X),):
        raise ValueError(
            f"{name_of(loss)} must return the loss of each sample, here of shape ({len(X)},), not {result.shape}: "
            "leave its mean or sum out, since the step divides by the batch"
        )
    return graph, names, scores


def _called(function: Function, *arguments: Any) -> NDArray:
    """The result of a function that can't read the numbers of an array: the graph would hold them for ever."""

    def refuse(array: NDArray) -> HostArray:
        if threading.get_ident() != here:
            return read(array)  # type: ignore[no-any-return]
        tried.append(array)
        raise ValueError

    tried: List[NDArray] = []
    here, result = threading.get_ident(), None
    with _RECORDING:
        read = mx.nd.NDArray.asnumpy
        try:
            mx.nd.NDArray.asnumpy = refuse
            result = function(*arguments)
        except Exception:
            if not tried:  # NumPy raises an error of its own
                raise
        finally:
            mx.nd.NDArray.asnumpy = read
    if tried:
        raise ValueError(
            f"{name_of(function)} reads numbers of an array (by if, float, item, print or NumPy), which differ in each "
            "step: use operators, such as np.where, or train with mxdp.train_batch"
        )
    if not isinstance(result, np.ndarray):
        kind = type(result).__name__
        raise TypeError(f"{name_of(function)} must return one array of MXNet's np, (n, ...), not a {kind}")
    return result


def check_net(net: Function, loss: Function, params: Params, X: HostArray, y: HostArray, classes: int) -> None:
    """Raise what training or evaluation would raise, for samples like ``X`` and labels like ``y``: as
    :func:`record_graph`, or a ValueError if scores are not of shape (n, ``classes``) or wider."""
    x, labels = upload(X, params[0].ctx), upload(y, params[0].ctx)
    *_, scores = record_graph(net, x, params)
    if scores.ndim != 2 or len(scores) != len(X) or scores.shape[1] < classes:
        raise ValueError(
            f"{name_of(net)} must return scores of shape (n, {classes}), one for each class, not {scores.shape} for "
            f"{len(X)} samples"
        )
    record_graph(net, x, params, loss, labels)


class BoundGraph:
    """``loss(net(X, params), y)`` with its arrays on one device, for shards like ``X`` and ``y``.

    All that its operators write is allocated once: new memory in each step costs page faults. ``gradients`` are
    overwritten, or with ``adds`` added to. It uses the memory of ``other``, a graph for shards of another length on
    this device: then each backward pass must follow its own forward pass. ``run_ahead`` is the :class:`Inbox`'s.
    """

    def __init__(
        self,
        net: Function,
        loss: Function,
        X: NDArray,
        y: NDArray,
        params: Params,
        gradients: Sequence[NDArray],
        other: Optional[BoundGraph] = None,
        run_ahead: float = math.inf,
        adds: bool = False,
    ) -> None:
        self.samples = len(X)
        inputs = X.copy(), y.copy()
        self.inputs = [Inbox(array, run_ahead) for array in inputs]
        graph, names, scores = record_graph(net, inputs[0], params, loss, inputs[1])
        self.classes, used = scores.shape[-1] if scores.ndim else 0, set(graph.list_inputs())
        if not used.intersection(names[1:-1]):
            raise ValueError(f"{name_of(net)} uses none of its params, so there is nothing to train")
        arrays, written = dict(zip(names, [inputs[0], *params, inputs[1]])), dict(zip(names[1:], gradients))
        kinds, shared = dict.fromkeys(written, "add" if adds else "write"), other and other._executor
        self._executor: Any = graph.bind(X.ctx, arrays, args_grad=written, grad_req=kinds, shared_exec=shared)
        self._losses = self._executor.outputs[0].as_np_ndarray()
        self._ones = np.ones_like(self._losses)
        self._heads = mx.base.c_handle_array([self._ones])
        unused = [x for name, x in written.items() if name not in used and x.size and not adds]
        self._zeros = [prepare("zeros_like", [x], x) for x in unused]
        self._params = list(params)

    def forward(self, X: Batch, y: Batch) -> NDArray:
        """The loss of each sample, in an array that the next call overwrites. Doesn't wait."""
        for inbox, part in zip(self.inputs, (X, y)):
            inbox.put(part)
        # Executor.forward makes an array object for each result as well, and takes twice as long.
        mx.base.check_call(mx.base._LIB.MXExecutorForward(self._executor.handle, 1))
        return self._losses

    def backward(self) -> None:
        """Write or add the gradients of the losses' sum: zero where the graph doesn't use a parameter. Doesn't wait."""
        library = mx.base._LIB
        mx.base.check_call(library.MXExecutorBackwardEx(self._executor.handle, 1, self._heads, 1))
        for zero in self._zeros:
            zero()
        for param in self._params:  # as autograd notes for GradientSync; 0.3 us
            library.MXNDArraySetGradState(param.handle, 1)


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

        bounded = run_ahead < math.inf
        self._turns = cycle([stage() for _ in range(int(run_ahead) + 1)]) if bounded else iter(stage, None)

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
    """``net(X, params)``, to give to :func:`mxdp.evaluate`: recorded, and bound for each number of samples, the last
    ``KEPT`` on each device. Doesn't wait.

    Each of MXNet's temporary spaces (``MXNET_CPU_TEMP_COPY``) comes to hold what a training step needs, 26 MB with
    batches of 256. A bound operator always has the same one. Operators that are pushed one by one take all of them in
    turn: one device's process grew from 520 to 1,980 MB when it evaluated after it had trained.
    """

    def __init__(self, net: Function) -> None:
        self._net = net
        self._bound: Dict[Tuple[Any, ...], Tuple[NDArray, Any]] = {}

    def __call__(self, X: NDArray, params: Params) -> NDArray:
        """The scores: a new array. Raises a TypeError or ValueError if ``net`` can't be recorded."""
        key = (*X.shape, X.dtype, *map(id, params))
        bound = self._bound.pop(key, None)
        if bound is None:
            on_device = [other for other, (x, _) in self._bound.items() if x.ctx == X.ctx]
            for oldest in on_device[: max(0, len(on_device) + 1 - KEPT)]:
                del self._bound[oldest]
            x = X.copy()
            graph, names, _ = record_graph(self._net, x, params)
            arrays, used = dict(zip(names, [x, *params])), set(names[1:]) & set(graph.list_inputs())
            # With no gradient at all MXNet fuses operators, and those go on with the weights of their first call.
            gradient = {name: np.zeros_like(arrays[name]) for name in sorted(used)[-1:]}
            # The executor keeps the parameters, so no others get their ids.
            bound = x, graph.bind(X.ctx, arrays, gradient, dict.fromkeys(gradient, "write"))
        self._bound[key] = x, executor = bound  # as the last
        X.copyto(x)
        mx.base.check_call(mx.base._LIB.MXExecutorForward(executor.handle, 0))
        return executor.outputs[0].as_np_ndarray().copy()
