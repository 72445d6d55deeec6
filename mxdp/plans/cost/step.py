"""A data-parallel step: its time on the devices of a node, when a further device pays, and what it loses on a cluster.

On k devices each has 1 / k of the batch. The time of a step on one device is nearly a line, ``a + c n`` for ``n``
samples: ``a`` is what does not depend on the batch, such as the update and Python, and each device pays it. The
all-reduce comes on top. So a further device pays where the compute that it takes over, ``c`` times its samples, is more
than the all-reduce: few parameters, much compute a sample, a large batch (:func:`break_even`). On a cluster::

    compute   |- forward -|------- backward -------|            |- update -|
    links                       |- bucket 0 -|  |- bucket 1 -|

Backward gives the gradients from the last layer to the first. A bucket is summed as soon as its last gradient is ready
and the links are free. All devices wait for the slowest: where the times of one device's steps are spread by a share
``spread`` (standard deviation over mean), and as a normal distribution is, the slowest of n takes
``1 + spread * slowest(n)`` times as long as the mean.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Dict, List, Optional, Sequence, Tuple

from mxdp.plans.collective.schedule import ADD, COPY
from mxdp.plans.cost.cluster import HALVES, Cluster, ExchangeTime
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.machine import MIB
from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.partition import balance, fill_buckets, pieces
from mxdp.plans.pipeline import gpipe

FLOAT_BYTES = 4
"""Bytes of a number, float32."""
LITTLE = 0.005
"""A share of linear scaling that nobody misses: 99.5 % are shown as 100 %."""
COMPUTE = "compute"
LINKS = "links"


@dataclass(frozen=True)
class TimedLayer:
    """``forward`` and ``backward``: seconds for one sample (or operations: :mod:`mxdp.plans.cost.layer_lists`);
    ``parameters``: numbers; ``outputs``: numbers of a sample, which a pipeline sends on."""

    name: str
    forward: float
    backward: float
    parameters: int = 0
    outputs: int = 0


@dataclass(frozen=True)
class Network:
    """A network and its step on one device. ``fixed``: seconds of a pass whatever its batch is; ``update``: of the
    optimiser; ``python``: Python's part of a device's step, in which one process drives all devices of a node;
    ``spread``: of the time of a step, over its mean; ``activations``: numbers of a sample that training holds
    (:mod:`mxdp.plans.cost.activations`), 0 if nobody knows."""

    name: str
    layers: Tuple[TimedLayer, ...]
    fixed: float = 0.0
    update: float = 0.0
    python: float = 0.0
    spread: float = 0.0
    activations: int = 0

    @property
    def parameters(self) -> int:
        """The numbers in all layers."""
        return sum(layer.parameters for layer in self.layers)

    def passes(self, samples: float) -> float:
        """Seconds of a forward and a backward pass on one device."""
        return self.fixed + samples * sum(layer.forward + layer.backward for layer in self.layers)


@dataclass(frozen=True)
class Way:
    """How the step is done: the all-reduce, and bytes of a bucket; passes whose gradients are added up before they are
    summed; the optimiser's state in shards; stages of a pipeline (neighbouring devices), and its micro-batches."""

    allreduce: str = "ring"
    bucket: float = 25 * MIB
    accumulate: int = 1
    shard_optimizer: bool = False
    stages: int = 1
    micro_batches: int = 1


@dataclass(frozen=True)
class Busy:
    """Work of a device or of its links, from ``start`` to ``stop`` (seconds)."""

    lane: str
    name: str
    start: float
    stop: float


@dataclass(frozen=True)
class Prediction:
    """``seconds`` of a step of ``samples`` samples in all; ``alone``: of as many for each device, on one device;
    ``lost``: seconds by their reason, which with ``alone`` make up ``seconds``."""

    seconds: float
    samples: float
    alone: float
    lost: Dict[str, float]
    spans: Tuple[Busy, ...] = field(default=(), repr=False)

    @property
    def efficiency(self) -> float:
        """The throughput over that of as many single devices; linear scaling is 1."""
        return self.alone / self.seconds

    @property
    def limit(self) -> str:
        """The reason for which most is lost, if the step loses more than :data:`LITTLE`."""
        if self.alone >= (1 - LITTLE) * self.seconds:
            return "nothing"
        return max(self.lost, key=lambda name: self.lost[name])


def slowest(devices: int) -> float:
    """About the mean of the largest of ``devices`` standard normal numbers. Source: Blom, "Statistical estimates and
    transformed beta-variables", 1958.

    >>> [round(slowest(devices), 2) for devices in (1, 2, 1000)]
    [0.0, 0.59, 3.23]
    """
    return 0.0 if devices == 1 else NormalDist().inv_cdf((devices - 0.375) / (devices + 0.25))


