"""Trains LeNet on pictures that are decoded as they are needed, by one loader or by one for each process."""

from __future__ import annotations

import zlib
from typing import Any, Callable, Iterator, List, Mapping, Tuple

import numpy as onp

from mxdp.backend import HostArray, NDArray, npx
from mxdp.datasets import Split, load
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.many_processes.loader import PARTS
from mxdp.experiments.many_processes.work import machines
from mxdp.training import TrainStep, train_steps

PICTURES = 256
"""That are stored. Batches are drawn from them again and again."""


class Stored:
    """Pictures as bytes: each enlarged ``scale`` times in height and width, and compressed."""

    def __init__(self, split: Split, scale: int) -> None:
        self.split, self._scale = split, scale
        pixels = onp.rint(split.X[:, 0] * 255).astype("uint8")
        self._stored = [zlib.compress(each.repeat(scale, 0).repeat(scale, 1).tobytes(), 1) for each in pixels]

    def decode(self, numbers: HostArray) -> HostArray:
        """The pictures (n, 1, 28, 28) of these numbers."""
        scale, shape = self._scale, self.split.X.shape[1:]
        found = onp.empty((len(numbers), *shape), "float32")
        for place, number in enumerate(numbers):
            large = onp.frombuffer(zlib.decompress(self._stored[number]), "uint8")
            large.reshape(shape[1], scale, shape[2], scale).mean((1, 3), out=found[place, 0])
        return found / onp.float32(255)


class LoadingRank(machines.TrainingRank):
    """One process that decodes what its own devices need."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        super().__init__(order)
        data = load(order["data"], order["data_dir"], seed=order["seed"]).take(PICTURES, 1)
        self._pictures = Stored(data.train, order["scale"])
        self._random = onp.random.RandomState(order["seed"])  # draws the same batches in each rank
        (self._batch,) = self._batches(1)
        self._alone = TrainStep(self._replicas, self.devices, self.lr, lambda: None)

    def _batches(self, steps: int) -> Iterator[Tuple[HostArray, HostArray]]:
        for _ in range(steps):
            own = self._random.permutation(len(self._pictures.split))[self.ranks.shard(self.batch_size)]
            yield self._pictures.decode(own), self._pictures.split.y[own]

    def _train_own(self, batches: Any, step: Callable[..., List[NDArray]], samples: int) -> List[NDArray]:
        """Train on batches of which this rank has loaded its own part alone, of ``samples`` in all ranks together."""
        return train_steps(batches, lambda X, y, _: step(X, y, samples))

    def _steps(self, batches: Any, step: Callable[..., List[NDArray]]) -> List[NDArray]:
        losses: List[NDArray] = []
        for X, y in batches:
            own = self.ranks.shard(len(X))
            losses = self._train_own([(X[own], y[own])], step, len(X))
        return losses

    def all(self, steps: int) -> None:
        """Load, compute and exchange."""
        self._train_own(self._batches(steps), self._step, self.batch_size)
        npx.waitall()

    def input(self, steps: int) -> None:
        """Load alone."""
        for _ in self._batches(steps):
            pass

    def compute(self, steps: int) -> None:
        """Compute alone, on one batch."""
        self._train_own([self._batch] * steps, self._alone, self.batch_size)
        npx.waitall()

    def exchange(self, steps: int) -> None:
        """Sum the gradients alone."""
        for _ in range(steps):
            self._own()
        npx.waitall()


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Decoded pictures against those that were stored; then the parameters, compared as in ``machines``."""
    split = load(settings["data"], settings["data_dir"], seed=settings["seed"]).take(20, 1).train
    decoded = Stored(split, case.settings["scale"]).decode(onp.arange(len(split)))
    yield decoded, onp.rint(split.X * 255) / 255, 1e-6
    yield from machines.oracle(case, settings, LoadingRank)


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps, and then as many of each part alone. (Replicas then differ, which no time depends on.)"""
    ranks, steps = machines.crew(case, settings, LoadingRank), settings["steps"]

    def one_round() -> Round:
        whole = ranks.timed("all", steps)
        return Round(whole, {f"{part}_ms": ranks.timed(part, steps) / steps * 1e3 for part in PARTS})

    for part in ("all", *PARTS):
        ranks.ask(part, 1)
    facts: List[Any] = ranks.ask("facts")
    return Work([name for _, own in facts for name in own], one_round, case={"data": facts[0][0]})
