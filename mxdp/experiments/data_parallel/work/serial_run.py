"""The serial run that every step on several devices must equal."""

from __future__ import annotations

from typing import Any, Callable, Iterator, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, np
from mxdp.scratch import get_params, init_lenet, train_batch
from mxdp.training import TrainStep

Step = Callable[[NDArray, NDArray, Any, Sequence[Device], float], Any]


def synced_step() -> Step:
    """The step of :func:`mxdp.train`, for one set of replicas."""
    steps: List[TrainStep] = []

    def step(X: NDArray, y: NDArray, device_params: Any, devices: Sequence[Device], lr: float) -> None:
        if not steps:
            steps.append(TrainStep(device_params, devices, lr))
        steps[0](X, y)

    return step


def check_step(
    devices: Sequence[Device],
    batch_size: int,
    seed: int = 0,
    steps: int = 3,
    step: Step = train_batch,
    layout: Callable[[Sequence[Any]], Sequence[Any]] = list,
) -> Iterator[Tuple[Any, ...]]:
    """Train LeNet for a few steps on ``devices`` with ``step``, and on the first of them alone with mxdp's own step.

    Both train on the same random batch. Yields, for an oracle, each gradient after the first step and each parameter
    after the last, of every replica, with the one-device run's; and every replica's bits with the first one's.
    ``layout`` turns mxdp's parameters into the step's, and back.
    """
    random = onp.random.RandomState(seed)
    X = np.array(random.uniform(size=(batch_size, 1, 28, 28)).astype("float32"))
    y = np.array(random.randint(0, 10, size=batch_size), dtype="int32")
    # Larger weights than the book's: with N(0, 0.01) the first layer's gradients are so small that an error could hide.
    params = init_lenet(seed, scale=0.1)

    def results(some: Sequence[Device], one_step: Step, params: Sequence[NDArray]) -> List[List[HostArray]]:
        replicas = [get_params(params, device) for device in some]
        one_step(X, y, replicas, some, 0.1)
        gradients = [[param.grad.asnumpy() for param in replica] for replica in replicas]
        for _ in range(steps - 1):
            one_step(X, y, replicas, some, 0.1)
        return [before + [param.asnumpy() for param in replica] for before, replica in zip(gradients, replicas)]

    serial = results(devices[:1], train_batch, params)[0]
    parallel = [layout(replica) for replica in results(devices, step, layout(params))]
    for replica in parallel:
        yield from zip(replica, serial)
    for replica in parallel[1:]:
        for own, first in zip(replica, parallel[0]):
            yield own.view(f"u{own.itemsize}") != first.view(f"u{own.itemsize}"), onp.zeros(own.shape), 0.0
