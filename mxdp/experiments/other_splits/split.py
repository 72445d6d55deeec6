"""One network, split in several ways: made, compared with the serial run, timed, predicted, and told of.

The prediction takes each layer's time, measured alone on one device, and divides it as the strategy does: the largest
part counts, and a layer that is not divided counts whole. It adds the bytes moved over the measured link (each device
sends its share at the same time as the others), and the SGD step of all parameters that a device has. A pipeline's plan
is simulated; for the others, waiting between devices is left out. Two splits at once aren't predicted.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Callable, Iterator, List, Mapping, Optional, Sequence, Tuple

import numpy as onp

from mxdp import process
from mxdp.backend import Device, HostArray, NDArray, autograd, npx, upload
from mxdp.experiments.devices import devices_of, timed
from mxdp.experiments.lab import Skipped, Work
from mxdp.experiments.links import measured_link
from mxdp.experiments.memory_use import peak_bytes
from mxdp.experiments.oracle import TOLERANCE, magnitude
from mxdp.experiments.other_splits.nets import net_and_shape
from mxdp.layers import Net, Shape, forward, init, outputs
from mxdp.parallel.combined import Combined
from mxdp.parallel.data import Data
from mxdp.parallel.fully_sharded import FullySharded
from mxdp.parallel.layer_costs import LayerCost, find_cuts, measure_layers
from mxdp.parallel.layerwise import Layerwise
from mxdp.parallel.pipeline import Pipeline
from mxdp.parallel.tile import Tile
from mxdp.parallel.traffic import flat
from mxdp.plans.cost.simulate import last_end, pipeline_spans
from mxdp.plans.layers.column_row import WHOLE
from mxdp.plans.partition import pieces
from mxdp.plans.pipeline import pipeline
from mxdp.scratch import cross_entropy, get_params, sgd
from mxdp.tracing.recording import can_record

SERIAL = "serial"
COMBINED = ("data x pipeline", "data x layerwise")
GROUPS = 2
"""Into how many groups of devices ``COMBINED`` divides the batch. A group then splits its shard by the second way."""
STRATEGIES: Mapping[str, Callable[..., Any]] = {
    SERIAL: Data,
    "data": Data,
    "pipeline": Pipeline,
    "layerwise": Layerwise,
    "tile": Tile,
    "fully-sharded": FullySharded,
    COMBINED[0]: partial(Combined, split=Pipeline, groups=GROUPS),
    COMBINED[1]: partial(Combined, split=Layerwise, groups=GROUPS),
}
COMPARED = "losses, scores, each gradient and, after three steps, each parameter"
QUICK = dict(devices=[2], timeout=120.0)
FULL = dict(devices=[2, 4], timeout=1200.0)
"""What the presets of this room have in common."""
STEPS = 3
LR = 0.1
"""Steps after which parameters are compared, and their learning rate."""
LINK_BYTES = 1 << 23
WARM_UP = 8
"""Steps before the round: in the third and later ones ResNet-18 still touches new pages."""


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

    def make(self, samples: float = math.inf) -> Any:
        """The strategy (:class:`mxdp.parallel.strategy.Strategy`), with the initial parameters. Raises Skipped if the
        network, or a batch of ``samples``, can't be cut for so many devices."""
        params = init(self.net, self.shape, self.seed, self.dtype)
        with skipping():
            made = STRATEGIES[self.strategy](
                self.net, params, self.shape, self.devices, **self.options
            )
        if samples < made.least:
            raise Skipped(
                f"a batch of {samples} is too small for {made.least} {made.of}: use larger batches"
            )
        return made

    def batch(self, samples: int) -> Tuple[HostArray, HostArray]:
        """Random samples and labels on the host."""
        random = onp.random.RandomState(self.seed + 1)
        X = random.uniform(-1, 1, (samples, *self.shape)).astype(self.dtype)
        return X, random.randint(0, 10, samples)

    def compare(self, samples: int) -> Iterator[Tuple[Any, ...]]:
        """Yield scores, losses, each gradient and, after three steps, each parameter, with the serial run's, for an
        oracle. There are at least that many samples. Errors are relative to the largest number of a layer, since a bias
        ahead of a batch normalisation has a gradient of rounding."""
        made = self.make()
        samples = uneven(samples, made)
        X, y = self.batch(samples)
        first_step = [[made.scores(X)], [made.step(X, y)], *made.gradients()]
        actual = list(map(_to_host, first_step))
        made.update(LR, samples)
        train(made, X, y, STEPS - 1)
        actual += map(_to_host, made.params())
        for layer, expected in zip(actual, self._serial(X, y)):
            scale = max(map(magnitude, expected), default=0.0)
            for pair in zip(layer, expected):
                yield (*pair, TOLERANCE, scale)

    def _serial(self, X: HostArray, y: HostArray) -> List[List[HostArray]]:
        """The same on the first device alone, in plain MXNet."""
        device = self.devices[0]
        initial = init(self.net, self.shape, self.seed, self.dtype)
        params = [get_params(layer, device) for layer in initial]
        x = upload(X, device)
        labels = upload(y, device)
        expected = [_to_host([forward(self.net, x, params)])]
        for step in range(STEPS):
            with autograd.record():
                losses = cross_entropy(forward(self.net, x, params), labels)
            losses.backward()
            if step == 0:
                expected.append(_to_host([losses]))
                for layer in params:
                    expected.append(_to_host([param.grad for param in layer]))
            sgd(flat(params), LR, len(X))
        return expected + list(map(_to_host, params))


