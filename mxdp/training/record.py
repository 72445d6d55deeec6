"""A network as one recorded graph, and what can't be recorded.

MXNet's autograd notes every operator that works on its arrays, also in helper functions, closures and other modules. So
a network is recorded by calling it once on arrays of the right shapes; autograd's notes become MXNet's ``Symbol``::

    net(X, params)            h = relu(dense(X, W, b))           Python, once for each shape
    record                    dot -> add -> maximum -> ...       operators, with the shapes of this call

The graph holds operators, shapes and plain numbers. What it can't hold is refused: arrays from elsewhere, whose values
it would freeze, numbers of arrays, writes in place, and parts in another mode of autograd's (:class:`_Watch`).
"""

from __future__ import annotations

import copy
import threading
from contextlib import contextmanager
from typing import Any, Iterator, List, Optional, Tuple

from mxdp.backend import HostArray, NDArray, autograd, check_losses, mx, np, upload
from mxdp.scratch import Function, Params

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
    net: Function,
    X: NDArray,
    params: Params,
    training: bool,
    loss: Optional[Function] = None,
    y: Optional[NDArray] = None,
) -> Tuple[Any, List[str], NDArray]:
    """``net(X, params)``, or with a loss ``loss(net(X, params), y)`` as it is recorded in a step. Doesn't wait.
    ``training``: autograd's mode.

    Returns the symbol; its names of ``X``, of the parameters and of ``y``; and the scores. Raises a TypeError if a
    function returns no array. Raises a ValueError if one does what a graph can't hold (:class:`_Watch`), uses an array
    that is none of its arguments, or batch_norm; or if ``loss`` doesn't give a loss for each sample, (n,).
    """
    # Copies, since batch_norm writes into its arguments. Nothing runs backward, so no gradient is written.
    given = [X, *params]
    if y is not None:
        given.append(y)
    marked = [array.copy() for array in given]
    autograd.mark_variables(marked, marked)
    name = name_of(net)
    watch = _Watch(recording=loss is not None, training=training)
    with autograd.record(train_mode=training):
        result = scores = watch.call(net, marked[0], marked[1 : len(params) + 1])
        if loss is not None:
            name = f"{name} or {name_of(loss)}"
            result = watch.call(loss, scores, marked[-1])
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
    if loss is not None:
        check_losses([result], [X], name_of(loss))
    return graph, names, scores


class _Watch:
    """Calls functions that are recorded, and refuses what a graph can't hold: it would hold the numbers of an array for
    ever, and lose a write in place and another mode of autograd's.

    ``recording``, ``training``: the modes that the functions see. An evaluation's graph is recorded too, and its
    functions must not see that. So the watch stands in for MXNet's library in ``mxnet.autograd``, where every name of
    autograd's leads, also one that was imported before. Other threads read numbers and change their modes as ever.
    """

    def __init__(self, recording: bool, training: bool) -> None:
        self._recording = recording
        self._training = training
        self._thread = threading.get_ident()
        self._library = mx.base._LIB
        self._refused: List[str] = []

    def call(self, function: Function, *arguments: Any) -> NDArray:
        """The function's result. Raises a ValueError if it does what is refused, a TypeError if it returns no array."""
        result = None
        try:
            with self._watching():
                result = function(*arguments)
        except Exception as error:
            if "already in a computational graph" in str(error):
                self._refused.append(
                    "writes into an array in place (by +=, out= or h[...] =): make a new array, by np.where or "
                    "np.concatenate"
                )
            if not self._refused:
                raise
        if self._refused:  # also where the function has caught the error
            raise ValueError(f"{name_of(function)} {self._refused[0]}")
        if not isinstance(result, np.ndarray):
            kind = type(result).__name__
            raise TypeError(
                f"{name_of(function)} must return one array of MXNet's np, (n, ...), not a {kind}"
            )
        return result

    @contextmanager
    def _watching(self) -> Iterator[None]:
        def asnumpy(array: NDArray) -> HostArray:
            if self._is_watched():
                self._refuse(
                    "reads numbers of an array (by if, float, item, print or NumPy), which differ in each step: use "
                    "operators, such as np.where, or train with mxdp.train_batch"
                )
            return read(array)  # type: ignore[no-any-return]

        with _RECORDING:
            read = mx.nd.NDArray.asnumpy
            library = mx.autograd._LIB
            try:
                mx.nd.NDArray.asnumpy = asnumpy
                mx.autograd._LIB = self
                yield
            finally:
                mx.autograd._LIB = library
                mx.nd.NDArray.asnumpy = read

    def MXAutogradSetIsRecording(self, mode: Any, before: Any) -> int:
        return self._set("MXAutogradSetIsRecording", self._recording, mode, before)

    def MXAutogradSetIsTraining(self, mode: Any, before: Any) -> int:
        return self._set("MXAutogradSetIsTraining", self._training, mode, before)

    def MXAutogradIsRecording(self, answer: Any) -> int:
        return self._ask("MXAutogradIsRecording", self._recording, answer)

    def MXAutogradIsTraining(self, answer: Any) -> int:
        return self._ask("MXAutogradIsTraining", self._training, answer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)

    def _set(self, name: str, seen: bool, mode: Any, before: Any) -> int:
        if not self._is_watched():
            return getattr(self._library, name)(mode, before)  # type: ignore[no-any-return]
        if bool(mode.value) != seen:
            self._refuse(
                "changes autograd's mode (by pause, predict_mode, train_mode or record), which a recorded network "
                "would lose: leave dropout out or give it mode='always', or train with mxdp.train_batch"
            )
        before._obj.value = seen
        return 0

    def _ask(self, name: str, seen: bool, answer: Any) -> int:
        if not self._is_watched():
            return getattr(self._library, name)(answer)  # type: ignore[no-any-return]
        answer._obj.value = seen
        return 0

    def _is_watched(self) -> bool:
        return threading.get_ident() == self._thread

    def _refuse(self, why: str) -> None:
        self._refused.append(why)
        raise ValueError(why)


def check_net(
    net: Function, loss: Function, params: Params, X: HostArray, y: HostArray, classes: int
) -> None:
    """Raise what training or evaluation would raise, for samples like ``X`` and labels like ``y``: as
    :func:`record_graph`, or a ValueError if scores are not of shape (n, ``classes``) or wider."""
    x = upload(X, params[0].ctx)
    labels = upload(y, params[0].ctx)
    *_, scores = record_graph(net, x, params, training=False)
    if scores.ndim != 2 or len(scores) != len(X) or scores.shape[1] < classes:
        raise ValueError(
            f"{name_of(net)} must return scores of shape (n, {classes}), one for each class, not {scores.shape} for "
            f"{len(X)} samples"
        )
    record_graph(net, x, params, True, loss, labels)
