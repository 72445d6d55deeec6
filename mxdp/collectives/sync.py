"""What sums the gradients of replicas, in the form in which a training step and its update use it.

============================================  ==========================================================
:class:`mxdp.GradientSync`                    sums whole gradients; each device updates its whole replica
:class:`mxdp.collectives.shards.ShardedSync`  sums, for each device, its parts; it updates and spreads them
:class:`OwnSync`                              calls a function of the user's, which sums whole gradients
============================================  ==========================================================

(:class:`mxdp.Trainer` has gradients of gluon's, and an updater of its own: :mod:`mxdp.gluon.bucketed`.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, List, Mapping, Optional, Protocol, Sequence, Tuple, Union

from mxdp.backend import ADDING, HostArray, NDArray
from mxdp.collectives.fresh import Fresh, Replicas, gradients_of
from mxdp.errors import refuse_step


@dataclass(frozen=True)
class Part:
    """Neighbouring elements of a parameter that one device updates: its number, ``where`` they lie in it as a vector,
    and arrays of them and of their summed gradient, in the parameter's shape if it is whole, else vectors."""

    number: int
    where: slice
    weight: NDArray
    gradient: NDArray

    @property
    def key(self) -> Tuple[int, Optional[int]]:
        """A key that no other part has."""
        return self.number, self.where.start


class Sync(Protocol):
    """Sums the gradients of all replicas in place, at each call. Then ``parts`` are updated, and spread. The methods
    that stand here are right where each device updates its whole replica."""

    fresh: Fresh
    """It knows which gradients are fresh."""
    parts: List[List[Part]]
    """For each device, what it updates."""

    @property
    def requests(self) -> List[str]:
        """For each parameter whether backward adds to its gradient until the next sum (``"add"``), or overwrites it
        (``"write"``)."""

    def __call__(self) -> None:
        """Sum; doesn't wait, unless the user's function does."""

    def spread(self) -> None:
        """Copy the parts that each device has updated to the other devices; doesn't wait."""
        return None  # all have updated all

    def whole(self, held: Sequence[Sequence[NDArray]]) -> Sequence[Union[NDArray, HostArray]]:
        """An array for each parameter, from one for each part: ``held[device]``. All ranks call it."""
        return held[0]


def whole_parts(
    device_params: Replicas, gradients: Sequence[Mapping[int, NDArray]]
) -> List[List[Part]]:
    """The parts where each device updates its whole replica. ``gradients``: of each replica, by parameter number."""
    parts = []
    for params, of_replica in zip(device_params, gradients):
        whole = [Part(n, slice(None), x, of_replica[n]) for n, x in enumerate(params)]
        parts.append(whole)
    return parts


class OwnSync(Sync):
    """A sum of your own (``total``), of gradients that backward overwrites where they are now. What is not fresh counts
    as zero in it, as in :class:`mxdp.GradientSync`, and it raises the same errors. ``user``: as of :class:`Fresh`. The
    constructor waits for the gradients."""

    def __init__(self, device_params: Replicas, total: Callable[[], Any], user: str) -> None:
        gradients = gradients_of(device_params)
        self.fresh = Fresh(device_params, gradients, user)
        self.parts = whole_parts(device_params, gradients)
        self._params = list(device_params[0])
        self._total = total

    @property
    def requests(self) -> List[str]:
        """All are overwritten. Raises a RuntimeError where others that ``no_sync`` has added up would be lost."""
        refuse_step(False, any(sync.adds_up(self._params) for sync in ADDING))
        return ["write"] * len(self._params)

    def __call__(self) -> None:
        """Sum."""
        self.fresh.zero_stale(range(len(self._params)))
        self._total()
        self.fresh.use()
