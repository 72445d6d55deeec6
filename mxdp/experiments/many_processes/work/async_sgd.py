"""Trains LeNet over MXNet's servers, which update the parameters themselves, as soon as they can or all at once."""

from __future__ import annotations

import statistics
import time
from typing import Any, Iterator, List, Mapping, Tuple

import numpy as onp

from mxdp.backend import HostArray, NDArray, devices, mx, npx
from mxdp.datasets import Split, load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.harness.exchanges import SYNC
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.many_processes.async_sgd import ONE_SLOW, SLOW
from mxdp.experiments.measure.crew import Crew
from mxdp.scratch import evaluate, get_params, init_lenet, train_batch

TEST = 2000
"""Test pictures in an evaluation."""
CHECKED = 5


class ServedWorker:
    """One worker, with its own part of the training set. The last key on the server counts the updates."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.store = mx.kv.create(order["engine"])
        self.number, size = self.store.rank, self.store.num_workers
        (self.device,) = devices(1, "cpu")
        self.batch_size, self.lr, self._seed = order["batch_size"], order["lr"], order["seed"]
        data = load(order["data"], order["data_dir"], seed=self._seed)
        own = slice(self.number, None, size)
        part = Split(onp.ascontiguousarray(data.train.X[own]), onp.ascontiguousarray(data.train.y[own]))
        self._stream = Stream(part, self.batch_size // size, self._seed)
        self._test = Split(data.test.X[:TEST], data.test.y[:TEST])
        self._wait = SLOW - 1 if order["workers"] == ONE_SLOW and self.number == size - 1 else 0.0
        self._at_once = size if order["engine"] == SYNC else 1
        self._keys = 0
        self.store.set_optimizer(mx.optimizer.SGD(learning_rate=self.lr, rescale_grad=1 / self.batch_size))

    def start(self) -> None:
        """Parameters as at the beginning, under keys of their own: a store can't be given values twice."""
        params = get_params(init_lenet(self._seed, scale=0.1), self.device)
        self._begin([param.as_nd_ndarray() for param in params], [param.grad.as_nd_ndarray() for param in params])
        self._params, self.seen = params, 0

    def train(self, updates: int) -> List[int]:
        """Train until the server has made that many updates; how stale each gradient was."""
        stale = []
        while self.seen < updates:
            X, y = next(self._stream.take(self.batch_size // self.store.num_workers))
            started = time.perf_counter()
            # With a step of 0 no parameter moves here: the server's do.
            train_batch(X, y, [self._params], [self.device], 0.0)
            npx.waitall()
            time.sleep(self._wait * (time.perf_counter() - started))
            before, self.seen = self.seen, self._exchange()
            stale.append(self.seen - before - self._at_once)
        return stale

    def accuracy(self) -> float:
        """Of the parameters on the server, as the first rank finds them."""
        self._pull()
        return evaluate(self._test, [self._params]) if self.number == 0 else 0.0

    def check(self) -> List[HostArray]:
        """The parameters after a few gradients from each worker, filled with its number plus 1."""
        self.start()
        for _ in range(CHECKED):
            for param in self._params:
                param.grad[:] = self.number + 1
            self._exchange()
        npx.waitall()
        self.store._barrier()
        self._pull()
        return [param.asnumpy() for param in self._params]

    def _begin(self, values: List[NDArray], gradients: List[NDArray]) -> None:
        self._values = [*values, mx.nd.zeros((1,))]
        self._gradients = [*gradients, mx.nd.zeros((1,))]
        for value in self._values:
            self.store.init(self._keys, value)
            self._keys += 1
        self._pull()

    def _exchange(self) -> int:
        """Push the gradients, pull the parameters; how many updates the server has made. Waits.

        MXNet's store keeps the array that was pushed as its buffer, and a pull overwrites it.
        """
        self._gradients[-1][:] = -self.batch_size / self.lr  # by which the server's step adds 1
        for key, gradient in self._numbered(self._gradients):
            self.store.push(key, gradient)
        return self._pull()

    def _pull(self) -> int:
        for key, value in self._numbered(self._values):
            self.store.pull(key, value)
        return round(float(self._values[-1].asscalar()))

    def _numbered(self, arrays: List[NDArray]) -> Iterator[Tuple[int, NDArray]]:
        return zip(range(self._keys - len(arrays), self._keys), arrays)


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Every worker's gradients count, each once."""
    with _crew(case, settings) as ranks:
        found = ranks.ask("check")
    total = CHECKED * sum(range(1, len(found) + 1)) * settings["lr"] / settings["batch_size"]
    for params in found:
        for own, start in zip(params, init_lenet(settings["seed"], scale=0.1)):
            yield own, start.asnumpy() - total


def set_up(case: Case, settings: Settings) -> Work:
    """A round trains until the accuracy is reached. Between two evaluations the server makes ``updates`` more
    updates."""
    ranks = _crew(case, settings)

    def one_round() -> Round:
        ranks.ask("start")
        seconds, stale, updates, accuracy = 0.0, [], 0, 0.0
        while accuracy < settings["accuracy"] and updates < settings["most_updates"]:
            updates += settings["updates"]
            started = time.perf_counter()
            stale += [each for own in ranks.ask("train", updates) for each in own]
            seconds += time.perf_counter() - started
            accuracy = ranks.ask("accuracy")[0]
        metrics = {
            "updates": updates,
            "staleness": statistics.median(stale),
            "stalest": max(stale),
            "test_accuracy": accuracy,
            "reached": accuracy >= settings["accuracy"],
        }
        return Round(seconds, metrics)

    ranks.ask("start")
    ranks.ask("train", 2)
    ranks.ask("accuracy")
    return Work(["cpu"] * case.settings["processes"], one_round)


def _crew(case: Case, settings: Settings) -> Crew:
    return Crew(case.settings["engine"], case.settings["processes"], ServedWorker, {**settings, **case.settings})
