"""Trains the book's LeNet with batch normalisation, by the statistics of the case, from a new seed in each round."""

from __future__ import annotations

from functools import lru_cache
from itertools import count
from typing import Any, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, autograd, np, npx
from mxdp.collectives import GradientSync
from mxdp.datasets import Dataset, load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.data_parallel.batch_norm import OTHER_ORDER, OWN, SYNCED
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.layers import EPSILON
from mxdp.parallel.batch_norm import SyncBatchNorm
from mxdp.scratch import cross_entropy, evaluate, get_params, split_batch
from mxdp.timing import Timer
from mxdp.training.update import prepare_update

WEIGHTS = ((6, 1, 5, 5), (16, 6, 5, 5), (120, 256), (84, 120), (10, 84))
"""Behind each but the last stands a normalisation. So biases would have no effect, and are left out."""
NORMS, MOMENTUM = len(WEIGHTS) - 1, 0.9
TOLERANCE = 1e-3
"""Of the largest number: a gradient behind four normalisations is a difference of sums, and their rounding stays. Seen:
1.2e-4."""


class NormedLeNet:
    """A replica on each device. ``running[i]``: the means and variances of replica i, two arrays a normalisation."""

    def __init__(self, devices: Sequence[Device], way: str) -> None:
        self.devices, channels = list(devices), [shape[0] for shape in WEIGHTS[:-1] for _ in range(2)]
        shapes = [*WEIGHTS, *[(own,) for own in channels]]
        self.replicas = [get_params([np.zeros(shape) for shape in shapes], device) for device in devices]
        self.running = [[np.zeros(own, ctx=device) for own in channels] for device in devices]
        every = range(len(devices))
        self.groups = [list(every)] if way == SYNCED else [[number] for number in every]
        """Replicas whose shards are normalised together."""
        self._norms = [] if way in (OWN, OTHER_ORDER) else [
            [_synced([self._norm(number, layer) for number in group]) for group in self.groups]
            for layer in range(NORMS)
        ]  # fmt: skip
        self._sync = GradientSync(self.replicas)

    def start(self, seed: int) -> None:
        """Weights by Glorot and Bengio; scales and variances 1, shifts and means 0."""
        random = onp.random.RandomState(seed)
        limits = [(6 / (onp.prod(shape[1:]) + shape[0] * onp.prod(shape[2:]))) ** 0.5 for shape in WEIGHTS]
        weights = [random.uniform(-limit, limit, shape).astype("float32") for limit, shape in zip(limits, WEIGHTS)]
        for params, running in zip(self.replicas, self.running):
            for own, first in zip(params, weights):
                np.array(first).copyto(own)
            for ones, zeros in (
                (params[len(WEIGHTS) :: 2], params[len(WEIGHTS) + 1 :: 2]),
                (running[1::2], running[::2]),
            ):
                for one, zero in zip(ones, zeros):
                    one[:], zero[:] = 1, 0

    def backward(self, X: HostArray, y: HostArray) -> None:
        """The gradients, summed over the devices. Doesn't wait."""
        (xs, ys), cuts = split_batch(X, y, self.devices), []
        with autograd.record():
            for layer in range(NORMS):
                hs = [_layer(layer, x, params) for x, params in zip(xs, self.replicas)]
                if self._norms:
                    xs = [
                        x for norm, group in zip(self._norms[layer], self.groups) for x in norm([hs[i] for i in group])
                    ]
                    cuts.append((self._norms[layer], hs))
                else:
                    xs = [_normalise(h, *self._norm(number, layer)) for number, h in enumerate(hs)]
            losses = [cross_entropy(_layer(NORMS, x, W), y) for x, y, W in zip(xs, ys, self.replicas)]
        autograd.backward(losses)
        for norms, hs in reversed(cuts):
            autograd.backward(hs, [gradient for norm in norms for gradient in norm.backward()])
        self._sync()

    def accuracy(self, data: Any, running: Sequence[NDArray]) -> float:
        """Of replica 0's parameters with these running statistics, which lie on its device. Waits."""

        def net(X: NDArray, params: Sequence[NDArray]) -> NDArray:
            for layer in range(NORMS):
                X = _normalise(_layer(layer, X, params), *_arrays(params, running, layer))
            return _layer(NORMS, X, params)

        return evaluate(data, self.replicas[:1], net=net)

    def _norm(self, replica: int, layer: int) -> List[NDArray]:
        return _arrays(self.replicas[replica], self.running[replica], layer)


