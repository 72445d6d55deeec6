"""Ways for Python to wait for the devices, or not to. Loads MXNet: import it inside ``oracle`` and ``run``."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, np, npx, upload
from mxdp.collectives import GradientSync
from mxdp.experiments.measure.completion import CompletionEvent, Gate
from mxdp.scratch import get_params, init_lenet, train_batch

BOUND = 2
"""Steps that Python may be ahead, where it is bounded."""

Wait = Callable[[int, List[NDArray], CompletionEvent], Any]
"""Called when a step was pushed: with its number (from 1), its losses, and the stamp behind them."""


def policy(name: str, epoch_steps: int) -> Wait:
    """One of the ways that ``run-ahead`` compares; the bounded ones remember, so each training needs a fresh one."""
    losses_before: Deque[List[NDArray]] = deque()
    stamps_before: Deque[CompletionEvent] = deque()

    def never(step: int, losses: List[NDArray], stamp: CompletionEvent) -> None:
        pass

    def each_epoch(step: int, losses: List[NDArray], stamp: CompletionEvent) -> None:
        if step % epoch_steps == 0:
            npx.waitall()

    def each_step(step: int, losses: List[NDArray], stamp: CompletionEvent) -> None:
        npx.waitall()

    def bounded(step: int, losses: List[NDArray], stamp: CompletionEvent) -> None:
        losses_before.append(losses)
        if len(losses_before) > BOUND:
            for loss in losses_before.popleft():
                loss.wait_to_read()

    def bounded_by_stamps(step: int, losses: List[NDArray], stamp: CompletionEvent) -> None:
        stamps_before.append(stamp)
        if len(stamps_before) > BOUND:
            stamps_before.popleft().wait()

    ways: Dict[str, Wait] = {
        "never": never,
        "each epoch": each_epoch,
        "each step": each_step,
        "2 ahead": bounded,
        "2 ahead, stamps": bounded_by_stamps,
    }
    return ways[name]


class Training:
    """LeNet on ``devices``, a replica each, as :func:`mxdp.train` does it."""

    def __init__(self, devices: Sequence[Device], seed: int, scale: float = 0.01) -> None:
        self.devices = devices
        params = init_lenet(seed, scale)
        self.replicas = [get_params(params, device) for device in devices]
        self._sync = GradientSync(self.replicas, "auto")

    def steps(self, batches: Iterable[Tuple[HostArray, HostArray]], lr: float, wait: Wait) -> int:
        """A step for each batch, with ``wait`` after each; at how many steps Python was ahead of the devices at most.

        Doesn't wait at the end. Every way pays for the stamps, whether it needs them or not.
        """
        unfinished: Deque[CompletionEvent] = deque()
        ahead = 0
        for step, (X, y) in enumerate(batches, 1):
            losses = train_batch(X, y, self.replicas, self.devices, lr, sync=self._sync)
            unfinished.append(CompletionEvent(losses))
            while unfinished and unfinished[0].at is not None:
                unfinished.popleft()
            ahead = max(ahead, len(unfinished))
            wait(step, losses, unfinished[-1] if unfinished else CompletionEvent(losses))
        return ahead


class Additions(NamedTuple):
    """Seconds in all, seconds until Python was through with pushing, and the last sum."""

    seconds: float
    pushing: float
    last: NDArray


def additions(count: int, device: Device, each: bool) -> Additions:
    """``y = x + 1`` so often, as in the book, waiting for each or only at the end."""
    x = np.ones((1, 2), ctx=device)
    npx.waitall()
    started = time.perf_counter()
    for _ in range(count):
        y = x + 1
        if each:
            y.wait_to_read()
    pushed = time.perf_counter()
    npx.waitall()
    return Additions(time.perf_counter() - started, pushed - started, y)


def queued_additions(count: int, device: Device) -> float:
    """What so many additions take when all of them are queued already: the back end alone, in seconds."""
    x = np.ones((1, 2), ctx=device)
    gate = Gate(x)
    for _ in range(count):
        y = x + 1
    started = time.perf_counter()
    gate.open()
    y.wait_to_read()
    npx.waitall()
    return time.perf_counter() - started


class Products:
    """``count`` products on each device that have nothing to do with each other, and a wait for something of it."""

    def __init__(self, devices: Sequence[Device], size: int, count: int, seed: int) -> None:
        random = onp.random.RandomState(seed)
        # Whole numbers this small have exact float32 products, in whatever order they are added up.
        self.factor = random.randint(-8, 9, size=(size, size)).astype("float32")
        self._count = count
        self._loaded = [upload(self.factor, device) for device in devices]

    def push(self) -> List[NDArray]:
        """Product by product in turn on each device; the first is the first device's. Doesn't wait."""
        return [
            npx.fully_connected(x, x, num_hidden=len(x), no_bias=True) for _ in range(self._count) for x in self._loaded
        ]


WAITS: Dict[str, Callable[[List[NDArray]], Any]] = {
    "waitall": lambda products: npx.waitall(),
    "wait_to_read": lambda products: products[0].wait_to_read(),
    "stamp": lambda products: CompletionEvent(products[:1]).wait(),
}
"""For all products, or for the first: by MXNet's own wait, or by ours."""
