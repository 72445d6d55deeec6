"""Trains LeNet in the processes of an engine."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Tuple, Type

import numpy as onp

from mxdp.backend import HostArray, NDArray, devices, mx, npx, upload
from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.harness.exchanges import ALONE
from mxdp.experiments.harness.experiment import Case, Settings, Work
from mxdp.experiments.many_processes.work.exchanges import join, placed
from mxdp.experiments.measure.crew import Crew
from mxdp.experiments.measure.oracle import tolerances_of
from mxdp.scratch import evaluate, get_params, init_lenet, lenet
from mxdp.training import RUN_AHEAD, BoundNet, TrainStep, plain_step, train_steps

STEPS = 3
"""That are compared with the serial run."""


class TrainingRank:
    """One process: its devices, its replicas, and its part of each batch of one stream of batches."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        self.ranks, self._sync = join(order["engine"])
        self.number = self.ranks.rank
        self.devices = self.ranks.devices(order["devices"], order["kind"])
        self.batch_size, self.lr = order["batch_size"], order["lr"]
        data = load(order["data"], order["data_dir"], seed=order["seed"])
        self._stream, self.data = Stream(data.train, self.batch_size, order["seed"]), data.name
        self._test = data.test
        self._replicas = self._copies(order["params"])
        self._own = self._sync(self._replicas)
        self._step = TrainStep(self._replicas, self.devices, self.lr, self._own)
        self._net = BoundNet(lenet)

    def facts(self) -> Tuple[str, List[str]]:
        """What it trains on: the data, and its devices."""
        return self.data, [str(device) for device in self.devices]

    def train(self, steps: int) -> List[float]:
        """``steps`` steps of training, to their end. Returns how many seconds the devices took for each of them, but
        for the first one and the last ``RUN_AHEAD + 1``."""
        pushed: List[float] = []

        def step(X: HostArray, y: HostArray, samples: int) -> List[NDArray]:
            pushed.append(time.perf_counter())  # as soon as the step RUN_AHEAD + 1 before this one is done
            return self._step(X, y, samples)

        self._steps(self._stream.take(steps * self.batch_size), step)
        npx.waitall()
        done = pushed[RUN_AHEAD + 1 :]
        return [end - start for start, end in zip(done, done[1:])]

    def check(self, X: HostArray, y: HostArray, params: List[HostArray]) -> List[List[List[HostArray]]]:
        """The parameters of its replicas after each of a few steps on one batch. Waits after the last one alone."""
        replicas = self._copies(params)
        step, trail = TrainStep(replicas, self.devices, 0.1, self._sync(replicas)), []
        for _ in range(STEPS):
            self._steps([(X, y)], step)
            trail.append([[param.copy() for param in replica] for replica in replicas])
        return [[[param.asnumpy() for param in replica] for replica in copies] for copies in trail]

    def _steps(self, batches: Any, step: Callable[..., List[NDArray]]) -> List[NDArray]:
        """Train on whole batches, of which this rank takes its part."""
        return train_steps(batches, step, self.ranks)

    def losses(self, X: HostArray, y: HostArray, params: List[HostArray], lr: float, steps: int) -> List[float]:
        """The sum of the losses of this rank's samples before each step on one batch."""
        replicas = self._copies(params)
        step = TrainStep(replicas, self.devices, lr, self._sync(replicas))
        return [sum(float(losses.sum()) for losses in self._steps([(X, y)], step)) for _ in range(steps)]

    def accuracy(self) -> float:
        """Of what was trained, on the test set."""
        return evaluate(self._test, self._replicas, net=self._net)

    def _copies(self, params: List[HostArray]) -> List[List[NDArray]]:
        return [get_params([upload(param, mx.cpu()) for param in params], device) for device in self.devices]


def crew(case: Case, settings: Settings, rank: Type[TrainingRank] = TrainingRank) -> Crew:
    """The ranks of ``case``."""
    engine, n = case.settings["engine"], case.settings["processes"]
    order: Dict[str, Any] = {
        **settings,
        **case.settings,
        "devices": case.settings["devices_in_all"] // n,
        "params": [param.asnumpy() for param in init_lenet(settings["seed"])],
    }
    return Crew(engine, n, rank, order)


def oracle(case: Case, settings: Settings, rank: Type[TrainingRank] = TrainingRank) -> Iterator[Tuple[Any, ...]]:
    """All replicas of all ranks after each of a few steps, against the same step on one device of this process, and bit
    for bit with each other. Processes that exchange nothing: each against a device that gets the same part of the
    batch."""
    random = onp.random.RandomState(settings["seed"])
    X, y = random.uniform(size=(60, 1, 28, 28)).astype("float32"), random.randint(0, 10, 60).astype("int32")
    params = init_lenet(settings["seed"], scale=0.1)  # see :mod:`mxdp.experiments.data_parallel.work.serial_run`
    with crew(case, settings, rank) as ranks:
        found = ranks.ask("check", X, y, [param.asnumpy() for param in params])
    (device,) = devices(1, settings["kind"])
    alone = case.settings["engine"] == ALONE
    for number, trail in enumerate(found):
        start, own = params, placed(number, len(found)).shard(len(X)) if alone else slice(None)
        for replicas, (of_first, *_) in zip(trail, found[0]):
            serial = get_params(start, device)
            plain_step(X[own], y[own], [serial], [device], 0.1, lambda: None, samples=len(X))
            for replica in replicas:
                for param, expected, first, limit in zip(replica, serial, of_first, tolerances_of(len(X))):
                    yield param, expected.asnumpy(), limit
                    if not alone:
                        yield param.view("u4") != first.view("u4"), onp.zeros(param.shape), 0.0
            start = [upload(param, mx.cpu()) for param in replicas[0]]


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps of training, from the order to the last rank's answer."""
    ranks = crew(case, settings)

    def one_round() -> None:
        ranks.ask("train", settings["steps"])

    one_round()
    facts = ranks.ask("facts")
    names = [name for _, own in facts for name in own]
    return Work(names, one_round, case={"data": facts[0][0]})
