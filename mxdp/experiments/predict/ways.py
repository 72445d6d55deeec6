"""The ways to do a step that are compared, and how far they scale."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Dict, Iterable, List, NamedTuple, Tuple

from mxdp.experiments.predict import published
from mxdp.experiments.predict.inputs import Known
from mxdp.experiments.show.style import number
from mxdp.plans.cost.cluster import HALVES, NODE_ALLREDUCES, Cluster
from mxdp.plans.cost.machine import MIB
from mxdp.plans.cost.step import LITTLE, Network, Prediction, Way, predict_step

BUCKETS = (1.0, 4.0, 25.0, 100.0, 1024.0)
"""MiB."""
PASSES = 4
"""How many a sum is of, where it is of several."""
MICRO_BATCHES = 4
"""How many each stage of a pipeline has: GPipe's paper finds the bubble small from there on."""
Curves = Dict[str, List[Tuple[int, float]]]
LIMITS = {
    "latency": "the starts of messages",
    "bandwidth": "the bytes of messages",
    "sums": "the sums",
    "the slowest": "the slowest of all devices",
    "Python and shared cores": "Python, and devices that share the cores",
}
"""What a sum is limited by, in a sentence."""
OTHERS = "; no other all-reduce is faster by a percent."
HEADINGS = ("way", "ms", "samples/s", "of linear", "limited by")


class Compared(NamedTuple):
    """A way in words, and what is predicted of it."""

    title: str
    way: Way
    step: Prediction

    def cells(self) -> List[str]:
        """Under ``HEADINGS``."""
        step = self.step
        milliseconds = number(1e3 * step.seconds)
        rate = number(step.samples / step.seconds)
        return [self.title, milliseconds, rate, f"{step.efficiency:.0%}", step.limit]

    def as_json(self) -> Dict[str, Any]:
        """All numbers."""
        step = self.step
        return dict(
            way=self.title,
            seconds=step.seconds,
            samples_per_second=step.samples / step.seconds,
            efficiency=step.efficiency,
            limit=step.limit,
            alone_seconds=step.alone,
            lost_seconds=step.lost,
        )


class Predicted(NamedTuple):
    """All that is predicted of a network with ``batch`` samples a device, and what it starts from."""

    network: Network
    cluster: Cluster
    batch: int
    rows: List[Compared]
    curves: Curves
    known: List[Known]

    @property
    def title(self) -> str:
        """The network, and where."""
        return f"{self.network.name} on {self.cluster}"

    @property
    def answer(self) -> str:
        """In a sentence; in another one, how much of such predictions others reached."""
        name = self.network.name
        if self.cluster.count == 1:
            return f"One device has nothing to sum: {name} takes {1e3 * self.rows[0].step.seconds:.3g} ms a step."
        ring = next(row for row in self.rows if row.way.allreduce == "ring")
        plain = [row for row in self.rows if row.way == Way(row.way.allreduce, row.way.bucket)]
        best = quickest(plain)
        reaches = ring.step.efficiency
        limit = "and nothing limits it"
        if ring.step.limit != "nothing":
            limit = f"limited by {LIMITS[ring.step.limit]}"
        better = OTHERS
        if best.step.efficiency - reaches > LITTLE:
            better = f"; with {best.way.allreduce} {best.step.efficiency:.0%}."
        least, most = published.reached()
        return (
            f"On {self.cluster} {name} reaches {reaches:.0%} of linear with a ring, {limit}{better} "
            f"Published systems reached {100 * least:.0f} to {most:.0%} of such predictions."
        )

    def as_json(self) -> Dict[str, Any]:
        """All of it, for programs."""
        scaling = {}
        for kind, points in self.curves.items():
            scaling[kind] = [dict(devices=n, speedup=x) for n, x in points]
        return {
            "network": self.network.name,
            "parameters": self.network.parameters,
            "devices": self.cluster.devices,
            "nodes": self.cluster.nodes,
            "batch": self.batch,
            "answer": self.answer,
            "published_reached": published.reached(),
            "ways": [row.as_json() for row in self.rows],
            "scaling": scaling,
            "known": [number._asdict() for number in self.known],
        }


def _compared(
    ways: Dict[str, Way], network: Network, cluster: Cluster, batch: float
) -> List[Compared]:
    return [
        Compared(title, way, predict_step(network, cluster, batch, way))
        for title, way in ways.items()
    ]


def quickest(rows: Iterable[Compared]) -> Compared:
    """The one whose step takes the least time."""
    return min(rows, key=lambda row: row.step.seconds)


def allreduces(network: Network, cluster: Cluster, batch: float) -> List[Compared]:
    """Every all-reduce that differs on this cluster, with the best size of its buckets. One device has nothing to
    sum."""
    if cluster.count == 1:
        return _compared({"one device": Way()}, network, cluster, batch)
    levels = cluster.nodes > 1 and cluster.devices > 1
    names = [name for name in NODE_ALLREDUCES if levels or name != "two-level"]
    rows = []
    for name in names:
        ways = {f"{name}, buckets of {room:g} MiB": Way(name, room * MIB) for room in BUCKETS}
        rows.append(quickest(_compared(ways, network, cluster, batch)))
    return rows


def all_ways(network: Network, cluster: Cluster, batch: float) -> List[Compared]:
    """Every all-reduce; then, with the best of them, more passes a sum, the optimiser's state in shards, pipelines."""
    rows = allreduces(network, cluster, batch)
    if cluster.count == 1:
        return rows
    best = quickest(rows).way
    half = quickest(row for row in rows if row.way.allreduce in HALVES).way
    more = {
        f"{best.allreduce}, {PASSES} passes a sum": replace(best, accumulate=PASSES),
        f"{half.allreduce}, optimiser in shards": replace(half, shard_optimizer=True),
    }
    most = min(cluster.devices, len(network.layers))
    stages = max(count for count in range(1, most + 1) if cluster.devices % count == 0)
    if stages > 1:
        replicas = cluster.count // stages
        title = f"pipeline of {stages} stages"
        if replicas > 1:
            title += f" x {replicas} replicas"
        more[title] = Way(stages=stages, micro_batches=MICRO_BATCHES * stages)
    return rows + _compared(more, network, cluster, batch)


def scaling(network: Network, cluster: Cluster, batch: float) -> Curves:
    """1, 2, 4 ... devices (parts of a node, then whole nodes, up to all), and their speed-up. ``weak``: ``batch``
    samples on each device; ``strong``: in all, as many as the devices of a node have."""
    powers = [1 << power for power in range(cluster.count.bit_length())]
    inside = [count for count in powers if count < cluster.devices]
    nodes = [count * cluster.devices for count in powers if count < cluster.nodes]
    whole = batch * cluster.devices
    alone = network.passes(whole) + network.update
    curves: Curves = {"weak": [], "strong": []}
    for count in (*inside, *nodes, cluster.count):
        part = cluster.of(count)
        step = quickest(allreduces(network, part, batch)).step
        curves["weak"].append((count, count * step.efficiency))
        if count <= whole:
            step = quickest(allreduces(network, part, whole / count)).step
            curves["strong"].append((count, alone / step.seconds))
    return curves