class NormedTraining:
    """A network that can start anew; ``train`` is what a round does."""

    def __init__(self, data: Dataset, devices: Sequence[Device], way: str, batch: int, lr: float) -> None:
        self.net, self._data, self._batch, self._timer = NormedLeNet(devices, way), data, batch, Timer()
        self._turned = slice(None, None, -1 if way == OTHER_ORDER else 1)
        self._updates = [prepare_update(params, lr / batch) for params in self.net.replicas]

    def train(self, seed: int, steps: int) -> float:
        """From that seed's start; returns the seconds of a step. Waits."""
        self.net.start(seed)
        batches = Stream(self._data.train, self._batch, seed).take(self._batch * steps)
        with self._timer:
            for X, y in batches:
                self.net.backward(X[self._turned], y[self._turned])
                for update in self._updates:
                    update()
        return self._timer.times[-1] / steps

    def flat(self) -> HostArray:
        """All parameters of replica 0, in one vector. Waits."""
        return onp.concatenate([param.asnumpy().ravel() for param in self.net.replicas[0]])


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """The gradients and running statistics after a backward pass over an uneven batch, of every replica. The serial run
    is on one device, by MXNet's own normalisation: of each part of the batch that is normalised as one."""
    devices, random = devices_of(case, settings), onp.random.RandomState(settings["seed"])
    X = random.uniform(size=(8 * len(devices) + 1, 1, 28, 28)).astype("float32")
    y = random.randint(0, 10, size=len(X)).astype("int32")
    net, serial = NormedLeNet(devices, case.settings["way"]), NormedLeNet(devices[:1], OWN)
    net.start(settings["seed"])
    net.backward(X, y)
    X_shards, y_shards = (onp.array_split(own, len(devices)) for own in (X, y))
    gradients = []
    for group in net.groups:
        serial.start(settings["seed"])
        serial.backward(*(onp.concatenate([shards[number] for number in group]) for shards in (X_shards, y_shards)))
        gradients.append([param.grad.asnumpy() for param in serial.replicas[0]])
        for number in group:
            for own, expected in zip(net.running[number], serial.running[0]):
                yield own.asnumpy(), expected.asnumpy(), TOLERANCE
    for params in net.replicas:
        for own, *parts in zip(params, *gradients):
            yield own.grad.asnumpy(), sum(parts), TOLERANCE


def set_up(case: Case, settings: Settings) -> Work:
    """A round is a training, and its seed is another one in each process, too."""
    devices, batch = devices_of(case, settings), case.settings["batch"]
    data = _data(settings["data"], settings["data_dir"], settings["seed"], settings["test"])
    training = NormedTraining(data, devices, case.settings["way"], batch, settings["lr"])
    seeds = count(settings["seed"] + 1000 * case.settings["repeat"])

    def one_round() -> Round:
        seed = next(seeds)
        seconds = training.train(seed, settings["steps"])
        start, end, serial_accuracy = _serial(data, devices[0], batch, settings["lr"], seed, settings["steps"])
        way = onp.linalg.norm(end - start)
        first, last = ([each.as_in_ctx(devices[0]) for each in training.net.running[number]] for number in (0, -1))
        mean = [sum(each.as_in_ctx(devices[0]) for each in same) / len(devices) for same in zip(*training.net.running)]
        saved, other, averaged = (training.net.accuracy(data.test, running) for running in (first, last, mean))
        metrics = {
            "differs": onp.linalg.norm(training.flat() - end) / way,
            "test_accuracy": saved,
            "gain": saved - serial_accuracy,
            "other_replica": abs(other - saved),
            "averaged": averaged - saved,
        }
        return Round(seconds, {name: float(value) for name, value in metrics.items()})

    training.train(settings["seed"], 2)
    return Work(devices, one_round, case={"data": data.name})


@lru_cache(maxsize=1)
def _data(name: str, folder: Optional[str], seed: int, test: int) -> Dataset:
    """One copy for all cases of this process."""
    data = load(name, folder, seed=seed)
    return data.take(len(data.train), test)


@lru_cache(maxsize=None)
def _serial(
    data: Dataset, device: Device, batch: int, lr: float, seed: int, steps: int
) -> Tuple[HostArray, HostArray, float]:
    """One device, the whole batch, MXNet's own normalisation: parameters before and after, and the accuracy. It is
    trained once for all cases of this process."""
    training = NormedTraining(data, [device], OWN, batch, lr)
    training.net.start(seed)
    start = training.flat()
    training.train(seed, steps)
    return start, training.flat(), training.net.accuracy(data.test, training.net.running[0])


def _synced(arrays: List[List[NDArray]]) -> SyncBatchNorm:
    """Of each replica's scale, shift, mean and variance."""
    scales, shifts, means, variances = zip(*arrays)
    return SyncBatchNorm(scales, shifts, means, variances, MOMENTUM)


def _arrays(params: Sequence[NDArray], running: Sequence[NDArray], layer: int) -> List[NDArray]:
    """Scale, shift, mean and variance of a normalisation."""
    scales = len(WEIGHTS) + 2 * layer
    return [*params[scales : scales + 2], *running[2 * layer : 2 * layer + 2]]


def _normalise(x: NDArray, *arrays: NDArray) -> NDArray:
    return npx.batch_norm(x, *arrays, eps=EPSILON, momentum=MOMENTUM, fix_gamma=False)


def _layer(number: int, x: NDArray, params: Sequence[NDArray]) -> NDArray:
    """The product with weight ``number``, and what stands between it and the normalisation before it."""
    weight = params[number]
    if number:
        x = npx.activation(x, act_type="sigmoid")
    if number in (1, 2):
        x = npx.pooling(x, pool_type="avg", kernel=(2, 2), stride=(2, 2))
    if number < 2:
        return npx.convolution(x, weight, kernel=weight.shape[2:], num_filter=len(weight), no_bias=True)
    return npx.fully_connected(x, weight, num_hidden=len(weight), no_bias=True)