def split_net(case, s, strategy, name, size=0, **options):
    """The network ``name`` of :func:`net_and_shape`, split by ``strategy`` over the devices of the case."""
    return SplitNet(strategy, *net_and_shape(name, size), devices_of(case, s), s.seed, options)


@contextmanager
def skipping() -> Iterator[None]:
    """Skip a case whose network can't be cut for so many devices, as a ValueError says."""
    try:
        yield
    except ValueError as error:
        raise Skipped(str(error)) from error


def uneven(samples: int, made: Any) -> int:
    """``samples``, or as many more as a strategy needs to give each part of the batch one, and one of them two."""
    return max(samples, int(made.least) + 1)


def train(made: Any, X: HostArray, y: HostArray, steps: int = 1, lr: float = LR) -> None:
    """Push ``steps`` steps of a strategy on one batch, each with its update. Doesn't wait."""
    for _ in range(steps):
        made.step(X, y)
        made.update(lr, len(X))


def memory(
    devices: Sequence[Device], lasting: Sequence[int], work: Callable[[], Any]
) -> Optional[int]:
    """The most bytes in use on one of ``devices`` while ``work`` runs, with the ``lasting`` ones that are there before;
    None where MXNet can't count them (its profiler follows only the first CPU devices). Waits."""
    return fullest(lasting, peak_bytes(work, devices)) if can_record(devices) else None


def fullest(lasting: Sequence[int], more: Sequence[int]) -> int:
    """The bytes of the device that needs most: of each what lasts, and what comes to that."""
    return max(map(sum, zip(lasting, more)))


def label_of(strategy: str, n: int) -> str:
    """Strategy and devices in the label of a row.

    >>> label_of("data", 4), label_of("data x pipeline", 4)
    ('data x 4', 'data 2 x pipeline 2')
    """
    if strategy == SERIAL:
        return SERIAL
    if strategy not in COMBINED:
        return f"{strategy} x {n}"
    first, second = strategy.split(" x ")
    return f"{first} {GROUPS} x {second} {n // GROUPS}"


@lru_cache(maxsize=None)
def stage_cuts(
    device: Device,
    stages: int,
    micro_batches: int,
    batch_size: int,
    seed: int,
    training: bool = True,
) -> Tuple[int, ...]:
    """Where ``stages`` is cut, by each layer's time (without ``training`` forward alone), once a process. Waits."""
    net, shape = net_and_shape("stages")
    plan = pipeline("gpipe", stages, micro_batches)
    with skipping():
        return find_cuts(
            net, init(net, shape, seed), shape, device, plan, batch_size, training=training
        )


def _to_host(layer: Sequence[NDArray]) -> List[HostArray]:
    return [array.asnumpy() for array in layer]


