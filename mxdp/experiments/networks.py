"""Networks that train on some devices, and the times of their steps: LeNet and an MLP as functions, ResNet-18 by gluon.

A network has ``step`` (a whole step, which doesn't wait), ``loss`` (on the first replica), ``replicas`` (the trained
parameters of each device), and ``sums``: False leaves the all-reduce out of a step.
"""

from __future__ import annotations

import time
from functools import lru_cache, partial
from random import SystemRandom
from typing import Any, Callable, Iterator, List, Optional, Sequence, Tuple

import numpy as onp

import mxdp
from mxdp import process
from mxdp.backend import Batch, Device, HostArray, NDArray, autograd, gluon, mx, np, npx, upload
from mxdp.collectives import GradientSync
from mxdp.experiments.devices import devices_of
from mxdp.experiments.lab import Case, Settings
from mxdp.experiments.oracle import changed, same_bits
from mxdp.plans.partition import fill_buckets
from mxdp.processes import World
from mxdp.scratch import cross_entropy, get_params, init_lenet, lenet, split_batch
from mxdp.training import TrainStep

LR = 1e-3
"""Small, since all steps train on the same random batch."""
Devices = Tuple[Device, ...]
PICTURE = (1, 28, 28)
NETS = {"lenet": ("LeNet", 129_068), "resnet": ("ResNet-18", 11_175_818)}
"""Titles, and numbers of parameters."""
MOST = 200
"""Steps of one measurement."""


class Functional:
    """LeNet or the MLP, trained by :class:`mxdp.training.TrainStep`."""

    keeps_sums = True
    """After a step, a parameter's gradient is the sum."""

    def __init__(
        self, name: str, units: int, devices: Devices, seed: int, world: Optional[World]
    ) -> None:
        if name == "lenet":
            self.net = lenet
            params = init_lenet(seed, scale=0.1)
        else:
            self.net = mlp
            params = _init_mlp(units, seed)
        self.sums = True
        self.replicas: List[Sequence[NDArray]] = [get_params(params, device) for device in devices]
        self._all = GradientSync(self.replicas, world=world)
        self.step = TrainStep(self.replicas, devices, LR, self._sync, self.net)

    def _sync(self) -> None:
        if self.sums:
            self._all()

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """On the first replica, without the step that is timed."""
        return cross_entropy(self.net(X, self.replicas[0]), y)


class Gluon:
    """A gluon network, with the same parameters on all devices. ``net`` is initialised anew, by gluon's ``init``.
    ``trainer`` makes a trainer of its parameters; ``loss`` takes scores and labels; ``shape`` is that of a sample."""

    keeps_sums = False
    """``mxdp.Trainer`` and MXNet's store leave each device the gradients of its shard."""

    def __init__(
        self,
        net: Any,
        devices: Sequence[Device],
        seed: int,
        trainer: Callable[[Any], Any],
        init: Any,
        loss: Callable[[NDArray, NDArray], NDArray] = cross_entropy,
        shape: Sequence[int] = PICTURE,
    ) -> None:
        self.net = net
        self.devices = list(devices)
        self.sums = True
        self._loss = loss
        mx.random.seed(seed)
        onp.random.seed(seed)  # by which gluon's initialisers draw
        net.initialize(init, ctx=self.devices, force_reinit=True)
        for device in devices:
            net(np.zeros((1, *shape), ctx=device))
        npx.waitall()  # a pass that is still running may change the layout of its weights while they are read
        params = net.collect_params()
        self.trainer = trainer(params)
        trained = [param for param in params.values() if param.grad_req != "null"]
        self.replicas: List[Sequence[NDArray]] = []
        for device in devices:
            self.replicas.append([param.data(device) for param in trained])

    def backward(self, X: Batch, y: Batch) -> None:
        """The gradients of each device's shard. Doesn't wait."""
        with autograd.record():
            losses = [self.loss(*shard) for shard in zip(*split_batch(X, y, self.devices))]
        autograd.backward(losses)

    def step(self, X: Batch, y: Batch, samples: int = 0) -> None:
        """``samples``: of the batch of all ranks, if there are several. Doesn't wait."""
        self.backward(X, y)
        if self.sums:
            self.trainer.step(samples or len(X))
        else:
            self.trainer.update(samples or len(X))

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """On the replica of the device where ``X`` lies."""
        return self._loss(self.net(X), y)


