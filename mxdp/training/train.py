"""``mxdp.train``: a network trained on several devices and ranks, epoch by epoch, with reports and checkpoints."""

from __future__ import annotations

import os
import sys
import zlib
from dataclasses import dataclass
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any, Callable, Iterator, List, Optional, Sequence, Union

import numpy as onp

from mxdp.backend import NDArray, check_functions, check_params, mx, np
from mxdp.collectives.tuning import resolve
from mxdp.datasets import Dataset, Split, finite, positive_int, to_train
from mxdp.datasets.records import check_seed
from mxdp.errors import plural
from mxdp.processes import World
from mxdp.processes.world import ranks_of
from mxdp.scratch import Function, Params, cross_entropy, evaluate, in_sync, init_lenet, lenet
from mxdp.training.epochs import train_epochs
from mxdp.training.graph import BoundNet, check_net, name_of
from mxdp.training.history import Epoch, History, Interrupted, copied_after_ctrl_c
from mxdp.training.resume import Progress
from mxdp.training.update import check_momentum


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
        data: a data set, or the name of one for :func:`mxdp.load`.
        seed: of LeNet's initial parameters and of the order of samples.
        algorithm: of the all-reduce, as :class:`mxdp.GradientSync` takes it.
        world: of several processes (:func:`mxdp.world`): each trains on ``num_devices`` devices of its own and its part
            of every batch; rank 0 reports. MXNet's random numbers, as of dropout, differ by rank (:meth:`World.seed`).
        checkpoint: a folder. If it holds checkpoints of this training, the training continues from the newest that is
            whole: bit for bit with as many processes and devices, else with sums that may differ in the last bits.
            The last three are kept. Rank 0 writes them in the background; if the disk is full, this is reported and
            the training goes on.
        checkpoint_every: epochs from one checkpoint to the next, or the part of an epoch's steps (0.25: four an epoch).
        draw: ``draw(label, test_accuracies)`` is called after each epoch on rank 0, as in :func:`mxdp.scratch.train`.
        net, loss: ``net(X, params)`` gives the scores (n, classes) of ``X`` (n, ...), ``loss(scores, y)`` the loss of
            each sample, (n,). They may call other functions, but use no arrays except their arguments' and no numbers
            of arrays: they are called once for each shape, and recorded (:mod:`mxdp.training.graph`).
        params: the initial parameters of ``net``, float32 arrays, each once, which are copied; rank 0's count. One
            that ``net`` doesn't use stays as it is.
        momentum: of SGD, at least 0 and less than 1; each parameter then has a momentum as large as itself.
        shard_optimizer: of k devices in all, each holds 1 / k of the momentum, and updates 1 / k of the parameters
            (:mod:`mxdp.collectives.shards`). Checkpoints are the same, and continue on any number of devices.

    Returns:
        The trained replicas and the finished epochs.

    Ctrl-C ends the training early. All replicas become copies of the first one, with the steps of the unfinished
    epoch, and checkpoints are finished. An interactive Python, such as a notebook, then gets the history as usual. In
    a script ``Interrupted`` is raised, a KeyboardInterrupt whose ``history`` it is: else the script would go on with a
    half-trained network. With several ranks the KeyboardInterrupt is raised at once.

    Raises:
        TypeError, ValueError: an argument of another kind, a number that must be positive and is not, a step with fewer
            samples than devices, an empty split, an unknown name, or a network that can't be recorded.
        BackendError, DataError: devices or data are not available.
        MxdpError: ``checkpoint`` holds another training's checkpoint; the message says what differs.
    """
    return _Training(**locals()).run()


@dataclass
class _Training:
    """What :func:`train` was given, and what it does with it."""

    num_devices: int
    batch_size: int
    lr: float
    num_epochs: int
    kind: str
    data: Union[str, Dataset]
    seed: int
    algorithm: str
    report: Callable[[str], Any]
    world: Optional[World]
    checkpoint: Optional[Union[str, Path]]
    checkpoint_every: float
    draw: Optional[Callable[[str, List[float]], Any]]
    net: Function
    loss: Function
    params: Optional[Params]
    momentum: float
    shard_optimizer: bool

    def __post_init__(self) -> None:
        self.ranks = ranks_of(self.world)
        self.ranks.together(
            self._prepare
        )  # what only one rank lacks, such as a file or a GPU, must not hang the others
        self.ranks.seed()

    def _prepare(self) -> None:
        """Check the arguments, and find the devices, the data and the initial parameters."""
        self._check()
        self.say = self.report if self.ranks.rank == 0 else lambda line: None
        self.devices = self.ranks.devices(self.num_devices, self.kind)
        in_all = self.num_devices * self.ranks.size
        if self.batch_size < in_all:
            raise ValueError(
                f"batch_size {self.batch_size} gives {in_all} devices less than a sample each: use a larger batch or "
                "fewer devices"
            )
        self.dataset = to_train(self.data)
        self.initial = self._initial()

    def run(self) -> History:
        progress = self._progress()
        device_params = progress.replicas(self.devices)
        epochs = train_epochs(
            self.dataset.train,
            device_params,
            self.devices,
            self.batch_size,
            self.lr,
            seed=self.seed,
            algorithm=progress.algorithm,
            world=self.ranks,
            start=progress.start,
            between=progress.between,
            net=self.net,
            loss=self.loss,
            momentum=self.momentum,
            shard_optimizer=self.shard_optimizer,
            begin=progress.begin,
        )
        stopped = False
        try:
            with copied_after_ctrl_c(device_params):
                self._epochs(progress, epochs, device_params)
        except KeyboardInterrupt:
            if self.ranks.size > 1:
                raise  # the other ranks may be in another step
            stopped = True
            self.say(f"stopped by Ctrl-C after {len(progress.finished)} of {self.num_epochs} epochs")
        self._compare(device_params)
        progress.wait()
        finished = progress.finished
        history = History(self.devices, device_params, [each for each, _ in finished], [share for _, share in finished])
        if stopped and not hasattr(sys, "ps1"):  # which every interactive Python has
            raise Interrupted(history)
        return history

    def _check(self) -> None:
        positive_int("batch_size", self.batch_size)
        positive_int("num_epochs", self.num_epochs)
        check_seed("seed", self.seed)
        finite("lr", self.lr, above=0)
        check_momentum(self.momentum)
        if self.shard_optimizer and not self.momentum:
            raise ValueError(
                "shard_optimizer needs a state to cut, and SGD without momentum has none: give it a momentum"
            )
        if self.shard_optimizer and self.algorithm != "auto":
            raise ValueError(
                f"shard_optimizer sums in its own way, without algorithm {self.algorithm!r}: leave one of the two out"
            )
        every = self.checkpoint_every
        if not isinstance(every, Real) or not (0 < every < 1 or (every >= 1 and every % 1 == 0)):
            raise ValueError(f"checkpoint_every is a whole number of epochs, or a part of one, not {every!r}")
        if not isinstance(self.checkpoint, (str, os.PathLike, type(None))):
            raise TypeError(f"checkpoint must be the path of a folder, not {self.checkpoint!r}")
        check_functions(report=self.report, draw=self.draw or print, net=self.net, loss=self.loss)

    def _initial(self) -> Params:
        """The parameters of a new training, with which ``net`` and ``loss`` are tried on two samples."""
        params = init_lenet(self.seed) if self.params is None and self.net is lenet else self.params
        if not isinstance(params, (list, tuple)) or not params or not all(map(_is_float32, params)):
            raise TypeError("params must be a list of float32 arrays of MXNet's np: net's initial parameters")
        check_params(params)
        X, y = self.dataset.train.X[:2], self.dataset.train.y[:2]
        first = [param.as_in_ctx(self.devices[0]) for param in params]
        check_net(self.net, self.loss, first, X, y, len(self.dataset.classes))
        return params

    def _progress(self) -> Progress:
        """Compare the ranks' arguments, and look for checkpoints."""
        ranks, dataset, params = self.ranks, self.dataset, self.initial
        this = {
            "the data set": f"{dataset.name} of {len(dataset.train)} pictures, checksum {dataset.checksum()}",
            "batch_size": self.batch_size,
            "lr": self.lr,
            "seed": self.seed,
            "net": name_of(self.net),
            "loss": name_of(self.loss),
            **({"momentum": self.momentum} if self.momentum else {}),  # older checkpoints know none
            "parameters": ", ".join(str(param.shape) for param in params),
        }
        ranks.agree(
            {
                "mxdp, MXNet, NumPy": [metadata.version("mxdp"), mx.__version__, onp.__version__],
                **this,
                "num_devices": self.num_devices,
                "num_epochs": self.num_epochs,
                "algorithm": self.algorithm,
                "momentum": self.momentum,
                "shard_optimizer": self.shard_optimizer,
                "checkpoints": self.checkpoint is not None and self.checkpoint_every,
            }
        )
        replicas = (
            f"{plural(ranks.size, 'process')} of {plural(self.num_devices, 'device')}, algorithm {self.algorithm}"
        )
        header = {"training": this, "replicas": replicas}
        folder, every, samples = self.checkpoint, self.checkpoint_every, len(dataset.train)
        progress = Progress(params, self.algorithm, samples, self.batch_size, header, folder, every, ranks, self.say)
        chosen, *_ = resolve(progress.algorithm, self.devices, [param.size for param in params], itemsize=4)
        progress.algorithm = ranks.gather(chosen)[0]
        return progress

    def _epochs(self, progress: Progress, epochs: Iterator[Epoch], device_params: List[List[NDArray]]) -> None:
        net, number = BoundNet(self.net), len(progress.finished)
        if number >= self.num_epochs:
            self.say(f"nothing is left to train: {plural(number, 'epoch')} of {self.num_epochs} are finished")
        for _, part in zip(range(number, self.num_epochs), epochs):
            accuracy = _accuracy(self.dataset.test, device_params, self.ranks, net)
            epoch = progress.count(part, accuracy)
            self.say(
                f"epoch {epoch.number}: {epoch.seconds:.2f} s, {epoch.samples / epoch.seconds:,.0f} samples/s, "
                f"loss {epoch.loss:.3f}, test accuracy {accuracy:.4f}"
            )
            if self.draw and self.ranks.rank == 0:
                label = f"{self.num_devices} x {self.devices[0].device_type}"
                self.draw(label, [accuracy for _, accuracy in progress.finished])
            progress.save(self.num_epochs)

    def _compare(self, device_params: List[List[NDArray]]) -> None:
        """Say whether all replicas of all ranks are equal."""
        ranks = self.ranks
        equal = in_sync(device_params)  # waits
        bits = ranks.gather([zlib.crc32(param.asnumpy()) for param in device_params[0]])
        equal = equal and all(each == bits[0] for each in bits)
        processes = f" in each of {plural(ranks.size, 'process')}" if ranks.size > 1 else ""
        self.say(f"trained on {', '.join(map(str, self.devices))}{processes}; replicas in sync: {equal}")


def _is_float32(param: Any) -> bool:
    return isinstance(param, np.ndarray) and onp.dtype(param.dtype) == onp.float32


def _accuracy(test: Split, device_params: Sequence[Params], ranks: World, net: BoundNet) -> float:
    """:func:`evaluate`, each rank on its own part."""
    own = ranks.shard(len(test))
    part = Split(test.X[own], test.y[own])
    right = round(evaluate(part, device_params, net=net) * len(part)) if len(part) else 0
    return float(sum(ranks.gather(right)) / len(test))
