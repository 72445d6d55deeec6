"""Networks that train on some devices, and the time of their steps. Loads MXNet: only ``work`` imports it."""

from __future__ import annotations

import time
from functools import lru_cache
from typing import Any, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, Device, HostArray, NDArray, autograd, mx, np, npx
from mxdp.collectives import GradientSync
from mxdp.experiments.resnet import resnet18
from mxdp.gluon import Trainer
from mxdp.scratch import cross_entropy, get_params, init_lenet, lenet, split_and_load
from mxdp.training import TrainStep

LR = 1e-3
"""Small, since all steps train on the same random batch."""
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


def seconds_a_step(model: Any, batch: Sequence[HostArray], steps: int) -> Tuple[float, float]:
    """Mean seconds of steps that follow one another, and of Python's processor time. Waits at both ends."""
    npx.waitall()
    started, python = time.perf_counter(), time.thread_time()
    for _ in range(steps):
        model.step(*batch)
    python = time.thread_time() - python
    npx.waitall()
    return (time.perf_counter() - started) / steps, python / steps


def _init_mlp(units: int, seed: int) -> List[NDArray]:
    """Weights whose outputs have the variance of the inputs; biases of 0."""
    random, params = onp.random.RandomState(seed), []
    for inputs, outputs in ((784, units), (units, units), (units, 10)):
        params += [random.normal(scale=inputs**-0.5, size=(outputs, inputs)), onp.zeros(outputs)]
    return [np.array(values, dtype="float32") for values in params]
