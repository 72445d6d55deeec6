"""The ways to do a step that are compared, and how far they scale."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Dict, Iterable, List, Tuple

from mxdp.plans.scaling.cluster import HALVES, STEPS, Cluster
from mxdp.plans.scaling.step import MIB, Network, Prediction, Way, predict_step

BUCKETS = (1.0, 4.0, 25.0, 100.0, 1024.0)
"""MiB."""
PASSES = 4
MICRO_BATCHES = 4
"""For each stage of a pipeline; GPipe's paper finds the bubble small from there on."""


@dataclass(frozen=True)
class Compared:
    """A way in words, and what is predicted of it."""

    title: str
    way: Way
    found: Prediction


def allreduces(cluster: Cluster) -> List[str]:
    """Those that differ on this cluster."""
    return [name for name in STEPS if name != "two-level" or (cluster.nodes > 1 and cluster.devices > 1)]


def sums(network: Network, cluster: Cluster, batch: float) -> List[Compared]:
    """Every all-reduce, with the best size of its buckets. One device has nothing to sum."""
    if cluster.count == 1:
        return [Compared("one device", Way(), predict_step(network, cluster, batch))]
    rows = []
    for name in allreduces(cluster):
        ways = [Way(name, bucket=room * MIB) for room in BUCKETS]
        known = [
            Compared(f"{name}, buckets of {room:g} MiB", way, predict_step(network, cluster, batch, way))
            for room, way in zip(BUCKETS, ways)
        ]
        rows.append(fastest(known))
    return rows


def fastest(rows: Iterable[Compared]) -> Compared:
    """The one whose step takes the least time."""
    return min(rows, key=lambda row: row.found.seconds)


def compared(network: Network, cluster: Cluster, batch: float) -> List[Compared]:
    """Every all-reduce; then, with the best of them, more passes a sum, the optimiser's state in shards, pipelines."""
    rows = sums(network, cluster, batch)
    if cluster.count == 1:
        return rows
    best = fastest(rows)
    half = fastest(row for row in rows if row.way.allreduce in HALVES)
    more = [
        (f"{best.way.allreduce}, {PASSES} passes a sum", replace(best.way, accumulate=PASSES)),
        (f"{half.way.allreduce}, optimiser in shards", replace(half.way, shard_optimizer=True)),
    ]
    stages = _stages(network, cluster)
    if stages > 1:
        replicas = cluster.count // stages
        title = f"pipeline of {stages} stages" + (f" x {replicas} replicas" if replicas > 1 else "")
        more.append((title, Way(stages=stages, micro_batches=MICRO_BATCHES * stages)))
    return [*rows, *(Compared(title, way, predict_step(network, cluster, batch, way)) for title, way in more)]


def _stages(network: Network, cluster: Cluster) -> int:
    """As many as a node has devices and the network has layers."""
    most = min(cluster.devices, len(network.layers))
    return max(count for count in range(1, most + 1) if cluster.devices % count == 0)


def counts(cluster: Cluster) -> List[int]:
    """1, 2, 4 ... devices: parts of a node, then whole nodes, up to all."""
    inside = [1 << power for power in range(cluster.devices.bit_length()) if 1 << power < cluster.devices]
    nodes = [1 << power for power in range(cluster.nodes.bit_length()) if 1 << power < cluster.nodes]
    return [*inside, *(cluster.devices * count for count in nodes), cluster.count]


def scaling(network: Network, cluster: Cluster, batch: float) -> Dict[str, List[Tuple[int, float]]]:
    """Devices and speed-up. ``weak``: ``batch`` samples on each device; ``strong``: in all, as many as the devices of a
    node have."""
    whole = batch * cluster.devices
    alone = network.passes(whole) + network.update
    found: Dict[str, List[Tuple[int, float]]] = {"weak": [], "strong": []}
    for count in counts(cluster):
        part = cluster.of(count)
        found["weak"].append((count, count * fastest(sums(network, part, batch)).found.efficiency))
        if count <= whole:
            found["strong"].append((count, alone / fastest(sums(network, part, whole / count)).found.seconds))
    return found
