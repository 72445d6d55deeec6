"""Trains by :class:`mxdp.training.TrainStep`, multiplies and adds, with different ways to wait for the devices."""

from __future__ import annotations

import math
import time
from collections import deque
from functools import partial
from typing import Any, Callable, Deque, Dict, Iterable, Iterator, List, NamedTuple, Sequence, Tuple

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, np, npx, upload
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.engine import CompletionEvent, Gate
from mxdp.experiments.automatic_parallelism.run_ahead import BOUNDED, EPOCHS
from mxdp.experiments.harness.experiment import Case, Round, Settings, Work
from mxdp.experiments.measure.devices import devices_of
from mxdp.experiments.measure.memory import Peak
from mxdp.scratch import get_params, init_lenet
from mxdp.timing import Timer
from mxdp.training import RUN_AHEAD, TrainStep

LR = 0.1
RECORDED_STEPS = 4

Wait = Callable[[int, List[NDArray]], Any]
"""Is called after each push of a step, with its number (from 1) and its losses."""
WAITS: Dict[str, Callable[[List[NDArray]], Any]] = {
    "waitall": lambda products: npx.waitall(),
    "wait_to_read": lambda products: products[0].wait_to_read(),
    "event": lambda products: CompletionEvent(products[:1]).wait(),
}
"""For all products; for the first by MXNet's own wait, and by ours."""


def oracle(case: Case, settings: Settings) -> Iterator[Tuple[Any, ...]]:
    """Six steps of training against a wait at each, bit for bit, and against one device; products and sums exactly."""
    devices, seed = devices_of(case, settings), settings["seed"]
    if "wait" in case.settings:
        waited, (serial,) = _trained("each step", devices, seed), _trained("each step", devices[:1], seed)
        for replica, same in zip(_trained(case.settings["wait"], devices, seed), waited):
            for param, bits, number in zip(replica, same, serial):
                yield param, bits, 0.0
                yield param, number
    elif "products" in case.settings:
        products = ProductsOnEach(devices, 129, 3, seed)
        answers = products.push()
        WAITS[case.settings["products"]](answers)
        exact = products.factor.astype("int64") @ products.factor.T.astype("int64")
        for answer in answers:
            yield answer.asnumpy(), exact, 0.0
    else:
        yield additions(10, devices[0], case.settings["each"]).last.asnumpy(), [[2.0, 2.0]], 0.0


def set_up(case: Case, settings: Settings) -> Work:
    """A round is two epochs of training, products and a wait, or additions."""
    devices = devices_of(case, settings)
    if "wait" in case.settings:
        return _train(case.settings["wait"], devices, settings)
    if "products" in case.settings:
        return _multiply(case.settings["products"], devices, settings)
    return _add(case.settings["each"], devices[0], settings)


def _trained(way: str, devices: Sequence[Device], seed: int) -> List[List[HostArray]]:
    """Each replica's parameters after six steps."""
    data = load_synthetic(seed, 61 * 6, 1).train
    # Larger weights than the book's: with N(0, 0.01) the first gradients are so small that an error could hide.
    training = Training(devices, seed, way, scale=0.1)
    training.steps(Stream(data, 61, seed).take(len(data)), epoch_steps=3)
    return [[param.asnumpy() for param in replica] for replica in training.replicas]


