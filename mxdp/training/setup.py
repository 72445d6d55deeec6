"""The arguments of :func:`mxdp.train`: checked, compared over ranks, with devices, data and a checkpoint's state."""

from __future__ import annotations

import math
import os
from dataclasses import asdict, dataclass
from importlib import metadata
from numbers import Real
from types import SimpleNamespace
from typing import Any, List, Tuple

import numpy as onp

from mxdp.backend import HostArray, check_functions, check_params, mx, np, upload
from mxdp.collectives.tuning import plan_for
from mxdp.datasets import finite, positive_int, to_train
from mxdp.datasets.records import check_seed
from mxdp.errors import plural
from mxdp.processes import CheckpointFolder
from mxdp.processes.checkpoint_file import Arrays, Facts
from mxdp.processes.world import ranks_of
from mxdp.scratch import Params, init_lenet, lenet
from mxdp.training.record import check_net, name_of
from mxdp.training.update import Update, check_momentum


@dataclass(frozen=True)
class Epoch:
    """``seconds`` for ``samples`` samples, fenced on both sides; ``loss`` is the mean over the last step."""

    number: int
    seconds: float
    samples: int
    loss: float


class Setup(SimpleNamespace):
    """The arguments of :func:`mxdp.train`, and what it starts with. Every rank makes one, and calls it alike."""

    algorithm: str
    checkpoint_every: float
    params: Any

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        self.ranks = ranks_of(self.world)
        # What only one rank lacks, such as a file or a GPU, must not hang the others.
        self.ranks.together(self._prepare)
        self.ranks.seed()
        self.header = self._agree()
        self.finished: List[Tuple[Epoch, float]] = []  # each with its test accuracy
        self.place, self.seconds = (0, 0), 0.0  # the stream's place; of the unfinished epoch
        self.momenta: List[HostArray] = []
        self.folder: Any = None
        if self.checkpoint is not None:
            self.folder = CheckpointFolder(self.checkpoint, world=self.ranks, report=self.say)
            self._continue()
        chosen, *_ = plan_for(
            self.algorithm, self.devices, [param.size for param in self.params], itemsize=4
        )
        self.algorithm = self.ranks.gather(chosen)[0]

    def say(self, line: str) -> None:
        """Report a line, on rank 0."""
        if self.ranks.rank == 0:
            self.report(line)

    def places(self) -> List[int]:
        """The positions in an epoch at which a checkpoint is due, and its end."""
        due = self.checkpoint_every * self.steps
        within = [step for step in range(1, self.steps) if step // due > (step - 1) // due]
        return [*(step * self.batch_size for step in within), len(self.dataset.train)]

    def save(
        self, epoch: int, position: int, seconds: float, params: Params, update: Update
    ) -> None:
        """Write a checkpoint of this place, ``seconds`` after the epoch's start, if there is a folder for it."""
        if not self.folder:
            return
        facts = {
            "epoch": epoch,
            "position": position,
            "step": epoch * self.steps + math.ceil(position / self.batch_size),
            "seconds": seconds,
            "finished": [(asdict(finished), accuracy) for finished, accuracy in self.finished],
            "algorithm": self.algorithm,
        }
        arrays = {f"parameters/{number}": param for number, param in enumerate(params)}
        arrays.update((f"momentum/{number}", x) for number, x in enumerate(update.state()))
        self.folder.write(self.header, arrays, facts)

    def _prepare(self) -> None:
        """Check the arguments, and find the devices, the data and the initial parameters."""
        self._check()
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
        if not given or not all(
            isinstance(x, np.ndarray) and onp.dtype(x.dtype) == onp.float32 for x in given
        ):
            raise TypeError(
                "params must be a list of float32 arrays of MXNet's np: net's initial parameters"
            )
        check_params(self.params)
        X, y = self.dataset.train.X[:2], self.dataset.train.y[:2]
        first = [param.as_in_ctx(self.devices[0]) for param in self.params]
        check_net(self.net, self.loss, first, X, y, len(self.dataset.classes))

    def _check(self) -> None:
        if hasattr(self.net, "collect_params"):
            raise TypeError(
                "net is a network of gluon's: train it by mxdp.Trainer (docs/gluon.md). mxdp.train takes a function "
                "net(X, params)"
            )
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
            raise ValueError(
                f"checkpoint_every is a whole number of epochs, or a part of one, not {every!r}"
            )
        if not isinstance(self.checkpoint, (str, os.PathLike, type(None))):
            raise TypeError(f"checkpoint must be the path of a folder, not {self.checkpoint!r}")
        check_functions(report=self.report, draw=self.draw or print, net=self.net, loss=self.loss)

    def _agree(self) -> Facts:
        """Compare the ranks' arguments. Returns what a checkpoint says of the training."""
        dataset = self.dataset
        training = {
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
                **training,
                **{name: getattr(self, name) for name in others},
                "checkpoints": self.checkpoint is not None and self.checkpoint_every,
            }
        )
        processes, devices = plural(self.ranks.size, "process"), plural(self.num_devices, "device")
        return {
            "training": training,
            "replicas": f"{processes} of {devices}, algorithm {self.algorithm}",
        }

    def _continue(self) -> None:
        """Take the folder's lock, and go on from its newest whole checkpoint, if it has one."""
        self.folder.lock()
        newest = self.folder.read(self.header, self._stood)
        if newest is None:
            return
        arrays, facts, same_replicas = newest
        self.place, self.seconds, self.finished = self._stood(arrays, facts)
        # "auto" depends on the cores of rank 0, and its choice decides the last bits: so it belongs to the checkpoint.
        self.algorithm = facts.get("algorithm", self.algorithm) if same_replicas else self.algorithm
        self.params = [
            upload(arrays.pop(f"parameters/{number}"), mx.cpu())
            for number in range(len(self.params))
        ]
        names = [f"momentum/{number}" for number in range(len(self.params))]
        self.momenta = [arrays[name] for name in names if name in arrays]

    def _stood(
        self, arrays: Arrays, facts: Facts
    ) -> Tuple[Tuple[int, int], float, List[Tuple[Epoch, float]]]:
        """Where the training stood: the stream's epoch and position, seconds of the unfinished epoch, finished ones.
        Raises a KeyError, TypeError or ValueError if this training can't have written it."""
        for kind in dict.fromkeys(["parameters", *(name.split("/")[0] for name in arrays)]):
            for number, param in enumerate(self.params):
                array = arrays[f"{kind}/{number}"]
                if array.shape != param.shape or array.dtype != onp.float32:
                    raise ValueError(f"{kind}/{number} has another shape or dtype")
        epoch, position, seconds = (
            int(facts["epoch"]),
            int(facts["position"]),
            float(facts["seconds"]),
        )
        finished = [(Epoch(**part), float(accuracy)) for part, accuracy in facts["finished"]]
        if epoch < 0 or not 0 <= position <= len(self.dataset.train):
            raise ValueError(f"epoch {epoch} has no position {position}")
        return (epoch, position), seconds, finished
