"""Trains LeNet by the book's loop, and by ``gluon.Trainer``, as :class:`.training.TrainingRank` does by mxdp."""

from __future__ import annotations

from collections import deque
from itertools import chain, islice, repeat
from typing import Any, Deque, List, Tuple

from mxdp.backend import HostArray, autograd, devices, gluon, mx, np, npx
from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream
from mxdp.engine import CompletionEvent
from mxdp.experiments import book_loop
from mxdp.experiments.lab import Case, Settings
from mxdp.experiments.many_processes.lenet_ranks import sums_of_losses
from mxdp.scratch import Arrays, Params, cross_entropy, get_params, init_lenet
from mxdp.training import RUN_AHEAD


class BookRank:
    """The book's loop: d2l's loader, and a ``waitall`` after each step."""

    def __init__(self, case: Case, s: Settings) -> None:
        self.devices = devices(case.devices, s.kind)
        self._lr = s.lr
        self.dataset = book_loop.splittable(load(s.data, s.data_dir, seed=s.seed), case.devices)
        loader = book_loop.data_loader(self.dataset.train, self.dataset.test, case.batch_size)
        self._batches = chain.from_iterable(repeat(loader))
        self._replicas = self._copies(init_lenet(s.seed))

    def train(self, steps: int) -> None:
        """Train ``steps`` steps, to their end."""
        book_loop.train_epoch(islice(self._batches, steps), self._replicas, self.devices, self._lr)

    def losses(
        self,
        X: HostArray,
        y: HostArray,
        params: Params,
        lr: float,
        steps: int,
    ) -> List[float]:
        """The sum of all samples' losses before each step on one batch."""
        replicas = self._copies(params)
        sums = []
        for _ in range(steps):
            scores = book_loop.lenet(np.array(X), replicas[0])
            sums.append(float(cross_entropy(scores, np.array(y)).sum()))
            book_loop.train_batch(np.array(X), np.array(y), replicas, self.devices, lr)
        return sums

    def _copies(self, params: Params) -> List[Arrays]:
        layout = book_loop.book_layout(params)
        return [get_params(layout, device) for device in self.devices]


class GluonRank:
    """``gluon.Trainer`` with MXNet's store ``device``; Python runs as far ahead as in mxdp's loop, bound by completion
    events as there. With ``hybrid``, the network has static memory and shapes."""

    def __init__(self, case: Case, s: Settings, hybrid: bool) -> None:
        self.devices = devices(case.devices, s.kind)
        self._hybrid = hybrid
        self._batch_size = case.batch_size
        self.dataset = load(s.data, s.data_dir, seed=s.seed)
        self._stream = Stream(self.dataset.train, case.batch_size, s.seed)
        self._loss = gluon.loss.SoftmaxCrossEntropyLoss()
        self._net, self._trainer = self._trained(init_lenet(s.seed), s.lr)

    def train(self, steps: int) -> None:
        """Train ``steps`` steps, to their end."""
        pending: Deque[CompletionEvent] = deque()
        for X, y in self._stream.take(steps * self._batch_size):
            pending.append(CompletionEvent(self.step(X, y, self._net, self._trainer)))
            if len(pending) > RUN_AHEAD:
                pending.popleft().wait()
        npx.waitall()

    def losses(
        self,
        X: HostArray,
        y: HostArray,
        params: Params,
        lr: float,
        steps: int,
    ) -> List[float]:
        """The sum of all samples' losses before each step on one batch."""
        net, trainer = self._trained(params, lr)
        sums = sums_of_losses(lambda: self.step(X, y, net, trainer), steps)
        npx.waitall()  # MXNet frees the trainer's store at once, and its jobs would still use it
        return sums

    def _trained(self, params: Params, lr: float) -> Tuple[Any, Any]:
        nn = gluon.nn
        net = nn.HybridSequential()
        net.add(
            nn.Conv2D(20, 3, activation="relu"), nn.AvgPool2D(2, 2),
            nn.Conv2D(50, 5, activation="relu"), nn.AvgPool2D(2, 2),
            nn.Dense(128, activation="relu"), nn.Dense(10),
        )  # fmt: skip
        net.initialize(mx.init.Zero(), ctx=self.devices)
        for device in self.devices:
            net(np.zeros((1, 1, 28, 28), ctx=device))
        for to, param in zip(net.collect_params().values(), params):
            to.set_data(param)
        if self._hybrid:
            net.hybridize(static_alloc=True, static_shape=True)
        return net, gluon.Trainer(
            net.collect_params(), "sgd", {"learning_rate": lr}, kvstore="device"
        )

    def step(self, X: HostArray, y: HostArray, net: Any, trainer: Any) -> Arrays:
        """The losses of each device's samples. Doesn't wait."""
        split = gluon.utils.split_and_load
        X_shards = split(np.array(X), self.devices, even_split=False)
        y_shards = split(np.array(y), self.devices, even_split=False)
        with autograd.record():
            losses = [self._loss(net(X), y) for X, y in zip(X_shards, y_shards)]
        for loss in losses:
            loss.backward()
        trainer.step(len(X))
        return losses
