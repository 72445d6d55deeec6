"""Steps with Python as far ahead as in :func:`mxdp.train`, recorded, and split into what their time went for."""

from __future__ import annotations

from collections import deque
from typing import Any, Callable, Deque, Sequence

from mxdp.backend import Device
from mxdp.datasets import Split
from mxdp.datasets.minibatches import Stream
from mxdp.engine import CompletionEvent
from mxdp.tracing import TimeSplit, section, where_the_time_went
from mxdp.training import RUN_AHEAD


def recorder(
    data: Split,
    batch_size: int,
    seed: int,
    step: Callable[..., Any],
    devices: Sequence[Device],
) -> Callable[[int], TimeSplit]:
    """A function that trains by ``step(X, y)`` for that many steps more and returns their split. Python is at most
    ``RUN_AHEAD`` steps ahead of the devices."""
    batches = Stream(data, batch_size, seed).take(1 << 60)  # samples: it never ends
    pending: Deque[CompletionEvent] = deque()

    def one_step() -> None:
        with section("input"):
            X, y = next(batches)
        pending.append(CompletionEvent(step(X, y)))
        if len(pending) > RUN_AHEAD:
            pending.popleft().wait()

    return lambda steps: where_the_time_went(one_step, steps, devices=devices)
