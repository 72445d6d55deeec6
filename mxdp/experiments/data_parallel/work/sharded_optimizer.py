"""Trains gluon networks with the optimiser's state whole on each device, or in shards."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any, Iterator, List, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, autograd, gluon, mx, np, npx
from mxdp.collectives.shards import ShardedSync
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.resnet import begin_anywhere, resnet18
from mxdp.gluon import Trainer
from mxdp.gluon.states import leaves
from mxdp.plans.collective.algorithms import plan
from mxdp.scratch import split_batch
from mxdp.timing import Timer

OPTIONS = {"sgd": {"learning_rate": 0.01, "momentum": 0.9}, "adam": {"learning_rate": 0.001}}
STEPS = {"mlp": 10, "resnet": 1}


class OptimizerTraining:
    """A network with the same parameters on all devices, and its trainer."""

    def __init__(self, case: Case, devices: List[Device], sharded: bool, settings: Settings) -> None:
        onp.random.seed(settings["seed"])  # by which gluon's initialisers draw
        self.devices, self._loss, optimizer = devices, gluon.loss.SoftmaxCELoss(), case.settings["optimizer"]
        self.sharded = sharded
        self.net = _mlp(settings["units"]) if case.settings["net"] == "mlp" else resnet18(settings["width"])
        self.net.initialize(mx.init.Normal(0.05), ctx=devices)
        for device in devices:
            self.net(np.zeros((1, 1, 28, 28), ctx=device))
        npx.waitall()  # a pass that is still running may change the layout of its weights while they are read
        self.params = [param for param in self.net.collect_params().values() if param.grad_req != "null"]
        self.trainer = Trainer(self.net.collect_params(), optimizer, OPTIONS[optimizer], shard_optimizer=sharded)

    def backward(self, X_shards: List[NDArray], y_shards: List[NDArray]) -> None:
        """The gradients of each shard, on its device."""
        with autograd.record():
            losses = [self._loss(self.net(X), y) for X, y in zip(X_shards, y_shards)]
        autograd.backward(losses)

    def step(self, X: HostArray, y: HostArray) -> None:
        """Doesn't wait."""
        self.backward(*split_batch(X, y, self.devices))
        self.trainer.step(len(X))

    def state_bytes(self) -> int:
        """Of the optimiser's state: in shards on the fullest device, else in all."""
        held: Counter[str] = Counter()
        for array in (array for state in self.trainer._updaters[0].states.values() for array in leaves(state)):
            held[str(array.ctx)] += _nbytes(array)
        return max(held.values()) if self.sharded else sum(held.values())

    def moved_bytes(self) -> int:
        """What a step sends between devices, if each sum is made of messages."""
        moved, k, buckets = 0, len(self.devices), self.trainer._buckets
        for bucket in buckets.buckets if buckets else ():
            both = sum(plan("direct", k).sent(bucket.nbytes))
            moved += both // 2 if isinstance(buckets, ShardedSync) else both
        updated = [param.list_data()[0] for param in self.params] if buckets else []
        moved += sum((k - 1) * _nbytes(weight) for weight in updated)
        return moved


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Five steps, after which each replica equals that of one device, which computes the shards of samples one by one
    and adds up their gradients: bit for bit on two devices, where a sum has no order.

    Each shard's gradients are made coarse before they are summed: then a sum of more than two is the same in any order,
    too. A bias ahead of a batch normalisation has a gradient of rounding errors alone, and Adam takes a whole step in
    the direction of whatever small number is there.
    """
    devices, chosen = devices_of(case, settings), case.settings
    together = OptimizerTraining(case, devices, chosen["sharded"], settings)
    alone = OptimizerTraining(case, devices[:1], False, settings)
    for param, own in zip(alone.params, together.params):
        param.set_data(own.data(devices[0]))
    for number in range(5):
        X, y = _batch(2 * len(devices), settings["seed"] + number)
        together.backward(*split_batch(X, y, devices))
        for param in together.params:
            for grad in param.list_grad():
                grad[()] = _coarse(grad)
        together.trainer.step(len(X))
        total = [np.zeros_like(param.grad(devices[0])) for param in alone.params]
        for first in range(0, len(X), 2):
            alone.backward(*split_batch(X[first : first + 2], y[first : first + 2], devices[:1]))
            for sum_, param in zip(total, alone.params):
                sum_ += _coarse(param.grad(devices[0]))
        for sum_, param in zip(total, alone.params):
            param.grad(devices[0])[()] = sum_
        alone.trainer.step(len(X))
    npx.waitall()  # a copy that is still read from must not be read here, too: see mxdp.scratch.in_sync
    exact = [0.0] if len(devices) <= 2 and chosen["net"] == "mlp" else []
    for param, own in zip(together.params, alone.params):
        expected = own.data(devices[0]).asnumpy()
        for device in devices:
            yield (param.data(device).asnumpy(), expected, *exact)


def set_up(case: Case, settings: Settings) -> Work:
    """A round's time is that of a step."""
    devices, chosen, timer, random = devices_of(case, settings), case.settings, Timer(), Random(os.getpid())
    training = OptimizerTraining(case, devices, chosen["sharded"], settings)
    X, y = _batch(settings["batch_size"] * len(devices), settings["seed"])
    training.net.hybridize(static_alloc=True)
    steps = settings["steps"] * STEPS[chosen["net"]]

    def one_round() -> Round:
        begin_anywhere(devices[0], random)
        with timer:
            for _ in range(steps):
                training.step(X, y)
        sizes = {"state_bytes": training.state_bytes(), "moved_bytes": training.moved_bytes()}
        return Round(timer.times[-1] / steps, sizes)

    for _ in range(2):  # long ones
        training.step(X, y)
    npx.waitall()
    return Work(devices, one_round)


def _coarse(x: NDArray) -> NDArray:
    """In multiples of 2^-18. Their sums are exact as long as they stay below 64."""
    return np.rint(x * 2.0**18) / 2.0**18


def _mlp(units: int) -> gluon.HybridBlock:
    net = gluon.nn.HybridSequential()
    net.add(*[gluon.nn.Dense(units, activation="relu") for _ in range(2)], gluon.nn.Dense(10))
    return net


def _batch(samples: int, seed: int) -> Tuple[HostArray, HostArray]:
    random = onp.random.RandomState(seed)
    return random.uniform(size=(samples, 1, 28, 28)).astype("float32"), random.randint(0, 10, samples).astype("int32")


def _nbytes(array: NDArray) -> int:
    return int(array.size * onp.dtype(array.dtype).itemsize)
