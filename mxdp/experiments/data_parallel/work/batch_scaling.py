"""Trains LeNet again and again, each time from another seed, with the batch and the learning rate of its case."""

from __future__ import annotations

import statistics
from functools import lru_cache
from itertools import count
from typing import Any, Iterator, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device
from mxdp.datasets import Dataset, load, minibatches
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.data_parallel.batch_scaling import PARTS, RULES
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.oracle import tolerances_of
from mxdp.scratch import evaluate, get_params, init_lenet, lenet, train_batch
from mxdp.timing import Timer
from mxdp.training import BoundNet, TrainStep
from mxdp.training.epochs import train_steps

SCALE = 0.1
"""Larger weights than the book's, which learn nothing in so few steps."""


class RepeatedTraining:
    """Replicas that can start anew: what is bound to them stays, so that no round pays for it."""

    def __init__(self, data: Dataset, devices: Sequence[Device], batch: int, lr: float) -> None:
        self.replicas = [get_params(init_lenet(), device) for device in devices]
        self._data, self._batch = data, batch
        self._step, self._timer = TrainStep(self.replicas, devices, lr), Timer()

    def start(self, seed: int) -> None:
        """Another start, and another order of samples."""
        for replica in self.replicas:
            for own, first in zip(replica, init_lenet(seed, SCALE)):
                first.copyto(own)
        self._stream = Stream(self._data.train, self._batch, seed)

    def train(self, samples: int) -> float:
        """On the next samples; returns the seconds. Waits."""
        with self._timer:
            train_steps(self._stream.take(samples), self._step)
        return self._timer.times[-1]


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """A first step, against one device's with the rule's batch and learning rate; then another seed, and again."""
    devices, data, seed = devices_of(case, settings), load("synthetic", seed=settings["seed"]), settings["seed"]
    batch = settings["batch_size"] * case.settings["times"]
    lr = settings["lr"] * case.settings["times"] ** RULES.get(case.settings["rule"], 0.0)
    training = RepeatedTraining(data, devices, case.settings["batch"], case.settings["rate"])
    for start in (seed, seed + 1, seed):
        training.start(start)
        training.train(batch)
        serial = get_params(init_lenet(start, SCALE), devices[0])
        X, y = next(minibatches(data.train, batch, start, epoch=0))
        train_batch(X, y, [serial], devices[:1], lr)
        for replica in training.replicas:
            for own, expected, tolerance in zip(replica, serial, tolerances_of(batch)):
                yield own.asnumpy(), expected.asnumpy(), tolerance


def set_up(case: Case, settings: Settings) -> Work:
    """A round is a whole training, and its seed is another one in each process, too."""
    devices, samples = devices_of(case, settings), settings["samples"] // PARTS
    data = _data(settings["data"], settings["data_dir"], settings["seed"], settings["test"])
    training, net = RepeatedTraining(data, devices, case.settings["batch"], case.settings["rate"]), BoundNet(lenet)
    seeds = count(settings["seed"] + 1000 * case.settings["repeat"])

    def one_round() -> Round:
        training.start(next(seeds))
        seconds, accuracies = 0.0, []
        for _ in range(PARTS):
            seconds += training.train(samples)
            accuracies.append(evaluate(data.test, training.replicas, net=net))
        reached = onp.greater_equal(accuracies, settings["accuracy"])
        metrics = {
            "test_accuracy": statistics.mean(accuracies[-3:]),
            "reached": int(reached.argmax()) + 1 if reached.any() else 0,  # the part after which, or none
            "curve": {str((part + 1) * samples): own for part, own in enumerate(accuracies)},
        }
        return Round(seconds, metrics)

    training.start(settings["seed"])
    training.train(samples)
    evaluate(data.test, training.replicas, net=net)
    return Work(devices, one_round, case={"data": data.name})


@lru_cache(maxsize=1)
def _data(name: str, folder: Optional[str], seed: int, test: int) -> Dataset:
    """One copy for all cases of this process."""
    data = load(name, folder, seed=seed)
    return data.take(len(data.train), test)
