"""Steps and epochs: Python ahead of the devices, gradients summed in buckets, one epoch at a time. And what is left of
them: times, and the replicas, also after Ctrl-C."""

from __future__ import annotations

import reprlib
import statistics
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple

from mxdp.backend import Device, HostArray, NDArray, check_replicas
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.datasets import Split, finite, positive_int
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.processes import World
from mxdp.processes.world import ranks_of
from mxdp.scratch import Function, Params, cross_entropy, evaluate, lenet
from mxdp.sections import section
from mxdp.timing import Timer
from mxdp.training.step import TrainStep


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


@contextmanager
def copied_after_ctrl_c(device_params: Sequence[Sequence[NDArray]]) -> Iterator[None]:
    """Around a loop of your own: Ctrl-C in a step leaves some replicas updated and others not, so all become copies of
    the first. Then the KeyboardInterrupt goes on. Doesn't wait. Momenta stay as they are: make a new step."""
    try:
        yield
    except KeyboardInterrupt:
        for params in device_params[1:]:
            for first, own in zip(device_params[0], params):
                first.copyto(own)
        raise


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in :func:`train`, outside an interactive Python. ``history`` is what was trained until then."""

    def __init__(self, history: History) -> None:
        super().__init__(f"training stopped by Ctrl-C after {plural(len(history.epochs), 'epoch')}")
        self.history = history


def train_steps(
    batches: Iterable[Tuple[HostArray, HostArray]],
    step: Callable[[HostArray, HostArray, int], List[NDArray]],
    world: Optional[World] = None,
) -> List[NDArray]:
    """Do ``step(X, y, samples)`` for each batch. The last steps may still be running when this returns.

    How far Python runs ahead is left to ``step``: a :class:`TrainStep` waits by itself. Returns the losses of the last
    step, one array for each device that had samples. ``batches`` are those of all ranks of ``world``: each rank trains
    on its own part, and is told how many samples the whole batch has.
    """
    ranks, losses = ranks_of(world), []
    for X, y in _marked(batches):
        own = ranks.shard(len(X))
        losses = step(X[own], y[own], len(X))
        ranks.step_done()
    return losses


def _marked(batches: Iterable[Tuple[HostArray, HostArray]]) -> Iterator[Tuple[HostArray, HostArray]]:
    """The same batches. In a timeline, the making of each batch is a section."""
    source = iter(batches)
    while True:
        with section("input"):
            batch = next(source, None)
        if batch is None:
            return
        yield batch


def train_epochs(
    data: Split,
    device_params: Sequence[Params],
    devices: Sequence[Device],
    batch_size: int,
    lr: float,
    samples: Optional[int] = None,
    seed: int = 0,
    algorithm: str = "auto",
    world: Optional[World] = None,
    start: Tuple[int, int] = (0, 0),
    between: Callable[[int, int], Any] = lambda epoch, position: None,
    net: Function = lenet,
    loss: Function = cross_entropy,
    momentum: float = 0.0,
    shard_optimizer: bool = False,
    begin: Callable[[TrainStep], Any] = lambda step: None,
) -> Iterator[Epoch]:
    """Train without end: this generator runs one epoch each time it is resumed.

    So several trainings can take turns, epoch by epoch. ``samples`` sets the length of an "epoch", which may be a part
    or a multiple of the training set. The next epoch continues where the stream of batches stopped. With a ``world`` of
    several ranks, every rank calls it alike; all ranks' parameters become rank 0's.

    ``start`` is the place where an earlier training stopped: the stream's epoch and position. The first epoch is then
    the rest of the one that was stopped. Between two steps of an epoch, ``between`` is called with the place: the steps
    up to there are pushed, and no later one. ``net``, ``loss`` and ``momentum`` are as :class:`TrainStep` takes them;
    with ``shard_optimizer`` each device holds its part of the momentum alone. ``begin`` is given the step at once.
    """
    ranks = ranks_of(world)
    if not isinstance(data, Split):
        raise TypeError(f"data must be a Split, such as load('digits').train, not {reprlib.repr(data)}")
    check_replicas(device_params, devices)
    finite("lr", lr)
    samples = len(data) if samples is None else positive_int("samples", samples)
    stream = Stream(data, batch_size, seed, epoch=start[0], position=start[1])
    sync = (
        ShardedSync(device_params, world=ranks)
        if shard_optimizer
        else GradientSync(device_params, algorithm, world=ranks)
    )
    for params in device_params:
        ranks.broadcast(params)
    timer = Timer()
    step = TrainStep(device_params, devices, lr, sync, net, loss, momentum=momentum)
    begin(step)
    number, done = divmod(start[0] * len(data) + start[1], samples)
    while True:
        number += 1
        with timer:
            batches = _with_breaks(stream, samples - done, between)
            losses = train_steps(batches, step, ranks)
        own = [float(each) for shard in losses for each in shard.asnumpy()]
        mean = statistics.mean(each for rank in ranks.gather(own) for each in rank)
        yield Epoch(number, timer.times[-1], samples - done, mean)
        done = 0


def _with_breaks(
    stream: Stream, left: int, between: Callable[[int, int], Any]
) -> Iterator[Tuple[HostArray, HostArray]]:
    """``stream.take(left)``. ``between`` is called when the step of a batch is pushed and more follow."""
    for X, y in stream.take(left):
        yield X, y
        left -= len(X)
        if left:
            between(stream.epoch, stream.position)


def accuracy_of_ranks(test: Split, device_params: Sequence[Params], ranks: World, net: Function) -> float:
    """:func:`mxdp.evaluate`, each rank on its own part of ``test``. Waits."""
    own = ranks.shard(len(test))
    part = Split(test.X[own], test.y[own])
    right = round(evaluate(part, device_params, net=net) * len(part)) if len(part) else 0
    return float(sum(ranks.gather(right)) / len(test))
