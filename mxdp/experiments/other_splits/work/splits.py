"""One network split in several ways: made by name, held against the serial run, timed, and predicted.

Loads MXNet: import it inside ``oracle`` and ``run``.

The prediction takes each layer's time, measured alone on one device, and divides it as the strategy does: the largest
part counts, and what remains whole is not divided. To that come the bytes moved over the measured link (each device
sends its share at the same time as the others), and the SGD step, of all parameters that a device has. A pipeline's
plan is played through; for the others it is left out that devices wait for one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Sequence, Tuple

import numpy as onp

from mxdp import process
from mxdp.backend import Device, HostArray, autograd, npx, upload
from mxdp.experiments.measure.links import measured_link
from mxdp.experiments.measure.memory import peak_bytes
from mxdp.experiments.measure.oracle import count_wrong, largest
from mxdp.layers import LENET, BatchNorm, Conv, Dense, LayerParams, Net, Pool, Relu, Shape, forward, init, outputs
from mxdp.parallel.data import Data
from mxdp.parallel.layer_costs import LayerCost, measure_layers
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.strategy import Strategy
from mxdp.parallel.tile import Tile
from mxdp.parallel.traffic import flat
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.layers.column_row import WHOLE
from mxdp.plans.partition import pieces
from mxdp.scratch import cross_entropy, get_params, sgd
from mxdp.timing import Timer
from mxdp.tracing.recording import can_record

SERIAL = "serial"
LINK_BYTES = 1 << 23
STEPS = 3
"""Steps after which parameters are compared."""

# Channels that are no multiples of 8: else oneDNN lays images out in blocks, for which its operators ask for temporary
# space, of which mxdp's settings allow many copies.
PICTURES: Net = (
    Conv(10, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Conv(20, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Dense(10),
)  # fmt: skip


def network(name: str, size: int = 0) -> Tuple[Net, Shape]:
    """``lenet``; ``wide``: three dense layers of ``size`` units; ``pictures``: the slides' stack, for ``size`` x
    ``size`` pixels."""
    if name == "lenet":
        return LENET, (1, 28, 28)
    if name == "wide":
        return (Dense(size), Relu(), Dense(size), Relu(), Dense(size), Relu(), Dense(10)), (784,)
    return PICTURES, (3, size, size)


def batch(shape: Shape, samples: int, seed: int) -> Tuple[HostArray, HostArray]:
    """Random samples and labels on the host."""
    random = onp.random.RandomState(seed)
    return random.uniform(-1, 1, (samples, *shape)).astype("float32"), random.randint(0, 10, samples)


@dataclass
class Split:
    """A network of ``shape`` inputs, split by ``strategy`` over ``devices`` with ``options`` of the strategy's own."""

    strategy: str
    net: Net
    shape: Shape
    devices: Sequence[Device]
    seed: int
    options: Mapping[str, Any]

    def make(self) -> Strategy:
        """A fresh one, with the initial parameters."""
        params = init(self.net, self.shape, self.seed)
        kinds: Dict[str, Callable[..., Strategy]] = {
            "data": Data,
            "layerwise": Layerwise,
            "tile": Tile,
            "pipeline": Pipeline,
        }
        if self.strategy == SERIAL:
            return Data(self.net, params, self.shape, self.devices[:1])
        return kinds[self.strategy](self.net, params, self.shape, self.devices, **self.options)

    def check(self, samples: int) -> Tuple[int, int]:
        """Losses, scores, each gradient and, after three steps, each parameter: (compared, wrong)."""
        X, y = batch(self.shape, samples, self.seed + 1)
        made = self.make()
        scores, losses = made.scores(X).asnumpy(), made.step(X, y).asnumpy()
        gradients = made.gradients()
        for _ in range(STEPS - 1):
            made.update(0.1, samples)
            made.step(X, y)
        made.update(0.1, samples)
        found = [[[scores]], [[losses]], _to_host(gradients), _to_host(made.params())]
        counts = [_count(*layers) for kind in zip(found, self._serial(X, y)) for layers in zip(*kind)]
        return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)

    def _serial(self, X: HostArray, y: HostArray) -> List[Any]:
        """The same on the first device alone, in plain MXNet."""
        device = self.devices[0]
        params = [get_params(layer, device) for layer in init(self.net, self.shape, self.seed)]
        x, labels = upload(X, device), upload(y, device)
        scores, first = forward(self.net, x, params).asnumpy(), []
        for step in range(STEPS):
            with autograd.record():
                losses = cross_entropy(forward(self.net, x, params), labels)
            losses.backward()
            if not step:
                first = [[[losses.asnumpy()]], _to_host([[param.grad for param in layer] for layer in params])]
            sgd(flat(params), 0.1, len(X))
        return [[[scores]], *first, _to_host(params)]


