"""``mxdp.train``, from top to bottom: load, or continue from a checkpoint; train an epoch, evaluate, report, save."""

from __future__ import annotations

import statistics
import sys
import time
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from mxdp.backend import Device, HostArray, NDArray
from mxdp.collectives import GradientSync
from mxdp.collectives.shards import ShardedSync
from mxdp.collectives.sync import Sync
from mxdp.datasets import Dataset, Split
from mxdp.datasets.minibatches import Stream
from mxdp.errors import plural
from mxdp.processes import Ranks, World
from mxdp.processes.world import ranks_of
from mxdp.scratch import Function, Params, cross_entropy, evaluate, get_params, in_sync, lenet
from mxdp.timing import Timer
from mxdp.training.graph import BoundNet
from mxdp.training.setup import Arguments, Epoch, Setup
from mxdp.training.step import TrainStep


@dataclass(frozen=True)
class History:
    """The result of :func:`train`: the replicas, and for each finished epoch its times and its test accuracy."""

    devices: List[Device]
    device_params: List[List[NDArray]]
    epochs: List[Epoch]
    test_accuracies: List[float]

    def __repr__(self) -> str:
        epochs = plural(len(self.epochs), "epoch")
        text = f"{epochs} on {', '.join(map(str, self.devices))}"
        if self.test_accuracies:
            text += f", the last with test accuracy {self.test_accuracies[-1]:.4f}"
        return f"<History: {text}>"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in :func:`train`, outside an interactive Python. ``history`` is what was trained until then."""

    def __init__(self, history: History) -> None:
        super().__init__(f"training stopped by Ctrl-C after {plural(len(history.epochs), 'epoch')}")
        self.history = history


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
    net: Function = lenet,
    loss: Function = cross_entropy,
    params: Optional[Params] = None,
    momentum: float = 0.0,
    shard_optimizer: bool = False,
) -> History:
    """Train LeNet, or your own network, on ``num_devices`` devices, and report a line after each epoch.

    Args:
        num_devices, kind: as :func:`mxdp.devices` takes them.
        batch_size: samples in a step, over all devices together.
        data: a data set, or its name for :func:`mxdp.load`.
        seed: of LeNet's initial parameters and of the order of samples.
        algorithm: of the all-reduce, as :class:`mxdp.GradientSync` takes it.
        world: of several processes (:func:`mxdp.world`): each trains on ``num_devices`` devices of its own and its part
            of every batch; rank 0 reports. MXNet's random numbers, as of dropout, differ by rank (:meth:`World.seed`).
        checkpoint: a folder. The training continues from its newest whole checkpoint there: bit for bit with as many
            processes and devices, else sums may differ in the last bits. The last three are kept. Rank 0 writes them in
            the background; if the disk is full, this is reported and the training goes on.
        checkpoint_every: how often to save, in epochs (0.25: four times an epoch).
        draw: ``draw(label, test_accuracies)`` is called after each epoch on rank 0, as in :func:`mxdp.scratch.train`.
        net, loss: ``net(X, params)`` gives the scores (n, classes) of ``X`` (n, ...), ``loss(scores, y)`` the loss of
            each sample, (n,). They are called once for each shape, and recorded (:mod:`mxdp.training.graph`): so they
            may use no arrays except their arguments' and no numbers of arrays.
        params: the initial parameters of ``net``, float32 arrays, each once: copied to each device; with several ranks,
            rank 0's are used. One that ``net`` doesn't use stays as it is.
        momentum: of SGD, at least 0 and less than 1; each parameter then has a momentum as large as itself.
        shard_optimizer: of k devices in all, each holds 1 / k of the momentum, and updates 1 / k of the parameters
            (:mod:`mxdp.collectives.shards`). Checkpoints are the same, and continue on any number of devices.

    Returns the trained replicas and the finished epochs. Ctrl-C ends the training early: all replicas become copies of
    the first one, with the steps of the unfinished epoch, and checkpoints are finished. An interactive Python, such as
    a notebook, then gets the history as usual. In a script ``Interrupted`` is raised, a KeyboardInterrupt whose
    ``history`` it is: else it would go on with a half-trained network. With several ranks it is raised at once.

    Raises:
        TypeError, ValueError: an argument of another kind, or a number that must be positive and is not; a step with
            fewer samples than devices; an empty split; an unknown name; or a network that can't be recorded.
        BackendError, DataError: devices or data are not available.
        MxdpError: ``checkpoint`` holds another training's; the message says what differs.
    """
    setup = Setup(Arguments(**locals()))  # its fields are named as the arguments above
    ranks = setup.ranks
    devices = setup.devices
    finished = setup.progress.finished
    device_params = [get_params(setup.params, device) for device in devices]
    stopped = False
    try:
        with copied_after_ctrl_c(device_params):
            _epochs(setup, device_params)
    except KeyboardInterrupt:
        if ranks.size > 1:
            raise  # the other ranks may be in another step
        stopped = True
        setup.say(f"stopped by Ctrl-C after {len(finished)} of {num_epochs} epochs")
    processes = f" in each of {plural(ranks.size, 'process')}" if ranks.size > 1 else ""
    equal = _all_in_sync(device_params, ranks)
    setup.say(f"trained on {', '.join(map(str, devices))}{processes}; replicas in sync: {equal}")
    if setup.folder:
        setup.folder.wait()
    epochs = [epoch for epoch, _ in finished]
    accuracies = [accuracy for _, accuracy in finished]
    history = History(devices, device_params, epochs, accuracies)
    if stopped and not hasattr(sys, "ps1"):  # which every interactive Python has
        raise Interrupted(history)
    return history


def _epochs(setup: Setup, device_params: List[List[NDArray]]) -> None:
    """Train and evaluate the epochs that are left."""
    asked = setup.asked
    progress = setup.progress
    finished = progress.finished
    ranks = setup.ranks
    train_set = setup.dataset.train
    sync: Sync
    if asked.shard_optimizer:
        sync = ShardedSync(device_params, world=ranks)
    else:
        sync = GradientSync(device_params, setup.algorithm, world=ranks)
    for params in device_params:
        ranks.broadcast(params)
    step = TrainStep(
        device_params,
        setup.devices,
        asked.lr,
        sync,
        asked.net,
        asked.loss,
        momentum=asked.momentum,
    )
    step.update.load(progress.momenta)
    stream = Stream(train_set, asked.batch_size, asked.seed, *progress.place)
    net = BoundNet(asked.net)
    timer = Timer()
    if len(finished) >= asked.num_epochs:
        setup.say(
            f"nothing is left to train: {plural(len(finished), 'epoch')} of {asked.num_epochs} are finished"
        )
    for number in range(len(finished) + 1, asked.num_epochs + 1):
        started = time.perf_counter()
        done = stream.position % len(train_set)
        with timer:
            for place in setup.places():
                if place <= done:
                    continue  # it was trained before the checkpoint
                losses = train_steps(stream.take(place - done), step, ranks)
                done = place
                if place < len(train_set):
                    seconds = progress.seconds + time.perf_counter() - started
                    setup.save(stream.epoch, place, seconds, device_params[0], step.update)
        seconds = progress.seconds + timer.times[-1]
        progress.seconds = 0.0
        epoch = Epoch(number, seconds, len(train_set), mean_loss(losses, ranks))
        accuracy = accuracy_of_ranks(setup.dataset.test, device_params, ranks, net)
        finished.append((epoch, accuracy))
        setup.say(
            f"epoch {number}: {seconds:.2f} s, {epoch.samples / seconds:,.0f} samples/s, "
            f"loss {epoch.loss:.3f}, test accuracy {accuracy:.4f}"
        )
        if asked.draw and ranks.rank == 0:
            label = f"{asked.num_devices} x {setup.devices[0].device_type}"
            asked.draw(label, [accuracy for _, accuracy in finished])
        if number % max(1, asked.checkpoint_every) == 0 or number == asked.num_epochs:
            setup.save(number - 1, len(train_set), 0.0, device_params[0], step.update)


def train_steps(
    batches: Iterable[Tuple[HostArray, HostArray]],
    step: Callable[[HostArray, HostArray, int], List[NDArray]],
    world: Optional[Ranks] = None,
) -> List[NDArray]:
    """Do ``step(X, y, samples)`` for each batch. The last steps may still run when this returns: only ``step`` waits.

    Returns the losses of the last step, one array for each device that had samples. ``batches`` are those of all ranks
    of ``world``: each trains on its own part, and gives ``step`` the samples of the whole batch.
    """
    ranks = ranks_of(world)
    losses = []
    for X, y in batches:
        part = ranks.shard(len(X))
        losses = step(X[part], y[part], len(X))
        ranks.step_done()
    return losses


def mean_loss(losses: Sequence[NDArray], world: Optional[World] = None) -> float:
    """The mean over all samples of all ranks, in double precision. Waits."""
    here = [float(loss) for shard in losses for loss in shard.asnumpy()]
    of_ranks = ranks_of(world).gather(here)
    return float(statistics.mean(chain(*of_ranks)))


def accuracy_of_ranks(
    test: Split, device_params: Sequence[Params], ranks: World, net: Function
) -> float:
    """:func:`mxdp.evaluate`, each rank on its own part of ``test``. Waits."""
    part = ranks.shard(len(test))
    part_set = Split(test.X[part], test.y[part])
    right = 0
    if len(part_set):
        right = round(evaluate(part_set, device_params, net=net) * len(part_set))
    return float(sum(ranks.gather(right)) / len(test))


def _all_in_sync(device_params: Sequence[Params], ranks: World) -> bool:
    """Whether all replicas of all ranks are equal. Waits."""
    equal = in_sync(device_params)
    checksums = ranks.gather([zlib.crc32(param.asnumpy()) for param in device_params[0]])
    return equal and all(of_rank == checksums[0] for of_rank in checksums)


@contextmanager
def copied_after_ctrl_c(device_params: Sequence[Sequence[NDArray]]) -> Iterator[None]:
    """Around a loop of your own: after Ctrl-C, which may leave only some replicas updated, all become copies of the
    first, and the KeyboardInterrupt goes on. Doesn't wait. Momenta stay as they are: make a new step."""
    try:
        yield
    except KeyboardInterrupt:
        for params in device_params[1:]:
            for first, other in zip(device_params[0], params):
                first.copyto(other)
        raise
