"""Trains two networks in one process of several: ``python -m mxdp.experiments.many_processes.predicted_ranks FOLDER``,
under mxdp's launcher; or in one alone."""

from __future__ import annotations

import statistics
from functools import partial
from typing import Any, Dict, List, Optional, Sequence, Tuple

from mxdp.backend import HostArray, devices, mx, npx, upload
from mxdp.experiments.devices import timed
from mxdp.experiments.many_processes.hosts import answer
from mxdp.experiments.networks import MOST, network, seconds_a_step
from mxdp.experiments.oracle import random_batch
from mxdp.processes import ALONE, World

SUMS = (4, 65_536, 1_048_576)
"""Bytes of the sums that tell what a sum takes: none is a network's."""


class PredictedRank:
    """One process with one device: its replica of LeNet or ResNet-18, and its part of each batch."""

    def __init__(self, net: str, seed: int, kind: str, ranks: Optional[World] = None) -> None:
        self.ranks = ranks or ALONE
        (self.device,) = devices(1, kind)
        self.model = network(net, 64, (self.device,), seed, ranks)
        self.params = self.model.replicas[0]

    def steps(
        self,
        X: HostArray,
        y: HostArray,
        steps: int,
        warm_up: int = 0,
    ) -> Tuple[float, float]:
        """Mean seconds of ``steps`` steps after ``warm_up`` others, and Python's processor time of one. Waits."""
        part = self.ranks.shard(len(X))
        batch: Sequence[Any] = X[part], y[part], len(X)
        for _ in range(warm_up):
            self.model.step(*batch)
        npx.waitall()
        self.ranks.barrier()
        return seconds_a_step(self.model, batch, steps)

    def stepped(self, before: Sequence[HostArray], X: HostArray, y: HostArray) -> List[HostArray]:
        """The parameters after a step from the parameters ``before``. Waits."""
        for param, value in zip(self.params, before):
            param[()] = upload(value, self.device)
        self.steps(X, y, 1)
        return [param.asnumpy() for param in self.params]

    def sums(self, rounds: int = 3) -> List[Tuple[float, float]]:
        """Bytes, and median seconds of a sum over all processes, of the slowest. Waits."""
        taken: List[Tuple[float, float]] = []
        for nbytes in SUMS:
            array = mx.nd.zeros((nbytes // 4,), ctx=self.device)
            times = []
            for _ in range(1 + rounds):
                self.ranks.barrier()
                times.append(timed(partial(self.ranks.sum, [array])))
            own = statistics.median(times[1:])
            taken.append((nbytes, max(self.ranks.gather(own))))
        return taken

    def measured(self, X: HostArray, y: HostArray, at_least: float) -> Dict[str, Any]:
        """The sums, and the seconds of a step of the slowest rank, of about ``at_least`` seconds of steps."""
        own, _ = self.steps(X, y, 2)
        once = max(self.ranks.gather(own))
        steps = max(1, min(MOST, round(at_least / once)))
        sums = self.sums()
        own, _ = self.steps(X, y, steps, -(-steps // 4))
        return dict(steps=steps, sums=sums, seconds=max(self.ranks.gather(own)))


def obey(order: Dict[str, Any], ranks: World) -> Any:
    """The parameters after a step from those ``before``, if the order has any; else the measurement."""
    rank = PredictedRank(order["net"], order["seed"], order["kind"], ranks)
    batch = random_batch(order["batch"], order["seed"])
    if order["before"]:
        return rank.stepped(order["before"], *batch)
    return rank.measured(*batch, order["at_least"])


if __name__ == "__main__":
    answer(obey)