class Steps:
    """A split at work on batches of ``samples``: ready to be timed, with what it moves and takes counted."""

    def __init__(self, split: Split, samples: int) -> None:
        self.split, self.samples = split, samples
        self._X, self._y = batch(split.shape, samples, split.seed + 1)
        self.made = split.make()
        self._run(2)
        npx.waitall()
        self._timer = Timer()

    def seconds(self, steps: int) -> float:
        """Mean time of a step. Waits at both ends."""
        with self._timer:
            self._run(steps)
        return self._timer.times[-1] / steps

    def metrics(self) -> Dict[str, Any]:
        """Bytes moved (from the shapes, and as counted) and memory a device (predicted, and measured).

        Memory: what stays between steps, and the most that MXNet counts at a time in a step with its update, which
        makes a number for each parameter.
        """
        traffic = getattr(self.made, "traffic", None)
        stays, updates = self.made.lasting_bytes(self.samples), self.made.param_bytes()
        devices = self.split.devices[: len(stays)]
        counted = peak_bytes(lambda: self._run(1), devices) if can_record(devices) else None
        measured = [sum(both) for both in zip(stays, counted)] if counted else None
        work = map(max, self.made.peak_bytes(self.samples), updates)
        predicted = [sum(both) for both in zip(stays, work)]
        return {
            "bytes_moved": self.made.bytes_moved(self.samples),
            "bytes_counted": traffic.total() if traffic is not None else None,
            "peak_bytes": max(measured) if measured else None,
            "peak_bytes_by_device": measured,
            "predicted_peak_bytes": max(predicted),
            "predicted_peak_bytes_by_device": predicted,
        }

    def _run(self, steps: int) -> None:
        for _ in range(steps):
            self.made.step(self._X, self._y)
            self.made.update(0.1, self.samples)


@dataclass(frozen=True)
class Speeds:
    """What a prediction needs of the machine: each layer's times, the SGD step of all parameters, and the link."""

    layers: Sequence[LayerCost]
    update: float
    link: Link


def measure_speeds(net: Net, shape: Shape, devices: Sequence[Device], samples: int, seed: int) -> Speeds:
    """Measured now, on the first device, and to the second if there is one. Waits."""
    params = init(net, shape, seed)
    own = flat([get_params(layer, devices[0]) for layer in params])
    timer = Timer()
    for _ in range(3):
        with timer:
            sgd(own, 0.1, samples)
    link = measured_link(devices[0], devices[1], LINK_BYTES, seed) if len(devices) > 1 else Link(0.0, 0.0)
    return Speeds(measure_layers(net, params, shape, devices[0], samples), min(timer.times), link)


def predict_step(split: Split, made: Any, samples: int, speeds: Speeds, cores: int = 0) -> float:
    """Seconds of a step, predicted; ``made``: the strategy itself, which has the plan. ``cores``: 0: this machine's."""
    n = 1 if split.strategy == SERIAL else len(split.devices)
    cores = cores or process.cores()
    crowd = n / min(n, cores)
    work = [layer.seconds for layer in speeds.layers]
    sent = float(made.bytes_moved(samples) / n * speeds.link.beta)
    if split.strategy == "pipeline":
        m = made.plan.micro_batches
        parts = pieces(len(work), made.cuts)
        there, back = (
            [sum(getattr(layer, way) for layer in speeds.layers[start:stop]) / m for start, stop in parts]
            for way in ("forward", "backward")
        )
        update = float(speeds.update * max(made.param_bytes()) / sum(made.param_bytes()))
        return pipeline_seconds(made.plan, there, back, cores=cores) + sent + update
    if split.strategy == "layerwise":
        whole = sum(seconds for seconds, cut in zip(work, made.cuts) if cut == WHOLE)
        return crowd * ((sum(work) - whole) / n + whole + speeds.update / n) + sent
    if split.strategy == "tile":
        count, (rows, columns) = len(made.exchanges), made.grid
        shares = [-(-h // rows) * -(-w // columns) / (h * w) for _, h, w in outputs(split.net, split.shape)[:count]]
        image = sum(seconds * share for seconds, share in zip(work, shares))
        return float(crowd * (image + speeds.update) + sum(work[count:]) + sent)
    largest = -(-samples // n) / samples
    return crowd * (sum(work) * largest + speeds.update) + sent


def _to_host(layers: Sequence[LayerParams]) -> List[List[HostArray]]:
    return [[array.asnumpy() for array in layer] for layer in layers]


def _count(actual: Sequence[HostArray], expected: Sequence[HostArray]) -> Tuple[int, int]:
    """(numbers compared, numbers wrong) of one layer. The tolerance is relative to the layer's largest number: the
    gradient of a bias before a batch normalisation is zero but for roundings."""
    scale = max(map(largest, expected), default=0.0)
    counts = [count_wrong(*pair, scale=scale) for pair in zip(actual, expected)]
    return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)
