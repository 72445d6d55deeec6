"""The fast training loop: gradients summed in buckets, Python ahead of the devices, one epoch at a time."""

from __future__ import annotations

import math
import os
import reprlib
import statistics
import sys
import time
import zlib
from dataclasses import asdict, replace
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, check_replicas, mx, upload
from mxdp.collectives import GradientSync
from mxdp.collectives.tuning import resolve
from mxdp.datasets import Dataset, Split, finite, load, positive_int
from mxdp.datasets.minibatches import Stream
from mxdp.datasets.records import check_seed
from mxdp.errors import plural
from mxdp.processes import CheckpointFolder, World
from mxdp.scratch import Params, evaluate, get_params, in_sync, init_lenet, lenet
from mxdp.sections import section
from mxdp.timing import Timer
from mxdp.training.history import Epoch, History, Interrupted
from mxdp.training.step import BoundNet, TrainStep


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
    ranks, losses = world or World(), []
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
) -> Iterator[Epoch]:
    """Train without end: this generator runs one epoch each time it is resumed.

    Several trainings can so take turns, epoch by epoch. ``samples`` sets the length of an "epoch", which may be a part
    or a multiple of the training set. The next epoch continues where the stream of batches stopped. With a ``world`` of
    several ranks, every rank calls it alike; all ranks' parameters become rank 0's.

    ``start`` is the place where an earlier training stopped: the stream's epoch and position. The first epoch is then
    the rest of the one that was stopped. Between two steps of an epoch, ``between`` is called with the place: the steps
    up to there are pushed, and no later one.
    """
    ranks = _ranks(world)
    if not isinstance(data, Split):
        raise TypeError(f"data must be a Split, such as load('digits').train, not {reprlib.repr(data)}")
    check_replicas(device_params, devices)
    finite("lr", lr)
    samples = len(data) if samples is None else positive_int("samples", samples)
    stream = Stream(data, batch_size, seed, epoch=start[0], position=start[1])
    sync = GradientSync(device_params, algorithm, world=ranks)
    for params in device_params:
        ranks.broadcast(params)
    timer = Timer()
    step = TrainStep(device_params, devices, lr, sync)
    number, done = divmod(start[0] * len(data) + start[1], samples)
    while True:
        number += 1
        with timer:
            batches = _with_breaks(stream, samples - done, between)
            losses = train_steps(batches, step, ranks)
        own = [float(loss) for shard in losses for loss in shard.asnumpy()]
        loss = statistics.mean(loss for rank in ranks.gather(own) for loss in rank)
        yield Epoch(number, timer.times[-1], samples - done, loss)
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
    world: Optional[World] = None,
    checkpoint: Optional[Union[str, Path]] = None,
    checkpoint_every: float = 1,
    draw: Optional[Callable[[str, List[float]], Any]] = None,
) -> History:
    """Train LeNet on ``num_devices`` devices, and report a line after each epoch.

    Args:
        num_devices, kind: as :func:`mxdp.devices` takes them.
        batch_size: samples in a step, over all devices together.
        data: a data set, or the name of one for :func:`mxdp.load`.
        seed: of the initial parameters and of the order of samples.
        algorithm: of the all-reduce, as :class:`mxdp.GradientSync` takes it.
        world: of several processes (:func:`mxdp.world`): each trains on ``num_devices`` devices of its own and its part
            of every batch; rank 0 reports.
        checkpoint: a folder. If it holds checkpoints of this training, the training continues from the newest that is
            whole: bit for bit with as many processes and devices, else with sums that may differ in the last bits.
            The last three are kept. They are written by rank 0 in the background; if the disk is full, this is
            reported and the training goes on.
        checkpoint_every: epochs from one checkpoint to the next, or the part of an epoch's steps (0.25: four an epoch).
        draw: as :func:`mxdp.scratch.train` takes it: ``draw(label, test_accuracies)`` after each epoch, on rank 0.

    Returns:
        The trained replicas and the finished epochs.

    Ctrl-C ends the training early. All replicas become copies of the first one, with the steps of the unfinished
    epoch, and checkpoints are finished. An interactive Python, such as a notebook, then gets the history as usual. In
    a script ``Interrupted`` is raised, a KeyboardInterrupt whose ``history`` it is: else the script would go on with a
    half-trained network. With several ranks the KeyboardInterrupt is raised at once.

    Raises:
        TypeError, ValueError: an argument of another kind, a number that must be positive and is not, a step with fewer
            samples than devices, or an unknown name.
        BackendError, DataError: devices or data are not available.
        MxdpError: ``checkpoint`` holds another training's checkpoint; the message says what differs.
    """
    positive_int("batch_size", batch_size)
    positive_int("num_epochs", num_epochs)
    check_seed("seed", seed)
    finite("lr", lr, above=0)
    every = checkpoint_every
    if not isinstance(every, Real) or not (0 < every < 1 or (every >= 1 and every % 1 == 0)):
        raise ValueError(f"checkpoint_every is a whole number of epochs, or a part of one, not {every!r}")
    if not isinstance(checkpoint, (str, os.PathLike, type(None))):
        raise TypeError(f"checkpoint must be the path of a folder, not {checkpoint!r}")
    for name, function in (("report", report), ("draw", draw or print)):
        if not callable(function):
            raise TypeError(f"{name} must be a function, not {function!r}")
    ranks = _ranks(world)
    devices = ranks.devices(num_devices, kind)
    in_all = num_devices * ranks.size
    if batch_size < in_all:
        raise ValueError(
            f"batch_size {batch_size} gives {in_all} devices less than a sample each: use a larger batch or fewer "
            "devices"
        )
    dataset = data if isinstance(data, Dataset) else load(data)
    this = {
        "the data set": f"{dataset.name} of {len(dataset.train)} pictures, checksum {dataset.checksum()}",
        "batch_size": batch_size,
        "lr": lr,
        "seed": seed,
    }
    ranks.agree(
        {
            "mxdp, MXNet, NumPy": [metadata.version("mxdp"), mx.__version__, onp.__version__],
            **this,
            "num_devices": num_devices,
            "num_epochs": num_epochs,
            "algorithm": algorithm,
            "checkpoints": checkpoint is not None and checkpoint_every,
        }
    )
    say = report if ranks.rank == 0 else lambda line: None
    params, start, seconds = init_lenet(seed), (0, 0), 0.0
    finished: List[Tuple[Epoch, float]] = []
    this["parameters"] = ", ".join(str(param.shape) for param in params)
    replicas = f"{plural(ranks.size, 'process')} of {plural(num_devices, 'device')}, algorithm {algorithm}"
    header = {"training": this, "replicas": replicas}
    saved = None if checkpoint is None else CheckpointFolder(checkpoint, world=ranks, report=say)
    if saved:
        saved.lock()  # before the first step, not at the first checkpoint
    found = saved and saved.read(header)
    if found:
        arrays, facts, same_replicas = found
        algorithm = facts.get("algorithm", algorithm) if same_replicas else algorithm
        params = [upload(arrays.pop(f"parameters/{number}"), mx.cpu()) for number in range(len(params))]
        start, seconds = (facts["epoch"], facts["position"]), facts["seconds"]
        finished = [(Epoch(**epoch), accuracy) for epoch, accuracy in facts["finished"]]
        if len(finished) >= num_epochs:
            say(f"nothing is left to train: {plural(len(finished), 'epoch')} of {num_epochs} are finished")
    # "auto" depends on the cores of rank 0, and its choice decides the last bits: so it belongs to the checkpoint.
    algorithm = ranks.gather(resolve(algorithm, devices, [param.size for param in params], 4)[0])[0]
    steps, started = math.ceil(len(dataset.train) / batch_size), time.perf_counter()

    def save(epoch: int, position: int, seconds: float) -> None:
        place = {"epoch": epoch, "position": position, "step": epoch * steps + math.ceil(position / batch_size)}
        done = [(asdict(epoch), accuracy) for epoch, accuracy in finished]
        if saved:
            arrays = {f"parameters/{number}": param for number, param in enumerate(device_params[0])}
            saved.write(header, arrays, {**place, "seconds": seconds, "finished": done, "algorithm": algorithm})

    def between(epoch: int, position: int) -> None:
        step, each = position // batch_size, checkpoint_every * steps
        if checkpoint_every < 1 and step // each > (step - 1) // each:
            save(epoch, position, seconds + time.perf_counter() - started)

    device_params, net = [get_params(params, device) for device in devices], BoundNet(lenet)
    training = train_epochs(
        dataset.train,
        device_params,
        devices,
        batch_size,
        lr,
        seed=seed,
        algorithm=algorithm,
        world=ranks,
        start=start,
        between=between,
    )
    stopped = False
    try:
        for _, part in zip(range(len(finished), num_epochs), training):
            epoch = replace(part, seconds=seconds + part.seconds, samples=len(dataset.train))
            accuracy = _accuracy(dataset.test, device_params, ranks, net)
            finished.append((epoch, accuracy))
            say(
                f"epoch {epoch.number}: {epoch.seconds:.2f} s, {epoch.samples / epoch.seconds:,.0f} samples/s, "
                f"loss {epoch.loss:.3f}, test accuracy {accuracy:.4f}"
            )
            if draw and ranks.rank == 0:
                draw(f"{num_devices} x {devices[0].device_type}", [accuracy for _, accuracy in finished])
            if epoch.number % max(1, checkpoint_every) == 0 or epoch.number == num_epochs:
                save(epoch.number - 1, len(dataset.train), 0.0)
            seconds, started = 0.0, time.perf_counter()
    except KeyboardInterrupt:
        if ranks.size > 1:
            raise  # the other ranks may be in another step
        # Perhaps some replicas have made the step and others have not.
        for params in device_params[1:]:
            for first, own in zip(device_params[0], params):
                first.copyto(own)
        stopped = True
        say(f"stopped by Ctrl-C after {len(finished)} of {num_epochs} epochs")
    bits = ranks.gather([zlib.crc32(param.asnumpy()) for param in device_params[0]])
    equal = in_sync(device_params) and all(each == bits[0] for each in bits)
    processes = f" in each of {plural(ranks.size, 'process')}" if ranks.size > 1 else ""
    say(f"trained on {', '.join(map(str, devices))}{processes}; replicas in sync: {equal}")
    if saved:
        saved.wait()
    history = History(devices, device_params, [epoch for epoch, _ in finished], [accuracy for _, accuracy in finished])
    if stopped and not hasattr(sys, "ps1"):  # which every interactive Python has
        raise Interrupted(history)
    return history


def _ranks(world: Optional[World]) -> World:
    if world is not None and not hasattr(world, "agree"):
        raise TypeError(f"world must be what mxdp.world() returns, not {world!r}")
    return world or World()


def _accuracy(test: Split, device_params: Sequence[Params], ranks: World, net: BoundNet) -> float:
    """:func:`evaluate`, each rank on its own part."""
    own = ranks.shard(len(test))
    part = Split(test.X[own], test.y[own])
    right = round(evaluate(part, device_params, net=net) * len(part)) if len(part) else 0
    return float(sum(ranks.gather(right)) / len(test))
