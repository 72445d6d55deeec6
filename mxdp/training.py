"""The fast training loop: gradients summed in buckets, Python ahead of the devices, one epoch at a time."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Any, Callable, Deque, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray
from mxdp.backend import devices as find_devices
from mxdp.collectives import GradientSync
from mxdp.datasets import Dataset, Split, load
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.scratch import Params, evaluate, get_params, in_sync, init_lenet, train_batch
from mxdp.sections import section
from mxdp.timing import Timer

RUN_AHEAD = 2
"""Steps that Python may be ahead of the devices. The devices then seldom wait for Python, and memory is bounded. On CPU
devices ``wait_to_read`` queues behind all work on ``cpu(0)``, so it may return after the array is ready."""


def train_steps(
    batches: Iterable[Tuple[HostArray, HostArray]],
    device_params: Sequence[Params],
    devices: Sequence[Device],
    lr: float,
    sync: Optional[GradientSync] = None,
) -> List[NDArray]:
    """Run :func:`train_batch` on each batch. Python runs at most ``RUN_AHEAD`` steps ahead of the slowest device.

    To stay within this bound Python waits for the losses of one step, not for everything (``waitall``), so the devices
    stay busy. The last steps may still be running when this returns. Returns the losses of the last step, one array for
    each device.
    """
    pending: Deque[List[NDArray]] = deque()
    for X, y in _marked(batches):
        pending.append(train_batch(X, y, device_params, devices, lr, sync=sync))
        if len(pending) > RUN_AHEAD:
            for losses in pending.popleft():
                losses.wait_to_read()
    return pending[-1]


def _marked(batches: Iterable[Tuple[HostArray, HostArray]]) -> Iterator[Tuple[HostArray, HostArray]]:
    """The same batches. In a timeline, the making of each batch is a section."""
    source = iter(batches)
    while True:
        with section("input"):
            batch = next(source, None)
        if batch is None:
            return
        yield batch


@dataclass(frozen=True)
class Epoch:
    """``seconds`` for ``samples`` samples, fenced on both sides; ``loss`` is the mean over the last step."""

    number: int
    seconds: float
    samples: int
    loss: float


@dataclass(frozen=True)
class History:
    """The result of :func:`train`: the replicas, and for each finished epoch its times and its test accuracy."""

    devices: List[Device]
    device_params: List[List[NDArray]]
    epochs: List[Epoch]
    test_accuracies: List[float]

    def __repr__(self) -> str:
        last = f", the last with test accuracy {self.test_accuracies[-1]:.4f}" if self.test_accuracies else ""
        epochs = plural(len(self.epochs), "epoch")
        return f"<History: {epochs} on {', '.join(map(str, self.devices))}{last}>"


def train_epochs(
    data: Split,
    device_params: Sequence[Params],
    devices: Sequence[Device],
    batch_size: int,
    lr: float,
    samples: Optional[int] = None,
    seed: int = 0,
    algorithm: str = "auto",
) -> Iterator[Epoch]:
    """Train without end: this generator runs one epoch each time it is resumed.

    Several trainings can so take turns, epoch by epoch. ``samples`` sets the length of an "epoch", which may be a part
    or a multiple of the training set. The next epoch continues where the stream of batches stopped.
    """
    stream, sync = Stream(data, batch_size, seed), GradientSync(device_params, algorithm)
    samples = samples or len(data)
    timer, number = Timer(), 0
    while True:
        number += 1
        with timer:
            losses = train_steps(stream.take(samples), device_params, devices, lr, sync)
        loss = float(onp.concatenate([shard.asnumpy() for shard in losses]).mean())
        yield Epoch(number, timer.times[-1], samples, loss)


def train(
    num_devices: int,
    batch_size: int,
    lr: float,
    num_epochs: int = 10,
    kind: str = "auto",
    data: Union[str, Dataset] = "auto",
    seed: int = 0,
    algorithm: str = "auto",
    report: Callable[[str], Any] = print,
) -> History:
    """Train LeNet on ``num_devices`` devices, and report a line after each epoch.

    Args:
        num_devices, kind: as :func:`mxdp.devices` takes them.
        batch_size: samples in a step, over all devices together.
        data: a data set, or the name of one for :func:`mxdp.load`.
        seed: of the initial parameters and of the order of samples.
        algorithm: of the all-reduce, as :class:`mxdp.GradientSync` takes it.

    Returns:
        The trained replicas and the finished epochs. Ctrl-C ends the training early and is not an error: ``train``
        reports it and returns. All replicas are then copies of the first one, with the steps of the unfinished epoch.

    Raises:
        ValueError: a number that must be positive is not, a step has fewer samples than devices, or an unknown name.
        BackendError, DataError: devices or data are not available.
    """
    for name, value in (("batch_size", batch_size), ("lr", lr), ("num_epochs", num_epochs)):
        if not value > 0:
            raise ValueError(f"{name} must be more than 0, not {value}")
    devices = find_devices(num_devices, kind)
    if batch_size < num_devices:
        raise ValueError(
            f"batch_size {batch_size} gives {num_devices} devices less than a sample each: use a larger batch or fewer "
            "devices"
        )
    dataset = load(data) if isinstance(data, str) else data
    params = init_lenet(seed)
    device_params = [get_params(params, device) for device in devices]
    training = train_epochs(dataset.train, device_params, devices, batch_size, lr, seed=seed, algorithm=algorithm)
    finished: List[Tuple[Epoch, float]] = []
    try:
        for _, epoch in zip(range(num_epochs), training):
            accuracy = evaluate(dataset.test, device_params)
            finished.append((epoch, accuracy))
            report(
                f"epoch {epoch.number}: {epoch.seconds:.2f} s, {epoch.samples / epoch.seconds:,.0f} samples/s, "
                f"loss {epoch.loss:.3f}, test accuracy {accuracy:.4f}"
            )
    except KeyboardInterrupt:
        # Perhaps some replicas have made the step and others have not.
        for params in device_params[1:]:
            for first, own in zip(device_params[0], params):
                first.copyto(own)
        report(f"stopped by Ctrl-C after {len(finished)} of {num_epochs} epochs")
    report(f"trained on {', '.join(map(str, devices))}; replicas in sync: {in_sync(device_params)}")
    return History(devices, device_params, [epoch for epoch, _ in finished], [accuracy for _, accuracy in finished])
