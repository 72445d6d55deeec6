"""One device of this machine, measured for a prediction: ``python -m mxdp.experiments.predict.measured NET BATCH KIND``
prints a network as TOML. Loads MXNet, so the command line starts it as a process of its own."""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace
from functools import partial
from typing import Any, Callable, List, Sequence, Tuple

import numpy as onp

import mxdp
from mxdp.backend import NDArray, autograd, mx, npx, upload
from mxdp.experiments.measure.networks import LR, Devices, network, seconds_a_step
from mxdp.experiments.predict.inputs import saved
from mxdp.layers import LENET, Conv, Dense, Layer, apply
from mxdp.plans.cost.link import fit_link
from mxdp.plans.scaling.networks import NETWORKS, timed
from mxdp.plans.scaling.step import Network

ROUNDS = 5
AT_LEAST = 0.1
"""Seconds of a measurement of steps that follow one another."""
STEPS = 30
"""Steps of which each is timed by itself, for their spread."""
LENET_GROUPS = ((0, 3), (3, 6), (6, 8), (8, 9))
RESNET_GROUPS = ((0, 3), *((block, block + 1) for block in range(3, 11)), (11, 13))
"""Which blocks make up a layer of :mod:`mxdp.plans.scaling.networks`."""

Chain = List[Callable[[NDArray], NDArray]]


def measure(name: str, batch: int, kind: str) -> Network:
    """The network's step on one device, in batches of ``batch`` samples. Waits.

    Steps on the batch, its half and its quarter tell what a step takes whatever its batch is from what each sample
    adds. The layers' passes share the latter in proportion to their times by themselves.
    """
    devices: Devices = tuple(mxdp.devices(1, kind))
    random = onp.random.RandomState(0)
    X = random.uniform(size=(batch, 1, 28, 28)).astype("float32")
    y = random.randint(0, 10, batch).astype("int32")
    model = network({"resnet18": "resnet"}.get(name, name), 64, devices, 0)
    sizes = sorted({batch, max(1, batch // 2), max(1, batch // 4)})
    times: List[List[float]] = [[] for _ in sizes]
    steps = [max(1, round(AT_LEAST / seconds_a_step(model, (X[:size], y[:size]), 2)[0])) for size in sizes]
    python = []
    for _ in range(ROUNDS):
        for size, own, count in zip(sizes, times, steps):
            seconds, busy = seconds_a_step(model, (X[:size], y[:size]), count)
            own.append(seconds)
            python.append(busy)
    points = [(size, statistics.median(own)) for size, own in zip(sizes, times)]
    line = fit_link(points) if len(points) > 1 else None
    fixed, sample = (line.alpha, line.beta) if line else (0.0, points[0][1] / batch)
    update = _update_seconds(model.replicas[0])
    chain, groups = _chain(name, model)
    title, works = NETWORKS[name]
    found = timed(title, works(), sample, max(0.0, fixed - update), update, _spread(model, X, y))
    passes = _passes(chain, upload(X, devices[0]))
    shares = [tuple(sum(own[way] for own in passes[a:b]) for way in (0, 1)) for a, b in groups]
    unit = sample / sum(map(sum, shares))
    layers = tuple(
        replace(layer, forward=unit * forward, backward=unit * backward)
        for layer, (forward, backward) in zip(found.layers, shares)
    )
    return replace(found, layers=layers, python=statistics.median(python))


def _chain(name: str, model: Any) -> Tuple[Chain, Sequence[Tuple[int, int]]]:
    """The network's blocks in their order; and for each layer its first block, and the one after its last."""
    if name == "resnet18":
        return list(model.net), RESNET_GROUPS
    params = iter(model.replicas[0])
    chain: Chain = []
    for layer in LENET:
        own = [next(params), next(params)] if isinstance(layer, (Conv, Dense)) else []
        chain.append(partial(_applied, layer, own))
    return chain, LENET_GROUPS


def _applied(layer: Layer, params: Sequence[NDArray], x: NDArray) -> NDArray:
    return apply(layer, x, params)


def _passes(chain: Chain, x: NDArray) -> List[Tuple[float, float]]:
    """Seconds of each block's forward and backward pass, by itself: medians."""
    found = []
    for block in chain:
        x.attach_grad()
        forward, backward = [], []
        for _ in range(1 + ROUNDS):
            npx.waitall()
            started = time.perf_counter()
            with autograd.record():
                y = block(x)
            npx.waitall()
            forward.append(time.perf_counter() - started)
            started = time.perf_counter()
            y.backward()
            npx.waitall()
            backward.append(time.perf_counter() - started)
        found.append((statistics.median(forward[1:]), statistics.median(backward[1:])))
        x = y.detach()
    return found


def _update_seconds(params: Sequence[NDArray]) -> float:
    """Of one update of all parameters: the median."""
    found = []
    for _ in range(1 + ROUNDS):
        npx.waitall()
        started = time.perf_counter()
        for param in params:
            mx.nd.sgd_update(param.as_nd_ndarray(), param.grad.as_nd_ndarray(), lr=LR, out=param.as_nd_ndarray())
        npx.waitall()
        found.append(time.perf_counter() - started)
    return statistics.median(found[1:])


def _spread(model: Any, X: Any, y: Any) -> float:
    """The spread of single steps, over their mean: from the middle half, so that one disturbance makes no difference.
    (Of a normal distribution, the quartiles are 1.349 standard deviations apart.)"""
    times = [seconds_a_step(model, (X, y), 1)[0] for _ in range(STEPS)]
    low, _, high = statistics.quantiles(times, n=4)
    return (high - low) / 1.349 / statistics.mean(times)


if __name__ == "__main__":
    print(saved(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])), end="")
