"""Small independent operators, called in several ways. Loads MXNet: import it inside ``oracle`` and ``run``.

Operator i adds i to an array, into array i: so none needs another's result, and results that change places show.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Sequence, Tuple

from mxdp.backend import Device, NDArray, gluon, mx, np, upload
from mxdp.experiments.measure.oracle import count_wrong, whole_numbers
from mxdp.prepared import prepare

COUNT, BULK = 30, 15
"""Operators in a group, and of them in one bulk: what MXNet itself takes for the operators of a graph."""


class Additions:
    """A group of ``COUNT`` operators on arrays of ``nbytes``: ``ways[name]()`` pushes it, the results are in ``out``.

    calls   MXNet's own function
    bulk    the same, ``BULK`` of them handed to the engine as one job
    ready   calls that were made ready once (:func:`mxdp.prepared.prepare`)
    graph   one call of a hybridised block: its results are arrays of their own

    With two devices, every second operator is on the second.

    Raises:
        ValueError: ``nbytes`` is not a positive multiple of 4, the bytes of a float32.
    """

    def __init__(self, devices: Sequence[Device], nbytes: int, seed: int = 0) -> None:
        if nbytes < 4 or nbytes % 4:
            raise ValueError(f"arrays are of float32, so a size is 4, 8, 12 ... bytes, not {nbytes!r}")
        self._host = whole_numbers(0, nbytes // 4, seed)
        inputs = [upload(self._host, device) for device in devices]
        self.out = [np.zeros(inputs[0].shape, ctx=devices[i % len(devices)]) for i in range(COUNT)]
        self._jobs: List[Tuple[NDArray, int]] = [(inputs[i % len(inputs)], i) for i in range(COUNT)]
        self._ready = [prepare("_npi_add_scalar", [x], out, scalar=i) for (x, i), out in zip(self._jobs, self.out)]
        self._graph = _Graph()
        self._graph.hybridize(static_alloc=True, static_shape=True)
        self.ways: Dict[str, Callable[[], None]] = {
            "calls": self._calls,
            "bulk": self._bulk,
            "ready": self._call_ready,
            "graph": self._call_graph,
        }

    def _calls(self) -> None:
        for (x, i), out in zip(self._jobs, self.out):
            np.add(x, i, out=out)

    def _bulk(self) -> None:
        with mx.engine.bulk(BULK):
            self._calls()

    def _call_ready(self) -> None:
        for call in self._ready:
            call()

    def _call_graph(self) -> None:
        self.out = self._graph(self._jobs[0][0])

    def compare(self, way: str) -> Tuple[int, int]:
        """Push the group once and compare every result with NumPy's: (numbers compared, numbers wrong)."""
        for out in self.out:
            out[:] = -1
        self.ways[way]()
        counts = [count_wrong(out.asnumpy(), self._host + i, tolerance=0.0) for i, out in enumerate(self.out)]
        return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)


class _Graph(gluon.HybridBlock):  # type: ignore[misc]
    def hybrid_forward(self, F: Any, x: Any) -> List[Any]:
        return [x + i for i in range(COUNT)]
