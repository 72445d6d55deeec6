"""Trains LeNet by each peer. All are ranks of a crew, alone or several."""

from __future__ import annotations

import math
import time
from collections import deque
from itertools import chain, islice, repeat
from typing import Any, Deque, Dict, Iterator, List, Mapping, Sequence, Tuple, Type

import numpy as onp

from mxdp.backend import HostArray, NDArray, autograd, devices, gluon, mx, np, npx, upload
from mxdp.datasets import load, sequential
from mxdp.datasets.minibatches import Stream
from mxdp.engine import CompletionEvent
from mxdp.experiments.harness.exchanges import ALONE, DDP
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.many_processes.peers import BOOK, GLUON, HYBRID, TORCH
from mxdp.experiments.many_processes.work.machines import TrainingRank
from mxdp.experiments.measure import book_loop
from mxdp.experiments.measure.crew import Crew
from mxdp.experiments.measure.devices import WARM_UP
from mxdp.experiments.measure.memory import give_back
from mxdp.scratch import cross_entropy, evaluate, get_params, init_lenet, train_batch
from mxdp.training import RUN_AHEAD

STEPS, LR = 5, 0.5
"""Whose losses are compared."""
TOLERANCE = 1e-3
"""Of the largest loss. Frameworks round differently, and a sum that is almost 0 is on either side of relu's kink."""


class BookRank:
    """The book's loop: d2l's loader, and a ``waitall`` after each step."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.number, self.devices, self.lr = 0, devices(order["devices"], order["kind"]), order["lr"]
        dataset = load(order["data"], order["data_dir"], seed=order["seed"])
        dataset = book_loop.splittable(dataset, len(self.devices))
        self.data, self._test = dataset.name, dataset.test
        loader = book_loop.data_loader(dataset.train, dataset.test, order["batch_size"])
        self._batches = chain.from_iterable(repeat(loader))
        self._replicas = self._copies(order["params"])

    def facts(self) -> Tuple[str, List[str]]:
        """What it trains on: the data, and its devices."""
        return self.data, [str(device) for device in self.devices]

    def train(self, steps: int) -> None:
        """``steps`` steps of training, to their end."""
        book_loop.train_epoch(islice(self._batches, steps), self._replicas, self.devices, self.lr)

    def losses(self, X: HostArray, y: HostArray, params: List[HostArray], lr: float, steps: int) -> List[float]:
        """The sum of all samples' losses before each step on one batch."""
        replicas, found = self._copies(params), []
        for _ in range(steps):
            found.append(float(cross_entropy(book_loop.lenet(np.array(X), replicas[0]), np.array(y)).sum()))
            book_loop.train_batch(np.array(X), np.array(y), replicas, self.devices, lr)
        return found

    def accuracy(self) -> float:
        """Of what was trained, on the test set."""
        return evaluate(self._test, self._replicas, net=book_loop.lenet)

    def _copies(self, params: List[HostArray]) -> List[List[NDArray]]:
        layout = book_loop.book_layout([np.array(param) for param in params])
        return [get_params(layout, device) for device in self.devices]


class GluonRank:
    """``gluon.Trainer`` with MXNet's store ``device``; Python runs as far ahead as in mxdp's loop, bound by
    completion events as there."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.number, self.devices = 0, devices(order["devices"], order["kind"])
        self._order, self.batch_size = order, order["batch_size"]
        dataset = load(order["data"], order["data_dir"], seed=order["seed"])
        self.data, self._test = dataset.name, dataset.test
        self._stream = Stream(dataset.train, self.batch_size, order["seed"])
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self._net, self._trainer = self._trained(order["params"], order["lr"])

    def facts(self) -> Tuple[str, List[str]]:
        """What it trains on: the data, and its devices."""
        return self.data, [str(device) for device in self.devices]

    def train(self, steps: int) -> None:
        """``steps`` steps of training, to their end."""
        pending: Deque[CompletionEvent] = deque()
        for X, y in self._stream.take(steps * self.batch_size):
            pending.append(CompletionEvent(self._step(X, y, self._net, self._trainer)))
            if len(pending) > RUN_AHEAD:
                pending.popleft().wait()
        npx.waitall()

    def losses(self, X: HostArray, y: HostArray, params: List[HostArray], lr: float, steps: int) -> List[float]:
        """The sum of all samples' losses before each step on one batch."""
        net, trainer = self._trained(params, lr)
        found = [sum(float(each.sum()) for each in self._step(X, y, net, trainer)) for _ in range(steps)]
        npx.waitall()  # MXNet frees the trainer's store at once, and its jobs would still use it
        return found

    def accuracy(self) -> float:
        """Of what was trained, on the test set."""
        right = 0
        for X, y in sequential(self._test, 1000):
            right += int((self._net(upload(X, self.devices[0])).argmax(axis=1).asnumpy() == y).sum())
        return right / len(self._test)

    def _trained(self, params: List[HostArray], lr: float) -> Tuple[Any, Any]:
        net = gluon.nn.HybridSequential()
        net.add(
            gluon.nn.Conv2D(20, 3, activation="relu"), gluon.nn.AvgPool2D(2, 2),
            gluon.nn.Conv2D(50, 5, activation="relu"), gluon.nn.AvgPool2D(2, 2),
            gluon.nn.Dense(128, activation="relu"), gluon.nn.Dense(10),
        )  # fmt: skip
        net.initialize(mx.init.Zero(), ctx=self.devices)
        for device in self.devices:
            net(np.zeros((1, 1, 28, 28), ctx=device))
        for own, param in zip(net.collect_params().values(), params):
            own.set_data(np.array(param))
        if self._order["peer"] == HYBRID:
            net.hybridize(static_alloc=True, static_shape=True)
        return net, gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": lr}, kvstore="device")

    def _step(self, X: HostArray, y: HostArray, net: Any, trainer: Any) -> List[NDArray]:
        shards = [gluon.utils.split_and_load(np.array(part), self.devices, even_split=False) for part in (X, y)]
        with autograd.record():
            losses = [self._loss(net(X_shard), y_shard) for X_shard, y_shard in zip(*shards)]
        for each in losses:
            each.backward()
        trainer.step(len(X))
        return losses


