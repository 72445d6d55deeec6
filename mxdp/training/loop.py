"""``mxdp.train``: load, or continue from a checkpoint; train an epoch, evaluate, report, save; compare the replicas."""

from __future__ import annotations

import math
import os
import sys
import time
import zlib
from dataclasses import asdict, replace
from importlib import metadata
from numbers import Real
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Callable, List, Optional, Tuple, Union

import numpy as onp

from mxdp.backend import HostArray, NDArray, check_functions, check_params, mx, np, upload
from mxdp.collectives.tuning import resolve
from mxdp.datasets import Dataset, finite, positive_int, to_train
from mxdp.datasets.records import check_seed
from mxdp.errors import plural
from mxdp.processes import CheckpointFolder, World
from mxdp.processes.checkpoint_file import Arrays, Facts
from mxdp.processes.world import ranks_of
from mxdp.scratch import Function, Params, cross_entropy, get_params, in_sync, init_lenet, lenet
from mxdp.training.epochs import Epoch, History, Interrupted, accuracy_of_ranks, copied_after_ctrl_c, train_epochs
from mxdp.training.graph import BoundNet, check_net, name_of
from mxdp.training.step import TrainStep
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


class _Training(SimpleNamespace):
    """What :func:`train` was given, and where the training stands. Every rank has one, and calls it alike."""

    params: Any
    algorithm: str
    checkpoint_every: float

    def run(self) -> History:
        self.ranks = ranks_of(self.world)
        # What only one rank lacks, such as a file or a GPU, must not hang the others.
        self.ranks.together(self._prepare)
        self.ranks.seed()
        self.header = self._agree()
        self.finished: List[Tuple[Epoch, float]] = []  # each with its test accuracy
        self.start, self.before = (0, 0), 0.0  # the stream's place; seconds of the unfinished epoch
        self.momenta: List[HostArray] = []
        self.folder: Any = None
        if self.checkpoint is not None:
            self.folder = CheckpointFolder(self.checkpoint, world=self.ranks, report=self.say)
            self._continue()
        chosen, *_ = resolve(self.algorithm, self.devices, [param.size for param in self.params], itemsize=4)
        self.algorithm = self.ranks.gather(chosen)[0]
        device_params = [get_params(self.params, device) for device in self.devices]
        self.first, self.started, stopped = device_params[0], time.perf_counter(), False
        try:
            with copied_after_ctrl_c(device_params):
                self._epochs(device_params)
        except KeyboardInterrupt:
            if self.ranks.size > 1:
                raise  # the other ranks may be in another step
            stopped = True
            self.say(f"stopped by Ctrl-C after {len(self.finished)} of {self.num_epochs} epochs")
        self._compare(device_params)
        if self.folder:
            self.folder.wait()
        epochs, accuracies = [epoch for epoch, _ in self.finished], [share for _, share in self.finished]
        history = History(self.devices, device_params, epochs, accuracies)
        if stopped and not hasattr(sys, "ps1"):  # which every interactive Python has
            raise Interrupted(history)
        return history

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
        self.steps = math.ceil(len(self.dataset.train) / self.batch_size)  # of an epoch
        if self.params is None and self.net is lenet:
            self.params = init_lenet(self.seed)
        given = self.params if isinstance(self.params, (list, tuple)) else []
        if not given or not all(isinstance(x, np.ndarray) and onp.dtype(x.dtype) == onp.float32 for x in given):
            raise TypeError("params must be a list of float32 arrays of MXNet's np: net's initial parameters")
        check_params(self.params)
        X, y = self.dataset.train.X[:2], self.dataset.train.y[:2]
        first = [param.as_in_ctx(self.devices[0]) for param in self.params]
        check_net(self.net, self.loss, first, X, y, len(self.dataset.classes))

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

    def _agree(self) -> Facts:
        """Compare the ranks' arguments. Returns what a checkpoint says of the training."""
        dataset = self.dataset
        this = {
            "the data set": f"{dataset.name} of {len(dataset.train)} pictures, checksum {dataset.checksum()}",
            "batch_size": self.batch_size,
            "lr": self.lr,
            "seed": self.seed,
            "net": name_of(self.net),
            "loss": name_of(self.loss),
            **({"momentum": self.momentum} if self.momentum else {}),  # older checkpoints know none
            "parameters": ", ".join(str(param.shape) for param in self.params),
        }
        others = ("num_devices", "num_epochs", "algorithm", "momentum", "shard_optimizer")
        self.ranks.agree(
            {
                "mxdp, MXNet, NumPy": [metadata.version("mxdp"), mx.__version__, onp.__version__],
                **this,
                **{name: getattr(self, name) for name in others},
                "checkpoints": self.checkpoint is not None and self.checkpoint_every,
            }
        )
        processes, devices = plural(self.ranks.size, "process"), plural(self.num_devices, "device")
        return {"training": this, "replicas": f"{processes} of {devices}, algorithm {self.algorithm}"}

    def _continue(self) -> None:
        """Take the folder's lock, and go on from its newest whole checkpoint, if it has one."""
        self.folder.lock()
        found = self.folder.read(self.header, self._place)
        if found is None:
            return
        arrays, facts, same_replicas = found
        self.start, self.before, self.finished = self._place(arrays, facts)
        # "auto" depends on the cores of rank 0, and its choice decides the last bits: so it belongs to the checkpoint.
        self.algorithm = facts.get("algorithm", self.algorithm) if same_replicas else self.algorithm
        self.params = [upload(arrays.pop(f"parameters/{number}"), mx.cpu()) for number in range(len(self.params))]
        names = sorted(arrays, key=lambda name: int(name.split("/")[1]))
        self.momenta = [arrays.pop(name) for name in names if name.startswith("momentum/")]

    def _place(self, arrays: Arrays, facts: Facts) -> Tuple[Tuple[int, int], float, List[Tuple[Epoch, float]]]:
        """Where the training stood: the stream's epoch and position, seconds of the unfinished epoch, finished ones.

        Raises:
            KeyError, TypeError, ValueError: this training can't have written it.
        """
        for kind in dict.fromkeys(["parameters", *(name.split("/")[0] for name in arrays)]):
            for number, param in enumerate(self.params):
                array = arrays[f"{kind}/{number}"]
                if array.shape != param.shape or array.dtype != onp.float32:
                    raise ValueError(f"{kind}/{number} has another shape or dtype")
        epoch, position, seconds = int(facts["epoch"]), int(facts["position"]), float(facts["seconds"])
        finished = [(Epoch(**part), float(accuracy)) for part, accuracy in facts["finished"]]
        if epoch < 0 or not 0 <= position <= len(self.dataset.train):
            raise ValueError(f"epoch {epoch} has no position {position}")
        return (epoch, position), seconds, finished

    def _epochs(self, device_params: List[List[NDArray]]) -> None:
        names = ("seed", "algorithm", "start", "net", "loss", "momentum", "shard_optimizer")
        options = {name: getattr(self, name) for name in names}
        given = self.dataset.train, device_params, self.devices, self.batch_size, self.lr
        epochs = train_epochs(*given, world=self.ranks, between=self._between, begin=self._begin, **options)
        net, before, samples = BoundNet(self.net), len(self.finished), len(self.dataset.train)
        if before >= self.num_epochs:
            self.say(f"nothing is left to train: {plural(before, 'epoch')} of {self.num_epochs} are finished")
        for number, part in zip(range(before + 1, self.num_epochs + 1), epochs):
            accuracy = accuracy_of_ranks(self.dataset.test, device_params, self.ranks, net)
            epoch = replace(part, seconds=self.before + part.seconds, samples=samples)
            self.finished.append((epoch, accuracy))
            self.say(
                f"epoch {epoch.number}: {epoch.seconds:.2f} s, {epoch.samples / epoch.seconds:,.0f} samples/s, "
                f"loss {epoch.loss:.3f}, test accuracy {accuracy:.4f}"
            )
            if self.draw and self.ranks.rank == 0:
                label = f"{self.num_devices} x {self.devices[0].device_type}"
                self.draw(label, [accuracy for _, accuracy in self.finished])
            if number % max(1, self.checkpoint_every) == 0 or number == self.num_epochs:
                self._save(number - 1, samples, 0.0)
            self.before, self.started = 0.0, time.perf_counter()

    def _begin(self, step: TrainStep) -> None:
        """Give the step the momentum that was saved. Checkpoints are of its momentum, too."""
        self.update = step.update
        step.update.load(self.momenta)

    def _between(self, epoch: int, position: int) -> None:
        """Write a checkpoint between two steps, if one is due there."""
        step, each = position // self.batch_size, self.checkpoint_every * self.steps
        if self.checkpoint_every < 1 and step // each > (step - 1) // each:
            self._save(epoch, position, self.before + time.perf_counter() - self.started)

    def _save(self, epoch: int, position: int, seconds: float) -> None:
        if not self.folder:
            return
        facts = {
            "epoch": epoch,
            "position": position,
            "step": epoch * self.steps + math.ceil(position / self.batch_size),
            "seconds": seconds,
            "finished": [(asdict(epoch), accuracy) for epoch, accuracy in self.finished],
            "algorithm": self.algorithm,
        }
        arrays = {f"parameters/{number}": param for number, param in enumerate(self.first)}
        arrays.update((f"momentum/{number}", x) for number, x in enumerate(self.update.state()))
        self.folder.write(self.header, arrays, facts)

    def _compare(self, device_params: List[List[NDArray]]) -> None:
        """Say whether all replicas of all ranks are equal."""
        ranks = self.ranks
        equal = in_sync(device_params)  # waits
        bits = ranks.gather([zlib.crc32(param.asnumpy()) for param in device_params[0]])
        equal = equal and all(each == bits[0] for each in bits)
        processes = f" in each of {plural(ranks.size, 'process')}" if ranks.size > 1 else ""
        self.say(f"trained on {', '.join(map(str, self.devices))}{processes}; replicas in sync: {equal}")
