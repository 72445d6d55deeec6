"""Trains ResNet-18 through gluon on random pictures."""

from __future__ import annotations

import os
from functools import partial
from random import Random
from typing import Any, Dict, Iterator, List, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, autograd, gluon, mx, np, npx
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.resnet import begin_anywhere, resnet18
from mxdp.gluon import Trainer
from mxdp.scratch import split_batch
from mxdp.timing import Timer
from mxdp.tracing import where_the_time_went
from mxdp.tracing.recording import can_record

LR = 0.1


class GluonTraining:
    """A network on some devices, and what steps it. ``hybrid``: it is one graph, in memory of its own."""

    def __init__(self, devices: List[Device], trainer: str, hybrid: bool, settings: Settings) -> None:
        mx.random.seed(settings["seed"])
        onp.random.seed(settings["seed"])  # by which gluon's initialisers draw
        self.devices, self.net = devices, resnet18(settings["width"])
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self.net.initialize(mx.init.Normal(0.05), ctx=devices)
        if hybrid:
            self.net.hybridize(static_alloc=True, static_shape=True)
        for device in devices:
            self.net(np.zeros((1, 1, 28, 28), ctx=device))
        npx.waitall()  # a pass that is still running may change the layout of its weights while they are read
        self.params = [param for param in self.net.collect_params().values() if param.grad_req != "null"]
        make = Trainer if trainer == "mxdp.Trainer" else partial(gluon.Trainer, kvstore=trainer)
        self.trainer = make(self.net.collect_params(), "sgd", {"learning_rate": LR})

    def backward(self, X_shards: List[NDArray], y_shards: List[NDArray]) -> None:
        """The gradients of each shard, on its device."""
        with autograd.record():
            losses = [self._loss(self.net(X), y) for X, y in zip(X_shards, y_shards)]
        autograd.backward(losses)

    def step(self, X: HostArray, y: HostArray) -> None:
        """Doesn't wait."""
        self.backward(*split_batch(X, y, self.devices))
        self.trainer.step(len(X))


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """A step on shards of two samples. Batch normalisation takes the statistics of a shard: so the serial run is that
    of the shards, one by one on one device, whose gradients are added up on the host. MXNet's store updates the
    parameters itself, and leaves each device its own gradients."""
    devices, trainer = devices_of(case, settings), case.settings["trainer"]
    X, y = _batch(2 * len(devices), settings["seed"])
    training = GluonTraining(devices, trainer, case.settings["hybrid"], settings)
    before = [param.data(devices[0]).asnumpy() for param in training.params]
    alone = GluonTraining(devices[:1], "device", False, settings)
    for own, start in zip(alone.params, before):
        own.set_data(np.array(start))
    total = [onp.zeros_like(start) for start in before]
    for number in range(len(devices)):
        own_batch = slice(2 * number, 2 * number + 2)
        alone.backward(*split_batch(X[own_batch], y[own_batch], devices[:1]))
        for sum_, param in zip(total, alone.params):
            sum_ += param.grad(devices[0]).asnumpy()
    training.step(X, y)
    npx.waitall()  # the store may still read what is read here: see mxdp.scratch.in_sync
    for param, start, summed in zip(training.params, before, total):
        if trainer != "device":
            yield param.grad(devices[-1]).asnumpy(), summed
        for device in devices:
            yield param.data(device).asnumpy(), start - LR / len(X) * summed


def set_up(case: Case, settings: Settings) -> Work:
    """A round's time is that of a step."""
    devices, timer, random = devices_of(case, settings), Timer(), Random(os.getpid())
    training = GluonTraining(devices, case.settings["trainer"], case.settings["hybrid"], settings)
    X, y = _batch(settings["batch_size"] * len(devices), settings["seed"])
    recordable = can_record(devices)

    def one_round() -> Round:
        with timer:
            for _ in range(settings["steps"]):
                begin_anywhere(devices[0], random)  # about a thousandth of a step
                training.step(X, y)
        parts: Dict[str, float] = {}
        if recordable:
            parts = where_the_time_went(partial(training.step, X, y), steps=1, warm_up=0, devices=devices).shares()
        return Round(timer.times[-1] / settings["steps"], parts)

    for _ in range(2):  # long ones
        training.step(X, y)
    npx.waitall()
    return Work(devices, one_round)


def _batch(samples: int, seed: int) -> Tuple[HostArray, HostArray]:
    own = onp.random.RandomState(seed)
    return own.uniform(size=(samples, 1, 28, 28)).astype("float32"), own.randint(0, 10, samples).astype("int32")