def node_seconds(
    slowest: float, mean: float, python: float, devices: int, cores: Optional[int]
) -> float:
    """Seconds of work that all ``devices`` of a node do at once: of the ``slowest`` device, or more where one Python
    must drive them all, or where they share the cores. ``mean`` and ``python``: for a device, in the mean."""
    work = devices * (mean + python) / cores if cores else 0.0
    return max(slowest, devices * python, work)


def step_seconds(
    shard: float, python: float, devices: int, cores: Optional[int], allreduce: float
) -> float:
    """Predicted seconds of a step on ``devices`` devices, in steps that follow one another without a wait. ``shard``:
    seconds of one device for 1 / devices of the batch, with the update; ``python``: processor time of Python for this,
    which works ahead of the device and needs a core as well; ``cores``: shared by CPU devices and Python (None: devices
    that need none, such as GPUs); ``allreduce``: seconds of the all-reduce of all gradients.

    >>> step_seconds(shard=2.0, python=0.1, devices=4, cores=2, allreduce=0.5)
    4.7
    """
    return node_seconds(shard, shard, python, devices, cores) + allreduce


def break_even(
    device: Link, python: float, devices: int, cores: Optional[int], allreduce: float
) -> float:
    """Samples a device from which on a step on ``devices`` devices is predicted to be faster than on one; ``math.inf``
    if it never is, and at least 0. ``device``: a step on one device, fitted as a link is: ``alpha`` seconds, and
    ``beta`` for each sample (both more than 0). The other arguments are those of :func:`step_seconds`.

    >>> [round(break_even(Link(1e-3, 1e-4), 0.0, 2, cores, allreduce=2e-3), 1) for cores in (1, 2)]
    [inf, 20.0]
    """
    # Each of node_seconds' bounds is slope * shard + fixed.
    bounds = [(1.0, 0.0), (0.0, devices * python)]
    if cores:
        bounds.append((devices / cores, devices * python / cores))
    least = 0.0
    for slope, fixed in bounds:
        # alpha + beta devices n  >=  slope (alpha + beta n) + fixed + allreduce
        gain = device.beta * (devices - slope)
        loss = (slope - 1) * device.alpha + fixed + allreduce
        if gain > 0:
            least = max(least, loss / gain)
        elif loss > 0:
            return math.inf
    return least


def predict_step(network: Network, cluster: Cluster, batch: float, way: Way = Way()) -> Prediction:
    """A step in which each device has ``batch`` samples a pass. Raises a ValueError if the way does not fit the cluster
    or the network.

    >>> layers = tuple(TimedLayer(name, 1e-5, 2e-5, parameters=1_000_000) for name in ("first", "last"))
    >>> network, link = Network("two layers", layers), Link(alpha=1e-5, beta=1e-9)
    >>> for nodes in (1, 64):
    ...     step = predict_step(network, Cluster(1, nodes, inside=link, between=link), batch=100, way=Way(bucket=4e6))
    ...     print(f"{1e3 * step.seconds:.1f} ms, {step.efficiency:.0%} of linear, {step.limit}")
    6.0 ms, 100% of linear, nothing
    22.3 ms, 27% of linear, bandwidth
    """
    if way.stages > 1:
        return _pipeline(network, cluster, batch, way)
    if way.shard_optimizer and way.allreduce not in HALVES:
        raise ValueError(
            f"an optimiser in shards needs an all-reduce of two halves, {' or '.join(HALVES)}"
        )
    passes = network.passes(batch)
    shared = node_seconds(passes, passes, network.python, cluster.devices, cluster.cores)
    wait = network.spread * slowest(cluster.count)
    slower = (1 + wait) * shared / passes if passes else 1.0
    starts = slower * network.fixed if passes else shared * (1 + wait)
    spans, ready = _passes(network, starts, slower * batch, way.accumulate)
    computed = spans[-1].stop
    actions = (ADD,) if way.shard_optimizer else (ADD, COPY)
    total = ExchangeTime()
    free = 0.0
    for number, (nbytes, since) in enumerate(_buckets(network, ready, way.bucket)):
        cost = cluster.exchange(way.allreduce, nbytes, actions)
        start = max(free, since if cluster.overlap else computed)
        free = start + cost.seconds
        spans.append(Busy(LINKS, f"bucket {number}", start, free))
        total = total.and_then(cost)
    now = max(computed, free)
    part = network.update / cluster.count if way.shard_optimizer else network.update
    update = node_seconds(part, part, 0.0, cluster.devices, cluster.cores)
    spans.append(Busy(COMPUTE, "update", now, now + update))
    now += update
    if way.shard_optimizer:
        cost = cluster.exchange(way.allreduce, FLOAT_BYTES * network.parameters, (COPY,))
        spans.append(Busy(LINKS, "parameters", now, now + cost.seconds))
        total = total.and_then(cost)
        now += cost.seconds
    times = way.accumulate
    lost = {
        "Python and shared cores": times * (shared - passes) + update - part,
        "the slowest": times * wait * shared,
        **_exposed(now - computed - update, total),
    }
    if way.shard_optimizer:
        lost["the update in shards"] = part - network.update
    alone = times * passes + network.update
    busy = tuple(span for span in spans if span.stop > span.start)
    return Prediction(now, times * batch * cluster.count, alone, lost, busy)


