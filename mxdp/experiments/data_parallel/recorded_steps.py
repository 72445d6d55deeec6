"""Steps with Python as far ahead as in :func:`mxdp.train`, recorded, and split into what their time went for."""

from __future__ import annotations

from typing import Any, Callable, Sequence

from mxdp.backend import Device
from mxdp.datasets import Split
from mxdp.datasets.minibatches import Stream
from mxdp.experiments.devices import WARM_UP
from mxdp.tracing import TimeSplit, section, where_the_time_went


def recorder(
    data: Split,
    batch_size: int,
    seed: int,
    step: Callable[..., Any],
    devices: Sequence[Device],
) -> Callable[[int], TimeSplit]:
    """A function that trains by ``step(X, y)`` for that many steps more and returns their split. Some steps warm up."""
    batches = Stream(data, batch_size, seed).take(1 << 60)  # samples: it never ends

    def one_step() -> None:
        with section("input"):
            X, y = next(batches)
        step(X, y)

    for _ in range(WARM_UP):
        one_step()
    return lambda steps: where_the_time_went(one_step, steps, devices=devices)
