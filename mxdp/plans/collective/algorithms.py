"""Every all-reduce by its name."""

from __future__ import annotations

from typing import Callable, Dict, Sequence

from mxdp.errors import did_you_mean
from mxdp.plans.collective import one_hop, rings, trees
from mxdp.plans.collective.schedule import Schedule

ALGORITHMS: Dict[str, Callable[..., Schedule]] = {
    "bidirectional-ring": rings.bidirectional_ring,
    "direct": one_hop.direct,
    "doubling": trees.doubling,
    "naive": one_hop.naive,
    "ring": rings.ring,
    "sharded": one_hop.sharded,
    "shared-memory": one_hop.shared_memory,
    "tree": trees.tree,
}
"""All all-reduces by name, each made for a number of devices. ``naive`` is the book's."""

AUTO = "auto"


def plan(algorithm: str, devices: int, sizes: Sequence[int] = (1,)) -> Schedule:
    """The plan of this all-reduce for ``devices`` devices and arrays of ``sizes`` elements. Raises a ValueError if
    there is no such algorithm, or less than one device."""
    check_algorithm(algorithm)
    planner = ALGORITHMS[algorithm]
    # The others take all arrays as one vector and cut it evenly, also inside an array.
    return planner(devices, sizes) if planner is one_hop.sharded else planner(devices)


def check_algorithm(algorithm: str, also: Sequence[str] = ()) -> None:
    """Raise a ValueError with the nearest name unless an all-reduce, or one of ``also``, has this name."""
    known = sorted([*ALGORITHMS, *also])
    if algorithm not in known:
        raise ValueError(f"no plan is called {algorithm!r}; {did_you_mean(algorithm, known)}")
