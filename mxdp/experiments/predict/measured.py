"""One device of this machine, measured for a prediction.

``python -m mxdp.experiments.predict.measured NET BATCH KIND C,H,W`` prints a network as TOML, with what was measured in
words. It loads MXNet, so the command line starts it as a process of its own.
"""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import mxdp
from mxdp.backend import NDArray, autograd, gluon, mx, upload
from mxdp.experiments.networks import LR, PICTURE, Devices, Gluon, network, seconds_a_step
from mxdp.experiments.oracle import random_batch
from mxdp.experiments.predict import inputs
from mxdp.layers import LENET, Residual, apply
from mxdp.plans.cost.layer_lists import NETWORKS, shared_out
from mxdp.plans.cost.link import Link, fit_link
from mxdp.plans.cost.step import Network, TimedLayer
from mxdp.timing import Timer

ROUNDS = 5
AT_LEAST = 0.1
"""Seconds of a measurement of steps that follow one another."""
LONGEST_STEP = 0.5
"""Seconds. Of a network whose steps take longer, smaller batches are measured: a few samples tell what each adds, and
a batch of 64 took a minute and 4.7 GB with ResNet-18."""
STEPS = 30
"""Steps of which each is timed by itself, for their spread; a third of them if they are long."""
BLOCKS = {"lenet": (3, 3, 2, 1), "resnet18": (3, *[1] * 8, 2)}
"""How many blocks make up each layer of :mod:`mxdp.plans.cost.layer_lists`."""


def _exported(file: str, devices: Devices, shape: Sequence[int]) -> Gluon:
    """A network that MXNet exported as a symbol, with any parameters. Which of its outputs are scores, nobody knows, so
    their sum is the loss."""
    nodes = json.loads(Path(file).read_text(encoding="utf-8"))["nodes"]
    later = {entry[0] for node in nodes for entry in node["inputs"][1:]}
    data = next(
        node["name"] for at, node in enumerate(nodes) if node["op"] == "null" and at not in later
    )
    sgd = partial(mxdp.Trainer, optimizer="sgd", optimizer_params={"learning_rate": LR})
    net = gluon.SymbolBlock.imports(file, [data], ctx=devices[0])
    return Gluon(net, devices, 0, sgd, mx.init.Uniform(), lambda scores, labels: scores, shape)


def measure_network(name: str, batch: int, kind: str, shape: Sequence[int]) -> Tuple[Network, str]:
    """The network's step on one device, in batches of at most ``batch`` samples; and in words what was measured. Waits.

    Steps on a batch, its half and its quarter tell what a step takes whatever its batch is from what each sample
    adds. The layers' passes share the latter in proportion to their times by themselves; those of a symbol, whose
    samples have ``shape``, to their operations.
    """
    devices: Devices = tuple(mxdp.devices(1, kind))
    if name in NETWORKS:
        shape = PICTURE
        model = network("resnet" if name == "resnet18" else name, 64, devices, 0)
        net, _ = inputs.known_network(name)
    else:
        model = _exported(name, devices, shape)
        net, _ = inputs.known_network(name, shape=tuple(shape))
    for _ in range(3):  # the first ones warm up
        one, _ = seconds_a_step(model, random_batch(1, 0, shape), 1)
    while batch > 1 and batch * one > LONGEST_STEP:
        batch = -(-batch // 2)
    X, y = random_batch(batch, 1, shape)
    sizes = sorted({batch, max(1, batch // 2), max(1, batch // 4)})
    steps = []
    for size in sizes:
        seconds, _ = seconds_a_step(model, (X[:size], y[:size]), 2)
        steps.append(max(1, round(AT_LEAST / seconds)))
    times: Dict[int, List[float]] = {size: [] for size in sizes}
    busy = []
    for _ in range(ROUNDS):
        for size, count in zip(sizes, steps):
            seconds, python = seconds_a_step(model, (X[:size], y[:size]), count)
            times[size].append(seconds)
            busy.append(python)
    points = [(size, statistics.median(times[size])) for size in sizes]
    line = fit_link(points) if len(points) > 1 else Link(0.0, points[0][1] / batch)
    update = _update_seconds(model.replicas[0])
    if name in NETWORKS:
        layers = _timed(name, net.layers, model, upload(X, devices[0]))
        net = replace(net, layers=tuple(layers))
    singles = STEPS if points[-1][1] < AT_LEAST else STEPS // 3
    apart = [seconds_a_step(model, (X, y), 1)[0] for _ in range(singles)]
    # From the middle half, so that one disturbance makes no difference: 1.349 deviations of a normal distribution.
    low, _, high = statistics.quantiles(apart, n=4)
    net = replace(
        shared_out(net, line.beta),
        fixed=max(0.0, line.alpha - update),
        update=update,
        python=statistics.median(busy),
        spread=(high - low) / 1.349 / statistics.mean(apart),
    )
    batches = ", ".join(map(str, sizes))
    return net, f"steps of {batches} samples on {devices[0]}, each in {ROUNDS} rounds"


def _timed(name: str, layers: Sequence[TimedLayer], model: Any, x: NDArray) -> Iterator[TimedLayer]:
    """The layers with the seconds of a forward and a backward pass on ``x``: the medians of their blocks, each by
    itself. Waits."""
    if name == "resnet18":
        blocks = iter(model.net)
    else:
        path, _ = Residual(tuple(LENET)).paths(model.replicas[0])
        blocks = iter(partial(apply, layer, params=params) for layer, params in path)
    for layer, count in zip(layers, BLOCKS[name]):
        forward = 0.0
        backward = 0.0
        for block in islice(blocks, count):
            x.attach_grad()
            timer = Timer()
            for _ in range(1 + ROUNDS):
                with timer, autograd.record():
                    y = block(x)
                with timer:
                    y.backward()
            forward += statistics.median(timer.times[2::2])
            backward += statistics.median(timer.times[3::2])
            x = y.detach()
        yield replace(layer, forward=forward, backward=backward)


def _update_seconds(params: Sequence[NDArray]) -> float:
    """The median of updates of all parameters."""
    timer = Timer()
    for _ in range(1 + ROUNDS):
        with timer:
            for param in params:
                mx.nd.sgd_update(
                    param.as_nd_ndarray(),
                    param.grad.as_nd_ndarray(),
                    lr=LR,
                    out=param.as_nd_ndarray(),
                )
    return statistics.median(timer.times[1:])


if __name__ == "__main__":
    _, name, batch, kind, sides = sys.argv
    shape = [int(side) for side in sides.split(",")]
    measured, words = measure_network(name, int(batch), kind, shape)
    print(inputs.as_toml(measured, words), end="")
