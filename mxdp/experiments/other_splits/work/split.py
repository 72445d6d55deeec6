"""One network, split in several ways: made, compared with the serial run, timed, and predicted.

The prediction takes the time of each layer, measured alone on one device, and divides it as the strategy does: the
largest part counts, and a layer that is not divided counts whole. Two splits at once divide it twice. It adds the bytes
moved over the measured link (each device sends its share at the same time as the others), and the SGD step of all
parameters that a device has. A pipeline's plan is simulated. For the other strategies, waiting between devices is left
out.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp import process
from mxdp.backend import Device, HostArray, autograd, npx, upload
from mxdp.experiments.harness.experiment import Round, Work
from mxdp.experiments.measure.clock import seconds_of
from mxdp.experiments.measure.links import measured_link
from mxdp.experiments.measure.memory import peak_bytes
from mxdp.experiments.measure.oracle import TOLERANCE, largest
from mxdp.experiments.other_splits.split import COMBINED, GROUPS, SERIAL
from mxdp.layers import LENET, BatchNorm, Conv, Dense, LayerParams, Net, Pool, Relu, Shape, forward, init, outputs
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.layer_costs import LayerCost, find_cuts, measure_layers
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.tile import Tile
from mxdp.parallel.traffic import flat
from mxdp.plans.cost.link import Link
from mxdp.plans.cost.simulate import pipeline_seconds
from mxdp.plans.layers.column_row import WHOLE
from mxdp.plans.partition import pieces
from mxdp.plans.pipeline import pipeline
from mxdp.scratch import cross_entropy, get_params, sgd
from mxdp.tracing.recording import can_record

STRATEGIES: Mapping[str, Callable[..., Any]] = {
    SERIAL: Data, "data": Data, "layerwise": Layerwise, "tile": Tile, "pipeline": Pipeline,
    **{name: partial(Combined, split=split, groups=GROUPS) for name, split in zip(COMBINED, (Pipeline, Layerwise))},
}  # fmt: skip
LINK_BYTES = 1 << 23
STEPS, LR = 3, 0.1
"""Steps after which parameters are compared, and their learning rate."""

# Channels that are not multiples of 8: else oneDNN stores images in blocks, and its operators ask for temporary space,
# of which mxdp's settings allow many copies.
PICTURES: Net = (
    Conv(10, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Conv(20, kernel=3, padding=1), BatchNorm(), Relu(), Pool(2),
    Dense(10),
)  # fmt: skip
# Can be cut into two halves that take nearly the same time. Its convolutions, like LeNet's, use none of oneDNN's
# temporary space, so the memory of a step is that of its activations.
STAGES: Net = (
    Conv(20, kernel=3), Relu(), Conv(20, kernel=3), Relu(), Pool(2, kind="avg"),
    Conv(60, kernel=3), Relu(), Conv(60, kernel=3), Relu(), Pool(2, kind="avg"),
    Dense(10),
)  # fmt: skip


def network(name: str, size: int = 0) -> Tuple[Net, Shape]:
    """``lenet``; ``stages``: a deeper one for the same images; ``wide``: three dense layers of ``size`` units;
    ``pictures``: the slides' stack, for pictures of ``size`` x ``size`` pixels."""
    if name == "wide":
        return (Dense(size), Relu(), Dense(size), Relu(), Dense(size), Relu(), Dense(10)), (784,)
    if name == "pictures":
        return PICTURES, (3, size, size)
    return {"lenet": LENET, "stages": STAGES}[name], (1, 28, 28)


