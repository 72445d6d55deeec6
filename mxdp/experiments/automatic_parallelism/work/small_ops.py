"""Pushes groups of small independent operators, in each of several ways.

Operator i adds i to an array, into array i. So no operator needs another's result, and results that change places show.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Device, NDArray, devices, gluon, mx, np, npx, upload
from mxdp.engine import prepare
from mxdp.experiments.automatic_parallelism.small_ops import BOTH, ENVIRONMENTS, NONE, ONE, SIDE_BY_SIDE, TWO
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.clock import mean_seconds
from mxdp.experiments.measure.oracle import whole_numbers
from mxdp.tracing import section

COUNT, BULK = 30, 15
"""Operators in a group, and of them in one bulk: MXNet's own number for the operators of a graph."""
COMPARED = 1 << 18
"""Bytes of the largest arrays that are compared with NumPy's: a group has 30 of them, and there are many groups."""
RECORDED, LARGE = (ONE, TWO, NONE), 1 << 18
"""Where a group in every way is recorded: these environments, the smallest size and the one nearest to LARGE bytes."""


class Additions:
    """A group of ``COUNT`` operators on arrays of ``nbytes``: ``ways[name]()`` pushes it, the results are in ``out``.

    calls   MXNet's own function
    bulk    the same, ``BULK`` of them handed to the engine as one job
    ready   calls that were prepared once (:func:`mxdp.engine.prepare`)
    graph   one call of a hybridised block: its results are arrays of its own

    With two devices, every second operator is on the second.
    """

    def __init__(self, places: Sequence[Device], nbytes: int, seed: int = 0) -> None:
        self._host = whole_numbers(0, nbytes // 4, seed)
        inputs = [upload(self._host, device) for device in places]
        self.out = [np.zeros(inputs[0].shape, ctx=places[i % len(places)]) for i in range(COUNT)]
        self._jobs: List[Tuple[NDArray, int]] = [(inputs[i % len(inputs)], i) for i in range(COUNT)]
        self._ready = [prepare("_npi_add_scalar", [x], out, scalar=i) for (x, i), out in zip(self._jobs, self.out)]
        self._graph = _Graph()
        self._graph.hybridize(static_alloc=True, static_shape=True)
        self.ways: Dict[str, Callable[[], None]] = dict(
            calls=self._calls, bulk=self._bulk, ready=self._call_ready, graph=self._call_graph
        )

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

    def compared(self, way: str) -> Iterator[Tuple[Any, Any, float]]:
        """Push the group once: every result beside NumPy's, with tolerance 0."""
        for out in self.out:
            out[:] = -1
        self.ways[way]()
        for i, out in enumerate(self.out):
            yield out.asnumpy(), self._host + i, 0.0


class _Graph(gluon.HybridBlock):  # type: ignore[misc]
    def hybrid_forward(self, F: Any, x: Any) -> List[Any]:
        return [x + i for i in range(COUNT)]


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """A group in every way."""
    for way in _ways(case):
        additions, call = _additions(way, case, settings, largest=COMPARED)
        yield from additions.compared(call)


def set_up(case: Case, settings: Settings) -> Work:
    """A round times a group in every way, on arrays of its own."""
    ways = _ways(case)

    def one_round() -> Round:
        found: Dict[str, float] = {}
        for way in ways:
            additions, call = _additions(way, case, settings)
            pushed, done = mean_seconds(additions.ways[call], settings["round_seconds"])
            del additions  # the cases share one process, so none may hold memory while another is measured
            found.update({f"{way}_us": 1e6 * done / COUNT, f"{way}_push_us": 1e6 * pushed / COUNT})
        for way in SIDE_BY_SIDE:
            if f"{way}{BOTH}" in ways:
                found[f"{way}_two_devices_over_one"] = found[f"{way}{BOTH}_us"] / found[f"{way}_us"]
        return Round(found["calls_us"] / 1e6, {**found, "ops_per_sec": 1e6 / found["calls_us"]})

    def push(made: Dict[str, Tuple[Additions, str]]) -> None:
        for way, (additions, call) in made.items():
            with section(way.replace(BOTH, "+")):  # named as its column is
                additions.ways[call]()
                npx.waitall()

    def record() -> Callable[[], None]:
        again = partial(push, {way: _additions(way, case, settings) for way in ways})
        again()  # a graph is built at its first call
        return again

    sizes = settings["sizes"]
    recorded_sizes = min(sizes), min(sizes, key=lambda nbytes: abs(nbytes - LARGE))
    recorded = case.settings["engine"] in RECORDED and case.settings["bytes"] in recorded_sizes
    return Work(devices(2, settings["kind"]), one_round, record if recorded else None)


def _ways(case: Case) -> Sequence[str]:
    return ENVIRONMENTS[case.settings["engine"]][1]


def _additions(way: str, case: Case, settings: Settings, largest: Optional[int] = None) -> Tuple[Additions, str]:
    """Fresh arrays on the devices of this way, of ``largest`` bytes at most, and the name of its call."""
    places = devices(2, settings["kind"])[: 2 if way.endswith(BOTH) else 1]
    nbytes = min(case.settings["bytes"], largest or case.settings["bytes"])
    return Additions(places, nbytes, settings["seed"]), way.replace(BOTH, "")
