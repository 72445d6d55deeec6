"""Trains two networks in one process of several: ``python -m mxdp.experiments.many_processes.predicted_ranks FOLDER``,
under mxdp's launcher; or in one alone."""

from __future__ import annotations

import pickle
import statistics
import sys
import time
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

import mxdp
from mxdp.backend import Device, HostArray, NDArray, devices, mx, npx, upload
from mxdp.collectives import GradientSync
from mxdp.experiments.networks import LR, Gluon, random_batch, resnet18
from mxdp.processes import World, world
from mxdp.scratch import cross_entropy, get_params, init_lenet, lenet
from mxdp.training import TrainStep

SUMS = (4, 65_536, 1_048_576)
"""Bytes of the sums that tell what a sum takes: none is a network's."""
MOST = 200
"""Steps of one measurement."""


class LeNet:
    """On one device, with the gradients summed over all ranks."""

    def __init__(self, device: Device, ranks: World, seed: int) -> None:
        self.replicas = [get_params(init_lenet(seed, scale=0.1), device)]
        self.step = TrainStep(self.replicas, [device], LR, GradientSync(self.replicas, world=ranks))

    def loss(self, X: NDArray, y: NDArray) -> NDArray:
        """Without a step."""
        return cross_entropy(lenet(X, self.replicas[0]), y)


class ResNet(Gluon):
    """ResNet-18, likewise."""

    def __init__(self, device: Device, ranks: World, seed: int) -> None:
        def trainer(params: Any) -> Any:
            return mxdp.Trainer(params, "sgd", {"learning_rate": LR}, world=ranks)

        net = resnet18()
        net.hybridize()
        super().__init__(net, [device], seed, trainer, mx.init.Xavier())

    def step(self, X: HostArray, y: HostArray, samples: int) -> None:  # type: ignore[override]
        """On this rank's part of ``samples`` samples. Doesn't wait."""
        self.backward(X, y)
        self.trainer.step(samples)


class PredictedRank:
    """One process with one device: its replica of a network, and its part of each batch."""

    def __init__(self, net: str, seed: int, kind: str, ranks: Optional[World] = None) -> None:
        self.ranks = ranks or World()
        (self.device,) = devices(1, kind)
        self.model = (LeNet if net == "lenet" else ResNet)(self.device, self.ranks, seed)
        self.params = self.model.replicas[0]

    def steps(self, X: HostArray, y: HostArray, steps: int, warm_up: int = 0) -> Tuple[float, float]:
        """``steps`` steps on its part of the batch, after ``warm_up`` others: the mean seconds, and those of Python's
        processor time. Waits."""
        own, samples = self.ranks.shard(len(X)), len(X)
        X, y = X[own], y[own]
        for _ in range(warm_up):
            self.model.step(X, y, samples)
        npx.waitall()
        self.ranks.barrier()
        started, python = time.perf_counter(), time.thread_time()
        for _ in range(steps):
            self.model.step(X, y, samples)
        python = time.thread_time() - python
        npx.waitall()
        return (time.perf_counter() - started) / steps, python / steps

    def stepped(self, before: Sequence[HostArray], X: HostArray, y: HostArray) -> List[HostArray]:
        """The parameters after a step from the parameters ``before``. Waits."""
        for param, value in zip(self.params, before):
            param[()] = upload(value, self.device)
        self.steps(X, y, 1)
        return [param.asnumpy() for param in self.params]

    def sums(self, rounds: int = 3) -> List[Tuple[float, float]]:
        """Bytes, and median seconds of a sum over all processes, of the slowest. Waits."""
        found: List[Tuple[float, float]] = []
        for nbytes in SUMS:
            array, times = mx.nd.zeros((nbytes // 4,), ctx=self.device), []
            for _ in range(1 + rounds):
                npx.waitall()
                self.ranks.barrier()
                started = time.perf_counter()
                self.ranks.sum([array])
                npx.waitall()
                times.append(time.perf_counter() - started)
            found.append((nbytes, max(self.ranks.gather(statistics.median(times[1:])))))
        return found

    def measured(self, X: HostArray, y: HostArray, at_least: float) -> Dict[str, Any]:
        """The sums, and the seconds of a step of the slowest rank, of about ``at_least`` seconds of steps."""
        once = max(self.ranks.gather(self.steps(X, y, 2)[0]))
        steps = max(1, min(MOST, round(at_least / once)))
        sums = self.sums()
        return dict(steps=steps, sums=sums, seconds=max(self.ranks.gather(self.steps(X, y, steps, -(-steps // 4))[0])))


def main() -> None:
    """Do what the order in the folder says; write what this rank found."""
    folder, ranks = Path(sys.argv[1]), world()
    order = pickle.loads((folder / "order").read_bytes())
    rank = PredictedRank(order["net"], order["seed"], order["kind"], ranks)
    batch = random_batch(order["batch"], order["seed"])
    found = rank.stepped(order["before"], *batch) if order["before"] else rank.measured(*batch, order["at_least"])
    (folder / f"rank.{ranks.rank}").write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main()
