"""The same training by PyTorch's DistributedDataParallel, over Gloo, a thread for each process. Imports no MXNet."""

from __future__ import annotations

from typing import Any, List, Mapping, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream

STEPS = 3


class Rank:
    """As :class:`.machines.Rank`, on the CPU."""

    def __init__(self, order: Mapping[str, Any]) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo")
        self.number, self.size = dist.get_rank(), dist.get_world_size()
        self.batch_size, self.lr = order["batch_size"], order["lr"]
        data = load(order["data"], order["data_dir"], seed=order["seed"])
        self._stream, self.data = Stream(data.train, self.batch_size, order["seed"]), data.name
        self._net, self._sgd = self._trained(order["params"], self.lr)

    def facts(self) -> Tuple[str, List[str]]:
        """What it trains on: the data, and its device."""
        return self.data, ["cpu"]

    def train(self, steps: int) -> None:
        """``steps`` steps of training."""
        for X, y in self._stream.take(steps * self.batch_size):
            self._step(X, y, self._net, self._sgd)

    def check(self, X: Any, y: Any, params: List[Any]) -> List[List[Any]]:
        """The parameters after a few steps on one batch."""
        net, sgd = self._trained(params, 0.1)
        for _ in range(STEPS):
            self._step(X, y, net, sgd)
        return [[param.detach().numpy() for param in net.parameters()]]

    def _trained(self, params: List[Any], lr: float) -> Tuple[nn.Module, torch.optim.Optimizer]:
        net = lenet()
        with torch.no_grad():
            for own, param in zip(net.parameters(), params):
                own.copy_(torch.from_numpy(param))
        return DistributedDataParallel(net), torch.optim.SGD(net.parameters(), lr)

    def _step(self, X: Any, y: Any, net: nn.Module, sgd: torch.optim.Optimizer) -> None:
        own = slice(self.number * len(X) // self.size, (self.number + 1) * len(X) // self.size)
        labels = torch.from_numpy(y[own].astype(np.int64))
        # DDP averages over the processes; each sum is over a part of the batch.
        loss = cross_entropy(net(torch.from_numpy(X[own])), labels, reduction="sum") * self.size / len(X)
        sgd.zero_grad()
        loss.backward()
        sgd.step()


def lenet() -> nn.Module:
    """:func:`mxdp.scratch.lenet`; its parameters come in the same order and layout."""
    return nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
