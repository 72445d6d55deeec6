"""Training steps as :func:`mxdp.train` does them, recorded, and split into what their time went for."""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, List, Optional, Sequence

from mxdp.backend import Device, NDArray
from mxdp.collectives import GradientSync
from mxdp.datasets import Split
from mxdp.datasets.minibatches import Stream
from mxdp.scratch import Params, train_batch
from mxdp.tracing import TimeSplit, section, where_the_time_went
from mxdp.training import RUN_AHEAD


def recorder(
    data: Split,
    batch_size: int,
    seed: int,
    replicas: Sequence[Params],
    devices: Sequence[Device],
    sync: Optional[GradientSync],
) -> Callable[[int], TimeSplit]:
    """A function that trains for that many steps more and returns their split. Python is at most ``RUN_AHEAD`` steps
    ahead of the devices."""
    batches = Stream(data, batch_size, seed).take(1 << 60)  # samples: it never ends
    pending: Deque[List[NDArray]] = deque()

    def step() -> None:
        with section("input"):
            X, y = next(batches)
        pending.append(train_batch(X, y, replicas, devices, lr=0.1, sync=sync))
        if len(pending) > RUN_AHEAD:
            for losses in pending.popleft():
                losses.wait_to_read()

    return lambda steps: where_the_time_went(step, steps, devices=devices)