def _train(way: str, devices: Sequence[Device], settings: Settings) -> Work:
    samples, batch_size, seed = settings["samples"], settings["batch_size"], settings["seed"]
    stream = Stream(load_synthetic(seed, samples, 1).train, batch_size, seed)
    training, epoch_steps, timer = Training(devices, seed, way), -(-samples // batch_size), Timer()

    def train(some: int) -> int:
        return training.steps(stream.take(some), epoch_steps)

    def one_round() -> Round:
        with Peak() as peak, timer:
            ahead = train(EPOCHS * samples)
        return Round(timer.times[-1], {"steps": EPOCHS * epoch_steps, "ahead": ahead, "peak_bytes": peak.bytes})

    train(samples)
    npx.waitall()
    # In a few steps, waiting each epoch is the same as never waiting.
    record = None if way == "each epoch" else lambda: partial(train, RECORDED_STEPS * batch_size)
    return Work(devices, one_round, record)


def _multiply(way: str, devices: Sequence[Device], settings: Settings) -> Work:
    products = ProductsOnEach(devices, settings["size"], settings["products"], settings["seed"])
    products.push()
    npx.waitall()

    def one_round() -> Round:
        # ProductsOnEach that run after this wait don't count. The harness waits for them.
        started = time.perf_counter()
        WAITS[way](products.push())
        return Round(time.perf_counter() - started)

    return Work(devices, one_round)


def _add(each: bool, device: Device, settings: Settings) -> Work:
    count = settings["additions"]
    few = -(-count // 10)
    additions(few, device, each)

    def one_round() -> Round:
        added = additions(count, device, each)
        if each:
            return Round(added.seconds)
        back = queued_additions(few, device)
        return Round(added.seconds, {"front_us": added.pushing * 1e6 / count, "back_us": back * 1e6 / few})

    return Work([device], one_round)


def policy(name: str, epoch_steps: int) -> Wait:
    """A way to wait. That by ``wait_to_read`` has a memory, so each training needs a fresh one."""
    earlier: Deque[List[NDArray]] = deque()

    def bounded(losses: List[NDArray]) -> None:
        earlier.append([loss.copy() for loss in losses])  # which the next step overwrites
        if len(earlier) > RUN_AHEAD:
            for loss in earlier.popleft():
                loss.wait_to_read()

    ways: Dict[str, Wait] = {
        "never": lambda step, losses: None,
        "each epoch": lambda step, losses: npx.waitall() if step % epoch_steps == 0 else None,
        "each step": lambda step, losses: npx.waitall(),
        "2 ahead": lambda step, losses: bounded(losses),
        BOUNDED: lambda step, losses: None,  # the step itself waits
    }
    return ways[name]


class Training:
    """LeNet on ``devices``, a replica each, trained by the step of :func:`mxdp.train`. Its own bound is one of the ways
    to wait; for the others it has none."""

    def __init__(self, devices: Sequence[Device], seed: int, way: str, scale: float = 0.01) -> None:
        self.devices, self._way = devices, way
        params = init_lenet(seed, scale)
        self.replicas = [get_params(params, device) for device in devices]
        self._step = TrainStep(self.replicas, devices, LR, run_ahead=RUN_AHEAD if way == BOUNDED else math.inf)

    def steps(self, batches: Iterable[Tuple[HostArray, HostArray]], epoch_steps: int) -> int:
        """A step for each batch. Returns the most steps that were pushed and not done, the one being pushed included.

        Doesn't wait at the end. Every way pays for the step's completion events, whether it needs them or not.
        """
        wait, ahead = policy(self._way, epoch_steps), 0
        for number, (X, y) in enumerate(batches, 1):
            ahead = max(ahead, self._step.ahead + 1)
            wait(number, self._step(X, y))
        return ahead


class ProductsOnEach:
    """``count`` independent products on each device."""

    def __init__(self, devices: Sequence[Device], size: int, count: int, seed: int) -> None:
        random = onp.random.RandomState(seed)
        # Whole numbers this small have exact float32 products, in any order of the sums.
        self.factor = random.randint(-8, 9, size=(size, size)).astype("float32")
        self._count = count
        self._loaded = [upload(self.factor, device) for device in devices]

    def push(self) -> List[NDArray]:
        """One product on each device, then the next on each. The first is on the first device. Doesn't wait."""
        return [
            npx.fully_connected(x, x, num_hidden=len(x), no_bias=True) for _ in range(self._count) for x in self._loaded
        ]


class TimedAdditions(NamedTuple):
    """Seconds in all, seconds until Python had pushed everything, and the last sum."""

    seconds: float
    pushing: float
    last: NDArray


def additions(count: int, device: Device, each: bool) -> TimedAdditions:
    """``y = x + 1``, ``count`` times, as in the book, with a wait for each or only at the end."""
    x = np.ones((1, 2), ctx=device)
    npx.waitall()
    started = time.perf_counter()
    for _ in range(count):
        y = x + 1
        if each:
            y.wait_to_read()
    pushed = time.perf_counter()
    npx.waitall()
    return TimedAdditions(time.perf_counter() - started, pushed - started, y)


def queued_additions(count: int, device: Device) -> float:
    """Seconds that ``count`` additions take once all of them are queued: the back end alone."""
    x = np.ones((1, 2), ctx=device)
    gate = Gate(x)
    for _ in range(count):
        y = x + 1
    started = time.perf_counter()
    gate.open()
    y.wait_to_read()
    npx.waitall()
    return time.perf_counter() - started
