"""The arguments of :func:`mxdp.train`: checked, compared over ranks, with devices, data and a checkpoint's state."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass, field
from importlib import metadata
from numbers import Real
from pathlib import Path
from typing import Any, Callable, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import HostArray, check_functions, check_params, mx, np, upload
from mxdp.collectives.tuning import plan_for
from mxdp.datasets import Dataset, finite, positive_int, to_train
from mxdp.datasets.records import check_seed
from mxdp.errors import plural
from mxdp.processes import CheckpointFolder, World
from mxdp.processes.checkpoint_file import Arrays, Facts
from mxdp.processes.world import ranks_of
from mxdp.scratch import Function, Params, init_lenet, lenet
from mxdp.training.record import check_net, name_of
from mxdp.training.update import Update, check_momentum


@dataclass(frozen=True)
class Epoch:
    """``seconds`` for ``samples`` samples, fenced on both sides; ``loss`` is the mean over the last step."""

    number: int
    seconds: float
    samples: int
    loss: float


@dataclass(frozen=True)
class Arguments:
    """The arguments of :func:`mxdp.train`, whose docstring says what they are."""

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


@dataclass
class Progress:
    """What a training has done so far."""

    finished: List[Tuple[Epoch, float]] = field(default_factory=list)
    """The finished epochs, each with its test accuracy."""
    place: Tuple[int, int] = (0, 0)
    """The stream's epoch and position."""
    seconds: float = 0.0
    """What the unfinished epoch has taken."""
    momenta: Sequence[HostArray] = ()


class Setup:
    """What a training starts with. Every rank makes one, and calls it alike.

    ``asked``: the arguments as they are given. ``params`` are the initial parameters, ``algorithm`` is the all-reduce's
    name, no longer ``"auto"``, and ``steps`` counts those of an epoch.
    """

    def __init__(self, asked: Arguments) -> None:
        self.asked = asked
        self.progress = Progress()
        self.algorithm = asked.algorithm
        self.ranks = ranks_of(asked.world)
        # What only one rank lacks, such as a file or a GPU, must not hang the others.
        self.ranks.together(self._prepare)
        self.ranks.seed()
        self.header = self._agree()
        self.folder: Optional[CheckpointFolder] = None
        if asked.checkpoint is not None:
            self.folder = CheckpointFolder(asked.checkpoint, world=self.ranks, report=self.say)
            self._continue(self.folder)
        sizes = [param.size for param in self.params]
        chosen, _ = plan_for(self.algorithm, self.devices, sizes, itemsize=4)
        self.algorithm = self.ranks.gather(chosen)[0]

    def say(self, line: str) -> None:
        """Report a line, on rank 0."""
        if self.ranks.rank == 0:
            self.asked.report(line)

    def places(self) -> List[int]:
        """The positions in an epoch at which a checkpoint is due, and its end."""
        due = self.asked.checkpoint_every * self.steps
        places = []
        for step in range(1, self.steps):
            if step // due > (step - 1) // due:
                places.append(step * self.asked.batch_size)
        return [*places, len(self.dataset.train)]

    def save(
        self, epoch: int, position: int, seconds: float, params: Params, update: Update
    ) -> None:
        """Write a checkpoint of this place, ``seconds`` after the epoch's start, if there is a folder for it."""
        if not self.folder:
            return
        finished = [(asdict(each), accuracy) for each, accuracy in self.progress.finished]
        facts = {
            "epoch": epoch,
            "position": position,
            "step": epoch * self.steps + math.ceil(position / self.asked.batch_size),
            "seconds": seconds,
            "finished": finished,
            "algorithm": self.algorithm,
        }
        arrays = {f"parameters/{number}": param for number, param in enumerate(params)}
        for number, momentum in enumerate(update.state()):
            arrays[f"momentum/{number}"] = momentum
        self.folder.write(self.header, arrays, facts)

    def _prepare(self) -> None:
        """Check the arguments, and find the devices, the data and the initial parameters."""
        asked = self.asked
        _check(asked)
        self.devices = self.ranks.devices(asked.num_devices, asked.kind)
        in_all = asked.num_devices * self.ranks.size
        if asked.batch_size < in_all:
            raise ValueError(
                f"batch_size {asked.batch_size} gives {in_all} devices less than a sample each: use a larger batch or "
                "fewer devices"
            )
        self.dataset = to_train(asked.data)
        self.steps = math.ceil(len(self.dataset.train) / asked.batch_size)
        self.params = _initial(asked)
        X = self.dataset.train.X[:2]
        y = self.dataset.train.y[:2]
        first = [param.as_in_ctx(self.devices[0]) for param in self.params]
        check_net(asked.net, asked.loss, first, X, y, len(self.dataset.classes))

    def _agree(self) -> Facts:
        """Compare the ranks' arguments. Returns what a checkpoint says of the training."""
        asked = self.asked
        dataset = self.dataset
        pictures = f"{dataset.name} of {len(dataset.train)} pictures"
        training = {
            "the data set": f"{pictures}, checksum {dataset.checksum()}",
            "batch_size": asked.batch_size,
            "lr": asked.lr,
            "seed": asked.seed,
            "net": name_of(asked.net),
            "loss": name_of(asked.loss),
        }
        if asked.momentum:  # older checkpoints know none
            training["momentum"] = asked.momentum
        training["parameters"] = ", ".join(str(param.shape) for param in self.params)
        self.ranks.agree(
            {
                "mxdp, MXNet, NumPy": [metadata.version("mxdp"), mx.__version__, onp.__version__],
                **training,
                "num_devices": asked.num_devices,
                "num_epochs": asked.num_epochs,
                "algorithm": asked.algorithm,
                "momentum": asked.momentum,
                "shard_optimizer": asked.shard_optimizer,
                "checkpoints": asked.checkpoint is not None and asked.checkpoint_every,
            }
        )
        processes = plural(self.ranks.size, "process")
        devices = plural(asked.num_devices, "device")
        return {
            "training": training,
            "replicas": f"{processes} of {devices}, algorithm {asked.algorithm}",
        }

    def _continue(self, folder: CheckpointFolder) -> None:
        """Take the folder's lock, and go on from its newest whole checkpoint, if it has one."""
        folder.lock()
        newest = folder.read(self.header, self._stood)
        if newest is None:
            return
        arrays, facts, same_replicas = newest
        self.progress = self._stood(arrays, facts)
        if same_replicas:
            # "auto" depends on the cores of rank 0. Its choice decides the last bits, so it belongs to the checkpoint.
            self.algorithm = facts.get("algorithm", self.algorithm)
        numbers = range(len(self.params))
        self.params = [upload(arrays[f"parameters/{number}"], mx.cpu()) for number in numbers]

    def _stood(self, arrays: Arrays, facts: Facts) -> Progress:
        """Where the training stood. Raises a KeyError, TypeError or ValueError if this training can't have written
        it."""
        kinds = dict.fromkeys(["parameters", *(name.split("/")[0] for name in arrays)])
        for kind in kinds:
            for number, param in enumerate(self.params):
                array = arrays[f"{kind}/{number}"]
                if array.shape != param.shape or array.dtype != onp.float32:
                    raise ValueError(f"{kind}/{number} has another shape or dtype")
        epoch = int(facts["epoch"])
        position = int(facts["position"])
        seconds = float(facts["seconds"])
        finished = [(Epoch(**part), float(accuracy)) for part, accuracy in facts["finished"]]
        if epoch < 0 or not 0 <= position <= len(self.dataset.train):
            raise ValueError(f"epoch {epoch} has no position {position}")
        names = [f"momentum/{number}" for number in range(len(self.params))]
        momenta = [arrays[name] for name in names if name in arrays]
        return Progress(finished, (epoch, position), seconds, momenta)


