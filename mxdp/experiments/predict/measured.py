"""One device of this machine, measured for a prediction: ``python -m mxdp.experiments.predict.measured NET BATCH KIND
C,H,W`` prints a network as TOML, with what was measured in words. Loads MXNet, so the command line starts it as a
process of its own."""

from __future__ import annotations

import json
import statistics
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, List, Sequence, Tuple

import numpy as onp

import mxdp
from mxdp.backend import Device, HostArray, NDArray, autograd, gluon, mx, np, upload
from mxdp.experiments.networks import LR, Devices, network, seconds_a_step
from mxdp.experiments.predict import inputs
from mxdp.layers import LENET, Conv, Dense, apply
from mxdp.plans.cost.link import Link, fit_link
from mxdp.plans.cost.networks import NETWORKS, shared_out
from mxdp.plans.cost.step import Network, TimedLayer
from mxdp.timing import Timer

SHAPE = (1, 28, 28)
"""Of a sample of the networks that have names."""
ROUNDS = 5
AT_LEAST = 0.1
"""Seconds of a measurement of steps that follow one another."""
LONGEST_STEP = 0.5
"""Seconds. Of a network whose steps take longer, smaller batches are measured: a few samples tell what each adds, and
a batch of 64 took a minute and 4.7 GB with ResNet-18."""
STEPS = 30
"""Steps of which each is timed by itself, for their spread; a third of them if they are long."""
LENET_GROUPS = ((0, 3), (3, 6), (6, 8), (8, 9))
RESNET_GROUPS = ((0, 3), *((block, block + 1) for block in range(3, 11)), (11, 13))
"""Which blocks make up a layer of :mod:`mxdp.plans.cost.networks`."""


class _Exported:
    """A network that MXNet exported as a symbol, with any parameters. All its outputs are summed: which of them are
    scores, nobody knows."""

    def __init__(self, file: str, device: Device, shape: Sequence[int]) -> None:
        nodes = json.loads(Path(file).read_text(encoding="utf-8"))["nodes"]
        later = {entry[0] for node in nodes for entry in node["inputs"][1:]}
        data = next(node["name"] for at, node in enumerate(nodes) if node["op"] == "null" and at not in later)
        self._net, self._device = gluon.SymbolBlock.imports(file, [data], ctx=device), device
        self._net.initialize(mx.init.Uniform(), ctx=device)
        self._net(np.zeros((1, *shape), ctx=device))
        params = self._net.collect_params()
        self._trainer = mxdp.Trainer(params, "sgd", {"learning_rate": LR})
        self.replicas = [[param.data(device) for param in params.values() if param.grad_req != "null"]]

    def step(self, X: HostArray, y: HostArray) -> None:
        """Doesn't wait."""
        with autograd.record():
            scores = self._net(upload(X, self._device))
        scores.backward()
        self._trainer.step(len(X))


def measure_network(name: str, batch: int, kind: str, shape: Sequence[int]) -> Tuple[Network, str]:
    """The network's step on one device, in batches of at most ``batch`` samples; and in words what was measured. Waits.

    Steps on a batch, its half and its quarter tell what a step takes whatever its batch is from what each sample
    adds. The layers' passes share the latter in proportion to their times by themselves; those of a symbol, whose
    samples have ``shape``, to their operations.
    """
    devices: Devices = tuple(mxdp.devices(1, kind))
    random, named = onp.random.RandomState(0), name in NETWORKS
    if named:
        model, shape = network({"resnet18": "resnet"}.get(name, name), 64, devices, 0), SHAPE
    else:
        model = _Exported(name, devices[0], shape)

    def samples(count: int) -> Tuple[HostArray, HostArray]:
        return random.uniform(size=(count, *shape)).astype("float32"), random.randint(0, 10, count).astype("int32")

    one = [seconds_a_step(model, samples(1), 1)[0] for _ in range(3)][-1]
    while batch > 1 and batch * one > LONGEST_STEP:
        batch = -(-batch // 2)
    X, y = samples(batch)
    sizes = sorted({batch, max(1, batch // 2), max(1, batch // 4)})
    parts = [(X[:size], y[:size]) for size in sizes]
    steps = [max(1, round(AT_LEAST / seconds_a_step(model, part, 2)[0])) for part in parts]
    rounds = [[seconds_a_step(model, part, count) for part, count in zip(parts, steps)] for _ in range(ROUNDS)]
    points = [(size, statistics.median(seconds for seconds, _ in times)) for size, times in zip(sizes, zip(*rounds))]
    python = statistics.median(busy for times in rounds for _, busy in times)
    line = fit_link(points) if len(points) > 1 else Link(0.0, points[0][1] / batch)
    update = _update_seconds(model.replicas[0])
    known, _ = inputs.known_network(name, shape=tuple(shape))
    layers = _timed(name, known.layers, model, upload(X, devices[0])) if named else known.layers
    fixed = max(0.0, line.alpha - update)
    singles = STEPS if points[-1][1] < AT_LEAST else STEPS // 3
    spread = _spread([seconds_a_step(model, (X, y), 1)[0] for _ in range(singles)])
    words = f"steps of {', '.join(map(str, sizes))} samples on {devices[0]}, each in {ROUNDS} rounds"
    net = shared_out(known.name, layers, sample=line.beta)
    return replace(net, fixed=fixed, update=update, python=python, spread=spread), words


def _timed(name: str, layers: Sequence[TimedLayer], model: Any, x: NDArray) -> List[TimedLayer]:
    """The layers with the seconds of a forward and a backward pass on ``x``: the medians of their blocks, each by
    itself."""
    if name == "resnet18":
        chain, groups = list(model.net), RESNET_GROUPS
    else:
        groups, params = LENET_GROUPS, iter(model.replicas[0])
        chain = [
            partial(apply, layer, params=[next(params), next(params)] if isinstance(layer, (Conv, Dense)) else [])
            for layer in LENET
        ]
    forward, backward = [], []
    for block in chain:
        x.attach_grad()
        timer = Timer()
        for _ in range(1 + ROUNDS):
            with timer, autograd.record():
                y = block(x)
            with timer:
                y.backward()
        forward.append(statistics.median(timer.times[2::2]))
        backward.append(statistics.median(timer.times[3::2]))
        x = y.detach()
    return [
        replace(layer, forward=sum(forward[start:stop]), backward=sum(backward[start:stop]))
        for layer, (start, stop) in zip(layers, groups)
    ]


def _update_seconds(params: Sequence[NDArray]) -> float:
    """The median of updates of all parameters."""
    timer = Timer()
    for _ in range(1 + ROUNDS):
        with timer:
            for param in params:
                mx.nd.sgd_update(param.as_nd_ndarray(), param.grad.as_nd_ndarray(), lr=LR, out=param.as_nd_ndarray())
    return statistics.median(timer.times[1:])


def _spread(times: Sequence[float]) -> float:
    """The spread of single steps over their mean: from the middle half, so that one disturbance makes no difference."""
    low, _, high = statistics.quantiles(times, n=4)  # 1.349 standard deviations apart in a normal distribution
    return (high - low) / 1.349 / statistics.mean(times)


if __name__ == "__main__":
    _, name, batch, kind, sides = sys.argv
    print(inputs.as_toml(*measure_network(name, int(batch), kind, [int(side) for side in sides.split(",")])), end="")
