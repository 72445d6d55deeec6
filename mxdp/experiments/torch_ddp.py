"""Data-parallel training by PyTorch: a process of DistributedDataParallel (DDP), or one process with DataParallel.

It runs on GPUs by NCCL, if there are enough; else on the CPU by Gloo, with a thread for each process. It imports no
MXNet.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Tuple

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from mxdp.datasets import load
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.lab import Settings

STEPS = 3
"""How many are compared with the serial run."""


class TorchTraining:
    """LeNet, trained from ``params`` (:func:`initial`) by ``size`` processes, of which this is one: each takes its part
    of every batch. The engine ``torch-ddp`` starts them, if several. ``threads``: of each process on the CPU; ``gpus``:
    how many one process uses by DataParallel."""

    def __init__(
        self,
        params: Sequence[Any],
        s: Settings,
        batch_size: int,
        size: int = 1,
        threads: int = 1,
        gpus: int = 0,
    ) -> None:
        torch.set_num_threads(threads)
        on_gpu = s.kind != "cpu" and torch.cuda.device_count() >= max(size, gpus)
        if size > 1 and not dist.is_initialized():
            dist.init_process_group("nccl" if on_gpu else "gloo")
        self.number = dist.get_rank() if size > 1 else 0
        self.size = size
        self._gpus = gpus
        self.device = torch.device("cuda", self.number) if on_gpu else torch.device("cpu")
        self.devices = [f"cuda:{number}" for number in range(gpus)] or [str(self.device)]
        self.dataset = load(s.data, s.data_dir, seed=s.seed)
        self.batch_size = batch_size
        self._stream = Stream(self.dataset.train, batch_size, s.seed)
        self._net, self._sgd = self._trained(params, s.lr)

    def train(self, steps: int) -> None:
        """``steps`` steps of training, to their end."""
        for X, y in self._stream.take(steps * self.batch_size):
            self._step(X, y, self._net, self._sgd)
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def check(self, X: Any, y: Any, params: Sequence[Any]) -> List[Any]:
        """This process's parameters after a few steps on one batch."""
        net, sgd = self._trained(params, 0.1)
        for _ in range(STEPS):
            self._step(X, y, net, sgd)
        return [param.detach().cpu().numpy() for param in net.parameters()]

    def of_first(self, arrays: Sequence[Any]) -> List[Any]:
        """The first process's ``arrays``. Each process calls this, with arrays of the same shapes."""
        tensors = [torch.from_numpy(array.copy()).to(self.device) for array in arrays]
        if self.size > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)
        return [tensor.cpu().numpy() for tensor in tensors]

    def losses(
        self,
        X: Any,
        y: Any,
        params: Sequence[Any],
        lr: float,
        steps: int,
    ) -> List[float]:
        """The summed loss of this process's samples before each step on one batch."""
        net, sgd = self._trained(params, lr)
        losses = []
        for _ in range(steps):
            scaled = float(self._step(X, y, net, sgd))
            losses.append(scaled * len(X) / self.size)
        return losses

    def _trained(self, params: Sequence[Any], lr: float) -> Tuple[nn.Module, Optimizer]:
        net = torch_lenet(params).to(self.device)
        sgd = torch.optim.SGD(net.parameters(), lr)
        if self._gpus:
            return nn.DataParallel(net, list(range(self._gpus))), sgd
        if self.size > 1:
            return DistributedDataParallel(net), sgd
        return net, sgd

    def _step(self, X: Any, y: Any, net: nn.Module, sgd: Optimizer) -> torch.Tensor:
        start = self.number * len(X) // self.size
        stop = (self.number + 1) * len(X) // self.size
        # DDP averages over the processes, whose losses are sums over a part of the batch.
        scale = self.size / len(X)
        return step(net, sgd, X[start:stop], y[start:stop], scale, self.device)


def step(
    net: nn.Module, sgd: Optimizer, X: Any, y: Any, scale: float, device: torch.device
) -> torch.Tensor:
    """One step on the sum of the losses times ``scale``, which it returns. Doesn't wait for a GPU."""
    labels = torch.from_numpy(y.astype(np.int64)).to(device)
    loss = cross_entropy(net(torch.from_numpy(X).to(device)), labels, reduction="sum") * scale
    sgd.zero_grad()
    loss.backward()
    sgd.step()
    return loss.detach()


def torch_lenet(params: Sequence[Any]) -> nn.Module:
    """:func:`mxdp.scratch.lenet`, with these parameters: NumPy arrays in the same order and layout."""
    net = nn.Sequential(
        nn.Conv2d(1, 20, 3), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(20, 50, 5), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(800, 128), nn.ReLU(), nn.Linear(128, 10),
    )  # fmt: skip
    with torch.no_grad():
        for param, value in zip(net.parameters(), params):
            param.copy_(torch.from_numpy(value))
    return net


def initial(seed: int, scale: float) -> List[Any]:
    """The same as :func:`mxdp.scratch.init_lenet` draws: weights from N(0, ``scale``), biases zero."""
    random = np.random.RandomState(seed)
    shapes = [tuple(param.shape) for param in torch_lenet([]).parameters()]
    drawn = []
    for shape in shapes:
        values = random.normal(scale=scale, size=shape) if len(shape) > 1 else np.zeros(shape)
        drawn.append(values.astype("float32"))
    return drawn
