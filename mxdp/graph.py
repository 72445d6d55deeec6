"""One step of training with few Python calls: a network as one recorded graph, an update as one call.

Pushed operator by operator, a LeNet step costs Python some 50 calls a device. They run beside the devices, but on as
many cores as there are devices each wake-up of Python takes a core from one of them, and the others wait for it at the
next all-reduce. As MXNet's ``CachedOp`` forward is one call, backward another, and the update of all parameters a third.
The operators are the same, so the numbers are equal, bit for bit.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any, Callable, Dict, Sequence

from mxdp.backend import NDArray, mx
from mxdp.engine import Call, prepare_update

Graph = Callable[..., NDArray]


def record_graph(net: Callable[..., Any], loss: Callable[..., Any], params: int) -> Graph:
    """``graph(X, y, *params)`` does ``loss(net(X, params), y)``, as one operator, on the device of its arguments.

    Both functions are called once, with symbols in place of arrays: they may use arguments, ``np``, ``npx`` and
    operators, but no number of an array. A call pushes the work and doesn't wait.
    """
    X, y, *weights = (mx.sym.var(name).as_np_ndarray() for name in ("X", "y", *(f"w{n}" for n in range(params))))
    graph = _with_symbols(loss)(_with_symbols(net)(X, weights), y)
    order = {name: place for place, name in enumerate(("X", "y", *(f"w{n}" for n in range(params))))}
    places = [order[name] for name in graph.list_inputs()]
    operator = mx.nd.CachedOp(graph, [("static_alloc", True)])

    def call(*arrays: NDArray) -> NDArray:
        found: NDArray = operator(*[arrays[place] for place in places])
        return found

    return call


def _with_symbols(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, in whose module ``np`` and ``npx`` are those of symbols."""
    symbols = {"np": mx.sym.np, "npx": mx.sym.npx}
    return FunctionType(
        function.__code__,  # type: ignore[attr-defined]
        {**function.__globals__, **symbols},  # type: ignore[attr-defined]
        function.__name__,
        function.__defaults__,  # type: ignore[attr-defined]
        function.__closure__,  # type: ignore[attr-defined]
    )


class Update:
    """``sgd`` on one replica as one call: ``param -= lr / batch_size * param.grad`` for all its parameters."""

    def __init__(self, params: Sequence[NDArray], lr: float) -> None:
        self._params, self._lr = list(params), lr
        self._calls: Dict[int, Call] = {}

    def __call__(self, batch_size: int) -> None:
        """Push it. Doesn't wait."""
        if batch_size not in self._calls:
            self._calls[batch_size] = prepare_update(self._params, self._lr / batch_size)
        self._calls[batch_size]()
