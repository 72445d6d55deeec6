"""Steps of three networks on one and on several devices, and what the prediction takes: one device, and the links."""

from __future__ import annotations

import itertools
import time
from dataclasses import replace
from functools import lru_cache
from typing import Any, Iterable, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp import process
from mxdp.backend import Batch, Device, HostArray, NDArray, autograd, mx, np, npx, upload
from mxdp.collectives import GradientSync, calibrate
from mxdp.collectives.tuning import choose
from mxdp.experiments.data_parallel.break_even import GRID
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.oracle import TOLERANCE, largest
from mxdp.experiments.measure.resnet import resnet18
from mxdp.gluon import Trainer
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.cost.machine import Machine
from mxdp.plans.cost.simulate import predict
from mxdp.plans.partition import fill_buckets
from mxdp.scratch import cross_entropy, get_params, init_lenet, lenet, split_and_load
from mxdp.training import TrainStep

LR = 1e-3
"""Small, since all steps train on the same random batch."""
BUCKET = 25 << 20
"""Bytes of a bucket: the default of ``GradientSync`` and of ``mxdp.Trainer``."""
MOST = 200
"""Steps of one measurement."""

Devices = Tuple[Device, ...]


def mlp(X: NDArray, params: Sequence[NDArray]) -> NDArray:
    """Scores of pictures, by three dense layers."""
    W1, b1, W2, b2, W3, b3 = params
    h = npx.activation(npx.fully_connected(X, W1, b1, num_hidden=W1.shape[0]), act_type="relu")
    h = npx.activation(npx.fully_connected(h, W2, b2, num_hidden=W2.shape[0]), act_type="relu")
    return npx.fully_connected(h, W3, b3, num_hidden=10)


class Functional:
    """LeNet or the MLP, trained by :class:`mxdp.training.TrainStep`."""

    def __init__(self, name: str, units: int, devices: Devices, seed: int) -> None:
        self.net, self.sums = (lenet if name == "lenet" else mlp), True
        params = init_lenet(seed, scale=0.1) if name == "lenet" else _init_mlp(units, seed)
        self.replicas: List[Sequence[NDArray]] = [get_params(params, device) for device in devices]
        self._all = GradientSync(self.replicas)
        self.step = TrainStep(self.replicas, devices, LR, self._sync, self.net)

    def _sync(self) -> None:
        if self.sums:
            self._all()

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """On the first replica, without the step that is timed."""
        return cross_entropy(self.net(X, self.replicas[0]), y)


class Gluon:
    """ResNet-18, hybridised and trained by :class:`mxdp.Trainer`."""

    def __init__(self, width: int, devices: Devices, seed: int) -> None:
        self.net, self.sums, self._devices = resnet18(width), True, devices
        mx.random.seed(seed)
        self.net.initialize(mx.init.Xavier(), ctx=list(devices))
        self.net.hybridize()
        for device in devices:
            self.net(np.zeros((1, 1, 28, 28), ctx=device))
        npx.waitall()  # a pass that is still running may change the layout of its weights while they are read
        params = self.net.collect_params()
        self._trainer = Trainer(params, "sgd", {"learning_rate": LR})
        trained = [param for param in params.values() if param.grad_req != "null"]
        self.replicas: List[Sequence[NDArray]] = [[param.data(device) for param in trained] for device in devices]

    def step(self, X: Batch, y: Batch) -> None:
        """Doesn't wait."""
        with autograd.record():
            losses = [
                cross_entropy(self.net(X), y)
                for X, y in zip(split_and_load(X, self._devices), split_and_load(y, self._devices))
            ]
        autograd.backward(losses)
        if self.sums:
            self._trainer.allreduce_grads()
        self._trainer.update(len(X))

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """As :meth:`Functional.loss`."""
        return cross_entropy(self.net(X), y)


@lru_cache(maxsize=None)
def network(name: str, size: int, devices: Devices, seed: int) -> Any:
    """The same for all cases, which work one after the other."""
    return Gluon(size, devices, seed) if name == "resnet" else Functional(name, size, devices, seed)


def _size(case: Case, settings: Settings) -> int:
    return int(settings["width" if case.settings["net"] == "resnet" else "units"])


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """One step on the case's batch. The serial run computes the shards' gradients one by one on the first device and
    adds them up on the host. (A batch normalisation takes its means over a shard, so the whole batch would differ.)"""
    devices, (X, y) = tuple(devices_of(case, settings)), _batch(case.settings["batch"], settings["seed"])
    many, one = (
        network(case.settings["net"], _size(case, settings), own, settings["seed"]) for own in (devices, devices[:1])
    )
    start = [param.asnumpy() for param in many.replicas[0]]
    expected = _summed(one, start, zip(onp.array_split(X, len(devices)), onp.array_split(y, len(devices))))
    _set(many, start)
    many.step(X, y)
    npx.waitall()
    found = [[each.asnumpy() for param in replica for each in (param.grad, param)] for replica in many.replicas]
    for number, (gradient, before) in enumerate(zip(expected, start)):
        change = -LR / len(X) * gradient
        yield found[0][2 * number], gradient, TOLERANCE
        # The change is small beside the parameter, which is rounded.
        limit = TOLERANCE * largest(change) + 2**-22 * largest(before)
        yield found[0][2 * number + 1], before + change, 1.0, limit
    for replica in found[1:]:
        for own, first in zip(replica, found[0]):
            yield own.view("u4") != first.view("u4"), onp.zeros(own.shape), 0.0