@dataclass(frozen=True)
class SplitNet:
    """A network for inputs of ``shape``, split by ``strategy`` over ``devices``; ``options`` are the strategy's own."""

    strategy: str
    net: Net
    shape: Shape
    devices: Sequence[Device]
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)

    def make(self) -> Any:
        """The strategy (:class:`mxdp.parallel.strategy.Strategy`), with the initial parameters."""
        devices = self.devices[:1] if self.strategy == SERIAL else self.devices
        params = init(self.net, self.shape, self.seed)
        return STRATEGIES[self.strategy](self.net, params, self.shape, devices, **self.options)

    def batch(self, samples: int) -> Tuple[HostArray, HostArray]:
        """Random samples and labels on the host."""
        random = onp.random.RandomState(self.seed + 1)
        return random.uniform(-1, 1, (samples, *self.shape)).astype("float32"), random.randint(0, 10, samples)

    def compare(self, samples: int) -> Iterator[Tuple[Any, ...]]:
        """For an oracle: scores, losses, each gradient and, after three steps, each parameter, with the serial run's.

        The tolerance is relative to the largest number of a layer: the gradient of a bias before a batch normalisation
        is zero except for rounding.
        """
        X, y = self.batch(samples)
        made = self.make()
        found = _to_host([[made.scores(X)], [made.step(X, y)], *made.gradients()])
        for _ in range(STEPS - 1):
            made.update(LR, samples)
            made.step(X, y)
        made.update(LR, samples)
        for actual, expected in zip(found + _to_host(made.params()), self._serial(X, y)):
            yield from scaled(actual, expected)

    def _serial(self, X: HostArray, y: HostArray) -> List[List[HostArray]]:
        """The same on the first device alone, in plain MXNet."""
        device = self.devices[0]
        params = [get_params(layer, device) for layer in init(self.net, self.shape, self.seed)]
        x, labels = upload(X, device), upload(y, device)
        found = _to_host([[forward(self.net, x, params)]])
        for step in range(STEPS):
            with autograd.record():
                losses = cross_entropy(forward(self.net, x, params), labels)
            losses.backward()
            if not step:
                found += _to_host([[losses], *([param.grad for param in layer] for layer in params)])
            sgd(flat(params), LR, len(X))
        return found + _to_host(params)


def scaled(actual: Sequence[HostArray], expected: Sequence[HostArray]) -> Iterator[Tuple[Any, ...]]:
    """The arrays of one layer in pairs, for an oracle, with the scale of the layer's largest expected number."""
    scale = max(map(largest, expected), default=0.0)
    for pair in zip(actual, expected):
        yield (*pair, TOLERANCE, scale)


def set_up_steps(split: SplitNet, samples: int, steps: int, **more: Any) -> Work:
    """A round is ``steps`` steps with ``samples`` samples each; its seconds are those of one step.

    The row's metrics get ``more``. The memory of a device is what stays between steps, and the most that is in use at a
    time in a step and its update, which makes a number for each parameter.
    """
    made, (X, y) = split.make(), split.batch(samples)

    def run(count: int) -> None:
        for _ in range(count):
            made.step(X, y)
            made.update(LR, samples)

    run(2)
    npx.waitall()
    lasting, work = made.lasting_bytes(samples), map(max, made.peak_bytes(samples), made.param_bytes())
    predicted = [sum(both) for both in zip(lasting, work)]
    measured = memory(split.devices[: len(lasting)], lasting, lambda: run(1))
    found = {
        "bytes_moved": made.bytes_moved(samples),
        "bytes_counted": made.traffic.total() if hasattr(made, "traffic") else None,
        "peak_bytes": max(measured) if measured else None,
        "peak_bytes_by_device": measured,
        "predicted_peak_bytes": max(predicted),
        "predicted_peak_bytes_by_device": predicted,
        **{f"allreduces_{way}": count for way, count in getattr(made, "allreduces", {}).items()},
        **more,
    }
    numbers = itertools.count()

    def one_round() -> Round:
        speeds = measure_speeds(split.net, split.shape, tuple(split.devices), samples, split.seed, next(numbers))
        expected = {"predicted_seconds": predict_step(split, made, samples, speeds)}
        return Round(seconds_of(lambda: run(steps)) / steps, expected, found)

    return Work(split.devices, one_round)


def memory(devices: Sequence[Device], lasting: Sequence[int], work: Callable[[], Any]) -> Optional[List[int]]:
    """The most bytes in use on each device while ``work`` runs, with the ``lasting`` ones that are there before; None
    where MXNet can't count them (its profiler follows only the first CPU devices). Waits."""
    if not can_record(devices):
        return None
    return [sum(both) for both in zip(lasting, peak_bytes(work, devices))]


@dataclass(frozen=True)
class Speeds:
    """What a prediction needs of the machine: each layer's times, the SGD step of all parameters, and the link."""

    layers: Sequence[LayerCost]
    update: float
    link: Link