def _check(asked: Arguments) -> None:
    if hasattr(asked.net, "collect_params"):
        raise TypeError(
            "net is a network of gluon's: train it by mxdp.Trainer (docs/gluon.md). mxdp.train takes a function "
            "net(X, params)"
        )
    positive_int("batch_size", asked.batch_size)
    positive_int("num_epochs", asked.num_epochs)
    check_seed("seed", asked.seed)
    finite("lr", asked.lr, above=0)
    check_momentum(asked.momentum)
    if asked.shard_optimizer and not asked.momentum:
        raise ValueError(
            "shard_optimizer needs a state to cut, and SGD without momentum has none: give it a momentum"
        )
    if asked.shard_optimizer and asked.algorithm != "auto":
        raise ValueError(
            f"shard_optimizer sums in its own way, without algorithm {asked.algorithm!r}: leave one of the two out"
        )
    every = asked.checkpoint_every
    if not isinstance(every, Real) or not (0 < every < 1 or (every >= 1 and every % 1 == 0)):
        raise ValueError(
            f"checkpoint_every is a whole number of epochs, or a part of one, not {every!r}"
        )
    if not isinstance(asked.checkpoint, (str, os.PathLike, type(None))):
        raise TypeError(f"checkpoint must be the path of a folder, not {asked.checkpoint!r}")
    check_functions(report=asked.report, draw=asked.draw or print, net=asked.net, loss=asked.loss)


def _initial(asked: Arguments) -> Params:
    """The initial parameters. Raises a TypeError or ValueError if they can't be trained."""
    params = asked.params
    if params is None and asked.net is lenet:
        return init_lenet(asked.seed)
    given = params if isinstance(params, (list, tuple)) else []
    of_float32 = [isinstance(x, np.ndarray) and onp.dtype(x.dtype) == onp.float32 for x in given]
    if not given or not all(of_float32):
        raise TypeError(
            "params must be a list of float32 arrays of MXNet's np: net's initial parameters"
        )
    check_params(given)
    return given
