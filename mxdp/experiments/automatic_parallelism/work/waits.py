"""The measured rounds of ``run-ahead``, and their comparisons with the serial run. Loads MXNet: import it inside
``oracle`` and ``run``."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Device, npx
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.synthetic import load_synthetic
from mxdp.experiments.automatic_parallelism.work.waiting import (
    WAITS,
    Products,
    Training,
    additions,
    policy,
    queued_additions,
)
from mxdp.experiments.harness.experiment import Round
from mxdp.experiments.measure.memory import Peak
from mxdp.experiments.measure.oracle import TOLERANCE, count_wrong
from mxdp.experiments.measure.timelines import recorded
from mxdp.timing import Timer

Count = Tuple[int, int]
"""Numbers compared, and wrong."""
RECORDED_STEPS = 4


def train(
    wait: str,
    devices: Sequence[Device],
    batch_size: int,
    samples: int,
    epochs: int,
    seed: int,
    lr: float,
    recorded_round: Optional[int] = None,
) -> Iterator[Round]:
    """So many epochs a round, from where the round before ended, with their peak memory (the rounds' median); and after
    the round of that number (from 1) the timeline of a few steps more."""
    stream = Stream(load_synthetic(seed, samples, 1).train, batch_size, seed)
    training, epoch_steps = Training(devices, seed), -(-samples // batch_size)
    training.steps(stream.take(samples), lr, policy(wait, epoch_steps))
    peaks: List[int] = []
    aheads: List[int] = []
    timer = Timer()

    def few() -> None:
        training.steps(stream.take(RECORDED_STEPS * batch_size), lr, policy(wait, epoch_steps))

    for number in itertools.count(1):
        with Peak() as peak, timer:
            aheads.append(training.steps(stream.take(epochs * samples), lr, policy(wait, epoch_steps)))
        peaks.append(peak.bytes)
        metrics = {"steps": epochs * epoch_steps, "ahead": max(aheads), "peak_bytes": statistics.median(peaks)}
        timeline = recorded(few, devices) if number == recorded_round else {}
        yield Round(timer.times[-1], {**timeline, **metrics})


def wait(way: str, devices: Sequence[Device], size: int, count: int, seed: int) -> Iterator[Round]:
    """The time from the first push to the end of the wait; what is not done by then is waited for before the next."""
    products = Products(devices, size, count, seed)
    products.push()
    while True:
        npx.waitall()
        started = time.perf_counter()
        WAITS[way](products.push())
        yield Round(time.perf_counter() - started)


def add(count: int, device: Device, each: bool) -> Iterator[Round]:
    """Additions, with a wait for each or not; then also what one costs Python, and what it costs the back end alone."""
    few = -(-count // 10)
    additions(few, device, each)
    front: List[float] = []
    back: List[float] = []
    while True:
        measured = additions(count, device, each)
        if each:
            yield Round(measured.seconds)
            continue
        front.append(measured.pushing * 1e6 / count)
        back.append(queued_additions(few, device) * 1e6 / few)
        yield Round(measured.seconds, {"front_us": statistics.median(front), "back_us": statistics.median(back)})


def check_training(wait: str, devices: Sequence[Device], seed: int, lr: float) -> Count:
    """Six steps with this way to wait, against a wait at each, bit for bit, and against one device."""
    data = load_synthetic(seed, 61 * 6, 1).train

    def trained(name: str, some: Sequence[Device]) -> List[List[Any]]:
        # Larger weights than the book's: with N(0, 0.01) the first gradients are so small that an error could hide.
        training = Training(some, seed, scale=0.1)
        training.steps(Stream(data, 61, seed).take(len(data)), lr, policy(name, epoch_steps=3))
        return [[param.asnumpy() for param in replica] for replica in training.replicas]

    waited, serial = trained("each step", devices), trained("each step", devices[:1])[0]
    counts: List[Count] = []
    for replica, same in zip(trained(wait, devices), waited):
        counts += [count_wrong(*pair, tolerance=0.0) for pair in zip(replica, same)]
        counts += [count_wrong(*pair, tolerance=TOLERANCE) for pair in zip(replica, serial)]
    return _total(counts)


def check_products(way: str, devices: Sequence[Device], seed: int) -> Count:
    """Every product against NumPy's, exactly."""
    products = Products(devices, 129, 3, seed)
    answers = products.push()
    WAITS[way](answers)
    exact = products.factor.astype("int64") @ products.factor.T.astype("int64")
    return _total([count_wrong(answer.asnumpy(), exact, 0.0) for answer in answers])


def check_additions(each: bool, device: Device) -> Count:
    """The last sum."""
    return count_wrong(additions(10, device, each).last.asnumpy(), [[2.0, 2.0]], 0.0)


def _total(counts: List[Count]) -> Count:
    return sum(checked for checked, _ in counts), sum(wrong for _, wrong in counts)
