"""Every all-reduce by its name, with one signature."""

from __future__ import annotations

from typing import Callable, Dict, Sequence

from mxdp.errors import did_you_mean
from mxdp.plans.collective import one_hop, rings, trees
from mxdp.plans.collective.schedule import Schedule

Planner = Callable[[int, Sequence[int]], Schedule]
"""Makes a plan from the number of devices and the sizes of the arrays that are summed."""


def _evenly(planner: Callable[[int], Schedule]) -> Planner:
    """A plan that takes all arrays as one vector and cuts it evenly, also inside an array."""
    return lambda devices, sizes: planner(devices)


ALGORITHMS: Dict[str, Planner] = {
    "bidirectional-ring": _evenly(rings.bidirectional_ring),
    "direct": _evenly(one_hop.direct),
    "doubling": _evenly(trees.doubling),
    "naive": _evenly(one_hop.naive),
    "ring": _evenly(rings.ring),
    "sharded": one_hop.sharded,
    "shared-memory": _evenly(one_hop.shared_memory),
    "tree": _evenly(trees.tree),
}
"""All all-reduces by name. ``naive`` is the book's."""

AUTO = "auto"


def plan(algorithm: str, devices: int, sizes: Sequence[int] = (1,)) -> Schedule:
    """The plan of this all-reduce for ``devices`` devices and arrays of ``sizes`` elements. Raises a ValueError if
    there is no such algorithm, or less than one device."""
    check_algorithm(algorithm)
    return ALGORITHMS[algorithm](devices, sizes)


def check_algorithm(algorithm: str, also: Sequence[str] = ()) -> None:
    """Raise a ValueError with the nearest name unless an all-reduce, or one of ``also``, has this name."""
    known = sorted([*ALGORITHMS, *also])
    if algorithm not in known:
        raise ValueError(f"no plan is called {algorithm!r}; {did_you_mean(algorithm, known)}")
