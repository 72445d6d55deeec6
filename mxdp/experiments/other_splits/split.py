"""One network, split in several ways: made, compared with the serial run, timed, and told of."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, autograd, upload
from mxdp.experiments.memory import peak_bytes
from mxdp.experiments.oracle import TOLERANCE, magnitude
from mxdp.layers import LENET, BatchNorm, Conv, Dense, LayerParams, Net, Pool, Relu, Shape, forward, init, resnet18
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layer_costs import find_cuts
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.tile import Tile
from mxdp.parallel.traffic import flat
from mxdp.plans.pipeline import pipeline
from mxdp.scratch import cross_entropy, get_params, sgd
from mxdp.tracing.recording import can_record

SERIAL = "serial"
COMBINED = ("data x pipeline", "data x layerwise")
GROUPS = 2
"""Over which ``COMBINED`` splits the batch. A group splits its shard once more, as the second word says."""
STRATEGIES: Mapping[str, Callable[..., Any]] = {
    SERIAL: Data, "data": Data, "pipeline": Pipeline, "layerwise": Layerwise, "tile": Tile,
    "fully-sharded": FullySharded,
    **{name: partial(Combined, split=split, groups=GROUPS) for name, split in zip(COMBINED, (Pipeline, Layerwise))},
}  # fmt: skip
COMPARED = "losses, scores, each gradient and, after three steps, each parameter"
QUICK = dict(devices=[2], timeout=120.0)
FULL = dict(devices=[2, 4], timeout=1200.0)
"""What the presets of this room have in common."""
STEPS, LR = 3, 0.1
"""Steps after which parameters are compared, and their learning rate."""
NETS = {"lenet": "LeNet", "wide": "Wide net"}

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


def net_and_shape(name: str, size: int = 0) -> Tuple[Net, Shape]:
    """``lenet``; ``stages``: a deeper one for the same images; ``resnet``: ResNet-18 of width ``size`` for them;
    ``wide``: three dense layers of ``size`` units; ``pictures``: the slides' stack, for ``size`` x ``size`` pixels."""
    if name == "wide":
        return (Dense(size), Relu(), Dense(size), Relu(), Dense(size), Relu(), Dense(10)), (784,)
    if name == "pictures":
        return PICTURES, (3, size, size)
    return resnet18(size) if name == "resnet" else {"lenet": LENET, "stages": STAGES}[name], (1, 28, 28)


def numbers_of(name: str, units: int) -> Tuple[int, int]:
    """Of LeNet, or of the wide net: its parameters, and the numbers that layerwise partitioning sums a sample.

    >>> numbers_of("wide", 512)
    (932362, 1034)
    """
    if name == "lenet":
        return 129_068, 4_860
    return (784 + 1) * units + 2 * (units + 1) * units + 10 * (units + 1), 2 * units + 10


@dataclass(frozen=True)
class SplitNet:
    """A network for inputs of ``shape``, split by ``strategy`` over ``devices``; ``options`` are the strategy's own."""

    strategy: str
    net: Net
    shape: Shape
    devices: Sequence[Device]
    seed: int
    options: Mapping[str, Any]
    dtype: str = "float32"

    def make(self) -> Any:
        """The strategy (:class:`mxdp.parallel.strategy.Strategy`), with the initial parameters."""
        params = init(self.net, self.shape, self.seed, self.dtype)
        return STRATEGIES[self.strategy](self.net, params, self.shape, self.devices, **self.options)

    def batch(self, samples: int) -> Tuple[HostArray, HostArray]:
        """Random samples and labels on the host."""
        random = onp.random.RandomState(self.seed + 1)
        return random.uniform(-1, 1, (samples, *self.shape)).astype(self.dtype), random.randint(0, 10, samples)

    def compare(self, samples: int) -> Iterator[Tuple[Any, ...]]:
        """For an oracle: scores, losses, each gradient and, after three steps, each parameter, with the serial run's,
        relative to the largest number of a layer: a bias ahead of a batch normalisation has a gradient of rounding."""
        X, y = self.batch(samples)
        made = self.make()
        actual = _to_host([[made.scores(X)], [made.step(X, y)], *made.gradients()])
        made.update(LR, samples)
        train(made, X, y, STEPS - 1)
        for layer, expected in zip(actual + _to_host(made.params()), self._serial(X, y)):
            scale = max(map(magnitude, expected), default=0.0)
            for pair in zip(layer, expected):
                yield (*pair, TOLERANCE, scale)

    def _serial(self, X: HostArray, y: HostArray) -> List[List[HostArray]]:
        """The same on the first device alone, in plain MXNet."""
        device = self.devices[0]
        params = [get_params(layer, device) for layer in init(self.net, self.shape, self.seed, self.dtype)]
        x, labels = upload(X, device), upload(y, device)
        expected = _to_host([[forward(self.net, x, params)]])
        for step in range(STEPS):
            with autograd.record():
                losses = cross_entropy(forward(self.net, x, params), labels)
            losses.backward()
            if not step:
                expected += _to_host([[losses], *([param.grad for param in layer] for layer in params)])
            sgd(flat(params), LR, len(X))
        return expected + _to_host(params)


def train(made: Any, X: HostArray, y: HostArray, steps: int = 1, lr: float = LR) -> None:
    """Push ``steps`` steps of a strategy on one batch, each with its update. Doesn't wait."""
    for _ in range(steps):
        made.step(X, y)
        made.update(lr, len(X))


def memory(devices: Sequence[Device], lasting: Sequence[int], work: Callable[[], Any]) -> Optional[int]:
    """The most bytes in use on one of ``devices`` while ``work`` runs, with the ``lasting`` ones that are there before;
    None where MXNet can't count them (its profiler follows only the first CPU devices). Waits."""
    return max(map(sum, zip(lasting, peak_bytes(work, devices)))) if can_record(devices) else None


@lru_cache(maxsize=None)
def stage_cuts(
    device: Device, stages: int, micro_batches: int, batch_size: int, seed: int, training: bool = True
) -> Tuple[int, ...]:
    """Where ``stages`` is cut, by each layer's time (without ``training`` forward alone), once a process. Waits."""
    net, shape = net_and_shape("stages")
    plan = pipeline("gpipe", stages, micro_batches)
    return find_cuts(net, init(net, shape, seed), shape, device, plan, batch_size, training=training)


def _to_host(layers: Sequence[LayerParams]) -> List[List[HostArray]]:
    return [[array.asnumpy() for array in layer] for layer in layers]