@lru_cache(maxsize=None)
def network(
    name: str, size: int, devices: Devices, seed: int, world: Optional[World] = None
) -> Any:
    """``"lenet"``, ``"mlp"`` of two hidden layers of ``size`` units, or ``"resnet"``, ResNet-18 of width ``size``: the
    same for all cases of a process, which work one after the other. Its sums are over all ranks of ``world``."""
    if name != "resnet":
        return Functional(name, size, devices, seed, world)
    net = resnet18(size)
    net.hybridize()
    sgd = partial(
        mxdp.Trainer, optimizer="sgd", optimizer_params={"learning_rate": LR}, world=world
    )
    return Gluon(net, devices, seed, sgd, mx.init.Xavier())


def on_all_and_one(case: Case, s: Settings) -> Tuple[Any, Any]:
    """The :func:`network` ``net`` of a case on all of its devices, and on the first alone, with the same parameters: a
    step without its sums leaves the replicas different. Doesn't wait."""
    devices = tuple(devices_of(case, s))
    size = s.units if case.net == "mlp" else s.width
    many = network(case.net, size, devices, s.seed)
    one = network(case.net, size, devices[:1], s.seed)
    if many is not one:
        set_params(many.replicas, one.replicas[0])
    return many, one


def set_params(replicas: Sequence[Sequence[NDArray]], params: Sequence[NDArray]) -> None:
    """Give all replicas these parameters, in place: what is bound to their arrays stays warm. Doesn't wait."""
    for replica in replicas:
        for param, value in zip(replica, params):
            value.copyto(param)


def in_buckets(sizes: Sequence[int]) -> List[List[int]]:
    """The elements of each gradient (float32), bucket by bucket, as ``GradientSync`` and ``mxdp.Trainer`` fill them."""
    buckets = []
    for numbers in fill_buckets([4 * size for size in sizes], ["float32"] * len(sizes), 25 << 20):
        buckets.append([sizes[number] for number in numbers])
    return buckets


def seconds_a_step(model: Any, batch: Sequence[HostArray], steps: int) -> Tuple[float, float]:
    """Mean seconds of steps that follow one another, and of Python's processor time. Waits at both ends."""
    npx.waitall()
    started = time.perf_counter()
    python_started = time.thread_time()
    for _ in range(steps):
        model.step(*batch)
    python = time.thread_time() - python_started
    npx.waitall()
    return (time.perf_counter() - started) / steps, python / steps


def serial_gradients(
    model: Any, X: HostArray, y: HostArray, shards: int, coarse: Any = lambda grad: grad
) -> List[Any]:
    """The sum that an oracle expects: a batch's shards go one by one over ``model``'s first device, since a batch
    normalisation takes its means over a shard. Each gradient goes through ``coarse``, and is added on the host in
    float64. Waits."""
    params = model.replicas[0]
    total: List[Any] = [0.0] * len(params)
    for shard in zip(onp.array_split(X, shards), onp.array_split(y, shards)):
        with autograd.record():
            loss = model.loss(*[upload(array, params[0].ctx) for array in shard])
        loss.backward()
        for number, param in enumerate(params):
            total[number] += coarse(param.grad).asnumpy().astype("float64")
    return total


