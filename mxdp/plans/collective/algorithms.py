"""Every all-reduce by its name, with one signature."""

from __future__ import annotations

from typing import Callable, Dict, Sequence

from mxdp.errors import did_you_mean
from mxdp.plans.collective import one_hop, rings, trees
from mxdp.plans.collective.schedule import Schedule

Planner = Callable[[int, Sequence[int]], Schedule]
"""From the number of devices, and the sizes of the arrays that are to be summed, to the plan."""


def _evenly(planner: Callable[[int], Schedule]) -> Planner:
    """A plan that takes the arrays as one vector, which it cuts without regard to where one array ends."""
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
"""By name, the plan for n devices. ``naive`` is the book's."""

AUTO = "auto"


def plan(algorithm: str, devices: int, sizes: Sequence[int] = (1,)) -> Schedule:
    """The plan of that name for so many devices and arrays of these sizes.

    Raises:
        ValueError: there is no such algorithm (the message names all), or ``devices`` is less than one.
    """
    check_algorithm(algorithm)
    return ALGORITHMS[algorithm](devices, sizes)


def check_algorithm(algorithm: str, also: Sequence[str] = ()) -> None:
    """Is there an all-reduce of that name? Names in ``also`` are allowed too.

    Raises:
        ValueError: there is none; the message suggests the nearest name and lists all.
    """
    known = sorted([*ALGORITHMS, *also])
    if algorithm not in known:
        raise ValueError(f"no plan is called {algorithm!r}; {did_you_mean(algorithm, known)}")