def _passes(
    network: Network, starts: float, samples: float, times: int
) -> Tuple[List[Busy], List[float]]:
    """The spans of so many passes, one after another, and when the last one has each layer's gradient."""
    work = [("Python and starts", starts)]
    for layer in network.layers:
        work.append((f"forward {layer.name}", samples * layer.forward))
    for layer in reversed(network.layers):
        work.append((f"backward {layer.name}", samples * layer.backward))
    spans = []
    now = 0.0
    for name, seconds in work * times:
        spans.append(Busy(COMPUTE, name, now, now + seconds))
        now += seconds
    backward = spans[-len(network.layers) :]
    return spans, [span.stop for span in reversed(backward)]


def _buckets(network: Network, ready: Sequence[float], room: float) -> List[Tuple[int, float]]:
    """The bytes of each bucket, and when its last gradient is ready."""
    sizes = []
    times = []
    for layer, at in zip(network.layers, ready):
        if layer.parameters:
            sizes.append(FLOAT_BYTES * layer.parameters)
            times.append(at)
    buckets = []
    for bucket in fill_buckets(sizes, ["float32"] * len(sizes), room):
        nbytes = sum(sizes[layer] for layer in bucket)
        buckets.append((nbytes, max(times[layer] for layer in bucket)))
    return buckets


def _exposed(seconds: float, cost: ExchangeTime) -> Dict[str, float]:
    """The time for which the devices wait for their links, shared out by what the links do."""
    share = seconds / cost.seconds if cost.seconds else 0.0
    return {
        "latency": share * cost.start,
        "bandwidth": share * cost.bytes,
        "sums": share * cost.sums,
    }


def _pipeline(network: Network, cluster: Cluster, batch: float, way: Way) -> Prediction:
    """Stages on neighbouring devices of a node, and as many replicas of the pipeline as there is room for. The replicas
    sum each stage's gradients after the last pass."""
    stages = way.stages
    parts = way.micro_batches
    if cluster.devices % stages:
        raise ValueError(f"{stages} stages do not divide the {cluster.devices} devices of a node")
    borders = balance([layer.forward + layer.backward for layer in network.layers], stages)
    cut = [network.layers[start:stop] for start, stop in pieces(len(network.layers), borders)]
    samples = batch * stages / parts
    fixed = network.fixed / (2 * stages)
    forward = []
    backward = []
    messages = []
    for stage in cut:
        forward.append(fixed + samples * sum(layer.forward for layer in stage))
        backward.append(fixed + samples * sum(layer.backward for layer in stage))
        messages.append(cluster.inside.seconds(FLOAT_BYTES * samples * stage[-1].outputs))
    tasks = pipeline_spans(gpipe(stages, parts), forward, backward, messages[:-1])
    ended = last_end(tasks)
    passes = (sum(forward) + sum(backward)) * parts / stages
    python = network.python * parts / stages
    shared = node_seconds(ended, passes, python, cluster.devices, cluster.cores)
    waited = network.spread * slowest(cluster.count) * shared
    computed = shared + waited
    slower = computed / ended if ended else 1.0
    largest = max(sum(layer.parameters for layer in stage) for stage in cut)
    # All stages are summed at the same time. Replicas in other nodes share a node's link, those in one node don't.
    here = replace(cluster, devices=cluster.devices // stages, nodes=1)
    among_nodes = replace(cluster, devices=1).exchange("ring", FLOAT_BYTES * network.parameters)
    total = here.exchange("ring", FLOAT_BYTES * largest).and_then(among_nodes)
    part = network.update * largest / max(1, network.parameters)
    update = node_seconds(part, network.update / stages, 0.0, cluster.devices, cluster.cores)
    spans = []
    for (at, task), (start, stop) in tasks.items():
        spans.append(Busy(f"stage {at}", str(task), slower * start, slower * stop))
    summed = computed + total.seconds
    spans.append(Busy(LINKS, "sums", computed, summed))
    lost = {
        "bubble and messages": ended - passes,
        "starts of micro-batches": passes - network.passes(batch),
        "Python and shared cores": shared - ended + update - part,
        "the slowest": waited,
        **_exposed(total.seconds, total),
        "the update in stages": part - network.update,
    }
    alone = network.passes(batch) + network.update
    return Prediction(summed + update, batch * cluster.count, alone, lost, tuple(spans))
