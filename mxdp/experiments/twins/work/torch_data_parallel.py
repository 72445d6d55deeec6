"""Trains LeNet in one process or two of PyTorch's."""

from __future__ import annotations

from typing import Any, Iterator, Tuple

import numpy as np
import torch

from mxdp.experiments.harness.experiment import Case, Settings, Skipped, Work
from mxdp.experiments.measure import torch_ddp
from mxdp.experiments.measure.crew import Crew


def _crew(case: Case, settings: Settings) -> Crew:
    gpus = case.settings["data_parallel"]
    if gpus > (torch.cuda.device_count() if settings["kind"] != "cpu" else 0):
        raise Skipped(f"DataParallel needs {gpus} GPUs, and PyTorch finds {torch.cuda.device_count()}")
    order = {**settings, **case.settings, "params": torch_ddp.initial(settings["seed"], 0.1)}
    return Crew("torch", case.settings["processes"], torch_ddp.TorchRank, order)


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Every process after a few steps on an uneven batch, against a loop in this process."""
    random = np.random.RandomState(settings["seed"])
    X, y = random.uniform(size=(61, 1, 28, 28)).astype("float32"), random.randint(0, 10, 61)
    params = torch_ddp.initial(settings["seed"], 0.1)
    with _crew(case, settings) as ranks:
        found = [replica for rank in ranks.ask("check", X, y, params) for replica in rank]
    net, cpu = torch_ddp.lenet(params), torch.device("cpu")
    sgd = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(torch_ddp.STEPS):
        torch_ddp.step(net, sgd, X, y, 1 / len(X), cpu)
    for replica in found:
        for own, expected, first in zip(replica, net.parameters(), found[0]):
            yield own, expected.detach().numpy()
            yield own.view("u4") != first.view("u4"), np.zeros(own.shape), 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round is some steps of training, from the order to the last process's answer."""
    ranks = _crew(case, settings)

    def one_round() -> None:
        ranks.ask("train", settings["steps"])

    one_round()
    facts = ranks.ask("facts")
    return Work([name for _, own in facts for name in own], one_round)