def set_up_steps(split: SplitNet, samples: int, steps: int, **more: Any) -> Work:
    """A round is ``steps`` steps with ``samples`` samples each, and its seconds those of one. The row gets ``more``. A
    device's memory is what stays between steps, and the most in use in a step and its update (a number a parameter)."""
    made = split.make(samples)
    run = partial(train, made, *split.batch(samples))
    run(WARM_UP)
    npx.waitall()
    lasting = made.lasting_bytes(samples)
    work = list(map(max, made.peak_bytes(samples), made.param_bytes()))
    numbers = {
        "bytes_moved": made.bytes_moved(samples),
        "peak_bytes": memory(split.devices, lasting, run),
        "predicted_peak_bytes": fullest(lasting, work),
        **more,
    }
    if split.strategy not in COMBINED:
        first, *others = split.devices
        layers, update = measured_work(split.net, split.shape, first, samples, split.seed)
        beta = measured_link(first, others[0], LINK_BYTES, split.seed).beta if others else 0.0
        numbers["predicted_seconds"] = predict_split(split, made, samples, layers, update, beta)
    return Work(lambda: (timed(lambda: run(steps)) / steps, numbers))


@lru_cache(maxsize=None)
def measured_work(
    net: Net, shape: Shape, device: Device, samples: int, seed: int
) -> Tuple[Sequence[LayerCost], float]:
    """Each layer's times, and the SGD step of all parameters: measured once for all cases of a process. Waits."""
    params = init(net, shape, seed)
    copies = flat([get_params(layer, device) for layer in params])
    update = min(timed(lambda: sgd(copies, LR, samples)) for _ in range(3))
    return measure_layers(net, params, shape, device, samples), update


def predict_split(
    split: SplitNet,
    made: Any,
    samples: int,
    layers: Sequence[LayerCost],
    update: float,
    beta: float,
    cores: int = 0,
) -> float:
    """Predicted seconds of a step. ``made`` is the strategy, which has the plan; ``update``: of the SGD step of all
    parameters; ``beta``: of a byte on the link; ``cores``: 0 means this machine's."""
    n = len(split.devices)
    cores = cores or process.cores()
    crowd = n / min(n, cores)
    sent = float(made.bytes_moved(samples) / n * beta)
    work = [layer.seconds for layer in layers]
    if split.strategy == "pipeline":
        there = []
        back = []
        for start, stop in pieces(len(layers), made.cuts):
            stage = layers[start:stop]
            there.append(sum(layer.forward for layer in stage) / made.plan.micro_batches)
            back.append(sum(layer.backward for layer in stage) / made.plan.micro_batches)
        update *= float(max(made.param_bytes()) / sum(made.param_bytes()))
        return last_end(pipeline_spans(made.plan, there, back, cores=cores)) + update + sent
    if split.strategy == "layerwise":
        whole = sum(seconds for seconds, cut in zip(work, made.cuts) if cut == WHOLE)
        return crowd * ((sum(work) - whole + update) / n + whole) + sent
    if split.strategy == "tile":
        count = len(made.exchanges)
        rows, columns = made.grid
        image = 0.0
        shapes = outputs(split.net, split.shape)
        for seconds, (_, h, w) in zip(work[:count], shapes):
            share = -(-h // rows) * -(-w // columns) / (h * w)
            image += seconds * share
        return float(crowd * (image + update) + sum(work[count:]) + sent)
    return crowd * (sum(work) * -(-samples // n) / samples + update) + sent


def tell_steps(t, *alike):
    """The columns of :func:`set_up_steps`, and each row's speed-up over the serial row that has ``alike`` in common."""
    for row in t:
        serial = t.one(strategy=SERIAL, **{name: row.get(name) for name in alike})
        row.speedup = serial.seconds / row.seconds
    t.column("seconds", "ms", scale=1e3, about="the time of a step: forward, backward, update")
    t.column(
        "predicted_seconds",
        "pred.",
        scale=1e3,
        spread=True,
        about="the cost model's prediction of it, with the interval that its measured constants give it",
    )
    t.column("speedup", "faster", ".2f", unit="x", about="compared with one device")
    t.column(
        "bytes_moved",
        "moved MB",
        scale=1e-6,
        about="what a step sends between devices, by the shapes",
    )
    t.column(
        "peak_bytes",
        "MB",
        scale=1e-6,
        about="the memory of the device that needs most, as MXNet counts it",
    )
    t.column(
        "predicted_peak_bytes", "MB pred.", scale=1e-6, about="that, calculated from the shapes"
    )