def _crew(case: Case, settings: Settings) -> Crew:
    peer, n = case.settings["peer"], case.settings["processes"]
    each = case.settings["devices_in_all"] // n
    order: Dict[str, Any] = {**settings, **case.settings, "devices": each, "threads": each}
    order["params"] = [param.asnumpy() for param in init_lenet(settings["seed"])]
    kinds: Dict[str, Type[Any]] = {BOOK: BookRank, GLUON: GluonRank, HYBRID: GluonRank}
    if peer in (TORCH, DDP):
        from mxdp.experiments.measure.torch_ddp import TorchRank

        kinds[peer] = TorchRank
    return Crew(case.settings["engine"], n, kinds.get(peer, TrainingRank), order)


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """The losses of a few steps on one batch. (Processes that exchange nothing: of the first alone.)"""
    random = onp.random.RandomState(settings["seed"])
    X, y = random.uniform(size=(60, 1, 28, 28)).astype("float32"), random.randint(0, 10, 60).astype("int32")
    params = init_lenet(settings["seed"], scale=0.1)
    with _crew(case, settings) as ranks:
        found = ranks.ask("losses", X, y, [param.asnumpy() for param in params], LR, STEPS)
    (device,) = devices(1, settings["kind"])
    serial, expected = [get_params(params, device)], []
    for _ in range(STEPS):
        (losses,) = train_batch(X, y, serial, [device], LR)
        expected.append(float(losses.sum()))
    exchanged = case.settings["engine"] != ALONE
    yield (
        onp.sum(found, axis=0)[: STEPS if exchanged else 1],
        onp.array(expected[: STEPS if exchanged else 1]),
        TOLERANCE,
    )


def set_up(case: Case, settings: Settings) -> Work:
    """A round is an epoch, or as many steps as ``samples`` make."""
    ranks = _crew(case, settings)
    samples = settings["samples"] or len(load(settings["data"], settings["data_dir"], seed=settings["seed"]).train)
    give_back()  # all peers' processes are there at once
    steps = math.ceil(samples / case.settings["batch_size"])
    whole = settings["samples"] is None

    def one_round() -> Round:
        start = time.perf_counter()
        each_step = ranks.ask("train", steps)
        seconds = time.perf_counter() - start
        return Round(
            seconds,
            {"waiting": waiting(each_step)} if case.settings["engine"] == ALONE and all(each_step) else {},
            {"test_accuracy": ranks.ask("accuracy")[0]} if whole else {},
        )

    ranks.timed("train", min(steps, WARM_UP // 2))
    facts = ranks.ask("facts")
    return Work([name for _, own in facts for name in own], one_round, case={"data": facts[0][0], "steps": steps})


def waiting(ranks: Sequence[Sequence[float]]) -> float:
    """The time that ranks would take if each step waited for the slowest, over the time that the slowest takes in all:
    from each rank's seconds of each step.

    >>> waiting([[2.0, 4.0], [4.0, 2.0]]), waiting([[2.0, 2.0], [4.0, 4.0]])
    (1.3333333333333333, 1.0)
    """
    return float(sum(map(max, zip(*ranks))) / max(map(sum, ranks)))