def measure_speeds(net: Net, shape: Shape, devices: Tuple[Device, ...], samples: int, seed: int, number: int) -> Speeds:
    """Measured once a round for all cases of a process, on the first device, and to the second if there is one.
    Waits."""
    layers, update = _measure_work(net, shape, devices[0], samples, seed, number)
    return Speeds(layers, update, _measure_link(devices[:2], seed, number))


@lru_cache(maxsize=None)
def _measure_work(
    net: Net, shape: Shape, device: Device, samples: int, seed: int, number: int
) -> Tuple[Sequence[LayerCost], float]:
    """Each layer, and the SGD step of all parameters."""
    params = init(net, shape, seed)
    own = flat([get_params(layer, device) for layer in params])
    update = min(seconds_of(lambda: sgd(own, LR, samples)) for _ in range(3))
    return measure_layers(net, params, shape, device, samples), update


@lru_cache(maxsize=None)
def _measure_link(devices: Tuple[Device, ...], seed: int, number: int) -> Link:
    return measured_link(devices[0], devices[1], LINK_BYTES, seed) if len(devices) > 1 else Link(0.0, 0.0)


def predict_step(split: SplitNet, made: Any, samples: int, speeds: Speeds, cores: int = 0) -> float:
    """Predicted seconds of a step. ``made`` is the strategy, which has the plan; ``cores``: 0 means this machine's."""
    n = 1 if split.strategy == SERIAL else len(split.devices)
    cores = cores or process.cores()
    crowd = n / min(n, cores)
    sent = float(made.bytes_moved(samples) / n * speeds.link.beta)
    groups = made.groups if split.strategy in COMBINED else [made]
    one, shard = groups[0], -(-samples // len(groups)) / samples
    work = [layer.seconds * shard for layer in speeds.layers]
    if split.strategy.endswith("pipeline"):
        m = one.plan.micro_batches
        parts = pieces(len(work), one.cuts)
        there, back = (
            [sum(getattr(layer, way) for layer in speeds.layers[start:stop]) * shard / m for start, stop in parts]
            for way in ("forward", "backward")
        )
        update = float(speeds.update * max(one.param_bytes()) / sum(one.param_bytes()))
        own, turns = max(1, cores // len(groups)), max(1.0, len(groups) / cores)  # groups share the cores
        return turns * (pipeline_seconds(one.plan, there, back, cores=own) + update) + sent
    if split.strategy.endswith("layerwise"):
        whole = sum(seconds for seconds, cut in zip(work, one.cuts) if cut == WHOLE)
        parts_of = n / len(groups)
        return crowd * ((sum(work) - whole + speeds.update) / parts_of + whole) + sent
    if split.strategy == "tile":
        count, (rows, columns) = len(made.exchanges), made.grid
        shares = [-(-h // rows) * -(-w // columns) / (h * w) for _, h, w in outputs(split.net, split.shape)[:count]]
        image = sum(seconds * share for seconds, share in zip(work, shares))
        return float(crowd * (image + speeds.update) + sum(work[count:]) + sent)
    shard = -(-samples // n) / samples
    return crowd * (sum(work) * shard + speeds.update) + sent


@lru_cache(maxsize=None)
def stage_cuts(
    device: Device, stages: int, micro_batches: int, batch_size: int, seed: int, training: bool = True
) -> Tuple[int, ...]:
    """Where the network ``stages`` is cut, by the time of each layer, measured once for all cases of a process. Waits.

    Without ``training`` forward passes alone count.
    """
    net, shape = network("stages")
    plan = pipeline("gpipe", stages, micro_batches)
    return find_cuts(net, init(net, shape, seed), shape, device, plan, batch_size, training=training)


def workers(devices: Sequence[Device]) -> int:
    """How many of ``devices``, and Python, can work at the same time: one for each core, or all, if they are GPUs."""
    return process.cores() if devices[0].device_type == "cpu" else len(devices) + 1


def _to_host(layers: Sequence[LayerParams]) -> List[List[HostArray]]:
    return [[array.asnumpy() for array in layer] for layer in layers]