def _summed(one: Any, start: Sequence[HostArray], shards: Iterable[Tuple[HostArray, HostArray]]) -> List[HostArray]:
    """The sum of the shards' gradients, computed on one device from the parameters ``start``, in float64."""
    _set(one, start)
    device, total = one.replicas[0][0].ctx, [onp.zeros(each.shape) for each in start]
    for X, y in shards:
        with autograd.record():
            loss = one.loss(upload(X, device), upload(y, device))
        loss.backward()
        total = [sum_ + param.grad.asnumpy() for sum_, param in zip(total, one.replicas[0])]
    return total


def _set(model: Any, values: Sequence[HostArray]) -> None:
    """Set the parameters of all replicas: a step without its all-reduce leaves them different."""
    for replica in model.replicas:
        for param, own in zip(replica, values):
            param[()] = upload(own, param.ctx)


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps, on one device. On several, it is these with the all-reduce and without it, and what the
    prediction takes: steps of one device on its shard, and the links' speeds."""
    devices, own, numbers = tuple(devices_of(case, settings)), case.settings, itertools.count()
    on_cpu, n = devices[0].device_type == "cpu", len(devices)
    everywhere = tuple(devices_of(replace(case, devices=max(settings["devices"])), settings))
    size = _size(case, settings)
    model, one = (network(own["net"], size, each, settings["seed"]) for each in (devices, devices[:1]))
    batch = _batch(own["batch"], settings["seed"])
    shard = tuple(each[: -(-own["batch"] // n)] for each in batch)
    one.step(*shard)
    model.step(*batch)
    steps = max(1, min(MOST, round(settings["at_least"] / seconds_a_step(model, batch, 1)[0])))

    def one_round() -> Round:
        machine = _machine(everywhere, next(numbers)) if n > 1 else None
        seconds, _ = seconds_a_step(model, batch, steps)
        if machine is None:
            return Round(seconds)
        shard_seconds, python = seconds_a_step(one, shard, steps)
        model.sums = False
        alone, _ = seconds_a_step(model, batch, steps)
        model.sums = True
        sizes = [param.size for param in model.replicas[0]]
        grid = {str(count): allreduce_seconds([count], devices, machine) for count in GRID}
        metrics = {
            "shard_seconds": shard_seconds, "python_seconds": python, "alone_seconds": alone,
            "allreduce_seconds": allreduce_seconds(sizes, devices, machine), "allreduce_by_parameters": grid,
        }  # fmt: skip
        return Round(seconds, metrics)

    return Work(devices, one_round, case={"cores": process.cores() if on_cpu else None})


def seconds_a_step(model: Any, batch: Sequence[HostArray], steps: int) -> Tuple[float, float]:
    """Mean seconds of steps that follow one another, and of Python's processor time. Waits at both ends."""
    npx.waitall()
    started, python = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        model.step(*batch)
    python = time.thread_time() - python
    npx.waitall()
    return (time.perf_counter() - started) / steps, python / steps


def allreduce_seconds(sizes: Sequence[int], devices: Devices, machine: Machine) -> float:
    """Predicted time of the sums of all gradients (float32, ``sizes`` elements), in the buckets that the step has."""
    total = 0.0
    for numbers in fill_buckets([4 * size for size in sizes], ["float32"] * len(sizes), BUCKET):
        own = [sizes[number] for number in numbers]
        total += predict(plan(choose(devices, own, 4), len(devices), own), 4 * sum(own), machine)
    return total


@lru_cache(maxsize=None)
def _machine(devices: Devices, number: int) -> Machine:
    """The machine's speeds in round ``number``, for all cases."""
    return calibrate(devices)


def _batch(samples: int, seed: int) -> Tuple[HostArray, HostArray]:
    """Random pictures and labels, on the host."""
    random = onp.random.RandomState(seed)
    return random.uniform(size=(samples, 1, 28, 28)).astype("float32"), random.randint(0, 10, samples).astype("int32")


def _init_mlp(units: int, seed: int) -> List[NDArray]:
    """Weights whose outputs have the variance of the inputs; biases of 0."""
    random, params = onp.random.RandomState(seed), []
    for inputs, outputs in ((784, units), (units, units), (units, 10)):
        params += [random.normal(scale=inputs**-0.5, size=(outputs, inputs)), onp.zeros(outputs)]
    return [np.array(values, dtype="float32") for values in params]
