"""A cluster of equal nodes, and what an all-reduce costs on it.

A device sends and receives over a link of its own to the others of its node. All devices of a node share one link to
the other nodes::

    node 0   device 0 -+              +- device 2   node 1
                       +== between ===+
             device 1 -+              +- device 3
               inside                    inside

Every message takes ``alpha + m beta`` seconds (:mod:`mxdp.plans.cost.link`), the steps of a plan follow one another,
and a step lasts as long as its busiest link. :func:`patterns` finds the few loads that differ, once for each plan.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Callable, Dict, FrozenSet, Iterable, NamedTuple, Optional, Sequence, Tuple

from mxdp.errors import did_you_mean, plural
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.cost.link import Link


class ExchangeTime(NamedTuple):
    """Seconds of an exchange, by their reason: starts of messages, bytes of messages, and sums."""

    start: float = 0.0
    bytes: float = 0.0
    sums: float = 0.0

    @property
    def seconds(self) -> float:
        """All together."""
        return self.start + self.bytes + self.sums

    def and_then(self, other: ExchangeTime, times: int = 1) -> ExchangeTime:
        """The time of this exchange, and of ``times`` others after it."""
        return ExchangeTime(*(before + times * more for before, more in zip(self, other)))


class Load(NamedTuple):
    """The messages of a link in a step: inside a node, between nodes, those of the latter that start one after another,
    and those of all that its device adds."""

    inside: int
    between: int
    starts_between: int
    added: int


class Pattern(NamedTuple):
    """A step that is done ``times`` times. A message is a ``share`` of the vector. ``loads``: the different ones."""

    action: str
    times: int
    share: float
    loads: FrozenSet[Load]


@dataclass(frozen=True)
class Cluster:
    """``devices`` in each of ``nodes``. ``add``: seconds a byte of a sum; ``overlap``: an all-reduce runs beside the
    backward pass; ``cores``: shared by a node's devices and Python (None: devices that need none, such as GPUs)."""

    devices: int
    nodes: int
    inside: Link
    between: Link
    add: float = 0.0
    overlap: bool = True
    cores: Optional[int] = None

    @property
    def count(self) -> int:
        """Devices in all."""
        return self.devices * self.nodes

    def __str__(self) -> str:
        devices = plural(self.devices, "device")
        return devices if self.nodes == 1 else f"{self.nodes} nodes of {devices}"

    def of(self, count: int) -> Cluster:
        """This cluster with ``count`` devices: part of a node, or whole nodes. Raises a ValueError for others."""
        if count <= self.devices:
            return replace(self, devices=count, nodes=1)
        if count % self.devices:
            raise ValueError(f"{count} devices do not fill nodes of {self.devices}")
        return replace(self, nodes=count // self.devices)

    def exchange(
        self, algorithm: str, nbytes: float, actions: Sequence[str] = (ADD, COPY)
    ) -> ExchangeTime:
        """An all-reduce of ``nbytes`` bytes. ``actions``: its adding half (a reduce-scatter) or its copying half (an
        all-gather) alone. Raises a ValueError if there is no such all-reduce."""
        total = ExchangeTime()
        for pattern in patterns(algorithm, self.devices, self.nodes):
            if pattern.action in actions:
                costs = (self._cost(load, nbytes * pattern.share) for load in pattern.loads)
                busiest = max(costs, key=lambda cost: cost.seconds)
                total = total.and_then(busiest, pattern.times)
        return total

    def _cost(self, load: Load, nbytes: float) -> ExchangeTime:
        return ExchangeTime(
            load.inside * self.inside.alpha + load.starts_between * self.between.alpha,
            nbytes * (load.inside * self.inside.beta + load.between * self.between.beta),
            nbytes * load.added * self.add,
        )


def _planned(name: str, devices: int, nodes: int) -> Iterable[Pattern]:
    """The steps of a plan that has no more sends than n log2(n), as it stands."""
    schedule = plan(name, devices * nodes)
    for step in schedule.steps:
        pairs = [(send.source, send.target) for send in step]
        yield _pattern(step[0].action, 1, 1 / schedule.chunks, pairs, devices)


def _ring(devices: int, nodes: int) -> Iterable[Pattern]:
    """All steps of a ring are alike."""
    n = devices * nodes
    pairs = [(source, (source + 1) % n) for source in range(n)]
    yield _pattern(ADD, n - 1, 1 / n, pairs, devices)
    yield _pattern(COPY, n - 1, 1 / n, pairs, devices)


def _two_level(devices: int, nodes: int) -> Iterable[Pattern]:
    """A reduce-scatter in each node, an all-reduce of each chunk over the nodes, an all-gather in each node, by rings.
    Source: Mikami et al., "Massively distributed SGD: ImageNet/ResNet-50 training in a flash", 2018, arXiv:1811.05233.
    """
    n = devices * nodes
    within = []
    across = []
    for source in range(n):
        node = source - source % devices
        within.append((source, node + (source + 1) % devices))
        across.append((source, (source + devices) % n))
    yield _pattern(ADD, devices - 1, 1 / devices, within, devices)
    yield _pattern(ADD, nodes - 1, 1 / n, across, devices)
    yield _pattern(COPY, nodes - 1, 1 / n, across, devices)
    yield _pattern(COPY, devices - 1, 1 / devices, within, devices)


NODE_ALLREDUCES: Dict[str, Callable[[int, int], Iterable[Pattern]]] = {
    **{name: partial(_planned, name) for name in ("naive", "tree", "doubling")},
    "ring": _ring,
    "two-level": _two_level,
}
HALVES = ("ring", "two-level")
"""The all-reduces whose first half is a reduce-scatter and whose second half is an all-gather."""


@lru_cache(maxsize=256)
def patterns(algorithm: str, devices: int, nodes: int) -> Tuple[Pattern, ...]:
    """The steps of an all-reduce on ``nodes`` nodes of ``devices`` devices, and what their links carry. Raises a
    ValueError if there is no such all-reduce."""
    if algorithm not in NODE_ALLREDUCES:
        raise ValueError(
            f"no all-reduce of many nodes is called {algorithm!r}; {did_you_mean(algorithm, NODE_ALLREDUCES)}"
        )
    steps = NODE_ALLREDUCES[algorithm](devices, nodes)
    return tuple(step for step in steps if step.times and step.loads)


def _pattern(
    action: str, times: int, share: float, pairs: Sequence[Tuple[int, int]], devices: int
) -> Pattern:
    """The loads of all links, where ``pairs`` say who sends to whom. A device's link, out or in, carries one message
    after another. A node's link starts its devices' messages at the same time, and carries all of them."""
    # A link out of a device or a node has its number, the link into it the number's complement (~0 is -1).
    inside: Counter[int] = Counter()
    between: Counter[int] = Counter()
    of_node: Counter[int] = Counter()
    for source, target in pairs:
        here = source // devices
        there = target // devices
        count = inside if here == there else between
        count[source] += 1
        count[~target] += 1
        if here != there:
            of_node[here] += 1
            of_node[~there] += 1
    loads = {Load(0, carried, 1, 0) for carried in of_node.values()}
    for link in {*inside, *between}:
        near = inside[link]
        far = between[link]
        added = near + far if action == ADD and link < 0 else 0
        loads.add(Load(near, far, far, added))
    return Pattern(action, times, share, frozenset(loads))