def compared_step(many: Any, one: Any, batch: Sequence[Any], lr: float = LR) -> Iterator[Any]:
    """What an oracle yields of a step of ``many``: the first replica's parameters, and its gradients if they keep the
    sums, with what ``one`` device gets shard by shard from the same parameters. All replicas must be equal bit for bit.
    Waits."""
    X, y = batch
    start = [param.asnumpy() for param in one.replicas[0]]
    gradients = serial_gradients(one, X, y, len(many.replicas))
    many.step(X, y)
    npx.waitall()  # MXNet's store may still read what is read here: see mxdp.scratch.in_sync
    held = []
    for replica in many.replicas:
        arrays = list(replica)
        if many.keeps_sums:
            arrays += [param.grad for param in replica]
        held.append([array.asnumpy() for array in arrays])
    first, *others = held
    for param, before, gradient in zip(first, start, gradients):
        yield changed(param, before, -lr / len(X) * gradient)
    yield from zip(first[len(start) :], gradients)  # the sums, if they are kept
    for other in others:
        yield from map(same_bits, other, first)


def begin_anywhere(device: Device) -> None:
    """Go on to a random place in the turn of temporary space. Doesn't wait. All CPU devices use the same copies of it,
    one after the other (:mod:`mxdp.process`), and a hybrid network keeps its own. If an operator of the second device
    gets a copy that the first one's backward pass still needs, a step takes half as long again. Every process would
    begin a round of few steps at the same place."""
    small = np.ones((2, 2), ctx=device)
    for _ in range(SystemRandom().randrange(process.SMALL_TEMP_COPY)):
        np.dot(small, small)  # takes one copy


def mlp(X: NDArray, params: Sequence[NDArray]) -> NDArray:
    """Scores of pictures, by three dense layers."""
    for W, b in (params[:2], params[2:4]):
        X = npx.activation(npx.fully_connected(X, W, b, num_hidden=W.shape[0]), act_type="relu")
    return npx.fully_connected(X, *params[4:], num_hidden=10)


def _init_mlp(units: int, seed: int) -> List[NDArray]:
    """Weights whose outputs have the variance of the inputs; biases of 0."""
    random = onp.random.RandomState(seed)
    params = []
    for inputs, outputs in ((784, units), (units, units), (units, 10)):
        params += [random.normal(scale=inputs**-0.5, size=(outputs, inputs)), onp.zeros(outputs)]
    return [np.array(values, dtype="float32") for values in params]


def gluon_mlp(units: int) -> Any:
    """The same as a gluon network, not initialised."""
    nn = gluon.nn
    net = nn.HybridSequential()
    net.add(nn.Dense(units, activation="relu"), nn.Dense(units, activation="relu"))
    net.add(nn.Dense(10))
    return net


def resnet18(width: int = 64) -> Any:
    """ResNet-18 for pictures (n, 1, 28, 28) and 10 classes, not initialised; 11.2 million parameters. ``width``:
    channels of the first convolution. Source: Dive into Deep Learning, "Concise Implementation for Multiple GPUs"."""
    nn = gluon.nn
    conv = partial(nn.Conv2D, kernel_size=3, padding=1)

    class Residual(gluon.HybridBlock):  # type: ignore[misc]
        """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the shape changes."""

        def __init__(self, channels: int, strides: int = 1, changes: bool = False) -> None:
            super().__init__()
            self.body = nn.HybridSequential()
            self.body.add(conv(channels, strides=strides), nn.BatchNorm(), nn.Activation("relu"))
            self.body.add(conv(channels), nn.BatchNorm())
            self.shortcut = nn.Conv2D(channels, kernel_size=1, strides=strides) if changes else None

        def hybrid_forward(self, F: Any, x: Any) -> Any:
            body = self.body(x)
            if self.shortcut:
                x = self.shortcut(x)
            return F.npx.activation(body + x, act_type="relu")

    net = nn.HybridSequential()
    net.add(conv(width), nn.BatchNorm(), nn.Activation("relu"))
    net.add(Residual(width), Residual(width))
    for channels in (2 * width, 4 * width, 8 * width):
        net.add(Residual(channels, strides=2, changes=True), Residual(channels))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net
