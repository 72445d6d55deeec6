"""What continues a stopped training: its place, its finished epochs and its parameters, in a folder of checkpoints."""

from __future__ import annotations

import math
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union

import numpy as onp

from mxdp.backend import Device, HostArray, NDArray, mx, upload
from mxdp.processes import CheckpointFolder, World
from mxdp.processes.checkpoint_file import Arrays, Facts
from mxdp.scratch import Params, get_params
from mxdp.training.history import Epoch
from mxdp.training.step import TrainStep


class Progress:
    """The state of a training: at its start, or where the newest whole checkpoint left it. All ranks call it alike.

    Args:
        params, algorithm: of a new training; those of a checkpoint replace them, the algorithm only for as many
            replicas.
        samples, batch_size: of an epoch, and of a step.
        header: what :meth:`CheckpointFolder.read` compares.
        folder: None: nothing is read or written. Its lock is taken now, before the first step.
        every: epochs from one checkpoint to the next, or the part of an epoch's steps.

    Raises:
        MxdpError: the folder holds another training, or another process writes there.
    """

    def __init__(
        self,
        params: Params,
        algorithm: str,
        samples: int,
        batch_size: int,
        header: Dict[str, Any],
        folder: Optional[Union[str, Path]],
        every: float,
        ranks: World,
        report: Callable[[str], Any],
    ) -> None:
        self.algorithm = algorithm
        self.start = (0, 0)
        """The stream's epoch and position."""
        self.finished: List[Tuple[Epoch, float]] = []
        """Epochs, each with its test accuracy."""
        self._params, self._samples, self._batch_size = list(params), samples, batch_size
        self._header, self._every, self._ranks = header, every, ranks
        self._momenta: List[HostArray] = []
        self._before = 0.0  # seconds of the unfinished epoch in an earlier process
        self._folder = None if folder is None else CheckpointFolder(folder, world=ranks, report=report)
        if self._folder:
            self._folder.lock()
            self._continue(self._folder)

    def replicas(self, devices: Sequence[Device]) -> List[List[NDArray]]:
        """The parameters on each device; the clock starts. Checkpoints are of the first replica."""
        device_params = [get_params(self._params, device) for device in devices]
        self._first, self._started = device_params[0], time.perf_counter()
        return device_params

    def begin(self, step: TrainStep) -> None:
        """Give the step the momentum that was saved. Checkpoints are of its momentum, too."""
        self._update = step.update
        step.update.load(self._momenta)

    def between(self, epoch: int, position: int) -> None:
        """Write a checkpoint between two steps, if one is due there."""
        step, each = position // self._batch_size, self._every * self._steps()
        if self._every < 1 and step // each > (step - 1) // each:
            self._write(epoch, position, self._before + time.perf_counter() - self._started)

    def count(self, part: Epoch, accuracy: float) -> Epoch:
        """Note a finished epoch, of which ``part`` was trained in this process. Returns the whole."""
        epoch = replace(part, seconds=self._before + part.seconds, samples=self._samples)
        self.finished.append((epoch, accuracy))
        return epoch

    def save(self, num_epochs: int) -> None:
        """Write a checkpoint after an epoch, if one is due there; one is after the last of ``num_epochs``."""
        number = len(self.finished)
        if number % max(1, self._every) == 0 or number == num_epochs:
            self._write(number - 1, self._samples, 0.0)
        self._before, self._started = 0.0, time.perf_counter()

    def wait(self) -> None:
        """Wait until the last checkpoint is on the disk."""
        if self._folder:
            self._folder.wait()

    def _continue(self, folder: CheckpointFolder) -> None:
        found = folder.read(self._header, self._place)
        if found is None:
            return
        arrays, facts, same_replicas = found
        self.start, self._before, self.finished = self._place(arrays, facts)
        # "auto" depends on the cores of rank 0, and its choice decides the last bits: so it belongs to the checkpoint.
        self.algorithm = facts.get("algorithm", self.algorithm) if same_replicas else self.algorithm
        self._params = [upload(arrays.pop(f"parameters/{number}"), mx.cpu()) for number in range(len(self._params))]
        self._momenta = [arrays.pop(name) for name in sorted(arrays, key=_number) if name.startswith("momentum/")]

    def _place(self, arrays: Arrays, facts: Facts) -> Tuple[Tuple[int, int], float, List[Tuple[Epoch, float]]]:
        """Where the training stood: the stream's place, seconds of the unfinished epoch, and the finished ones.

        Raises:
            KeyError, TypeError, ValueError: this training can't have written it.
        """
        for kind in dict.fromkeys(["parameters", *(name.split("/")[0] for name in arrays)]):
            for number, param in enumerate(self._params):
                array = arrays[f"{kind}/{number}"]
                if array.shape != param.shape or array.dtype != onp.float32:
                    raise ValueError(f"{kind}/{number} has another shape or dtype")
        epoch, position, seconds = int(facts["epoch"]), int(facts["position"]), float(facts["seconds"])
        finished = [(Epoch(**part), float(accuracy)) for part, accuracy in facts["finished"]]
        if epoch < 0 or not 0 <= position <= self._samples:
            raise ValueError(f"epoch {epoch} has no position {position}")
        return (epoch, position), seconds, finished

    def _steps(self) -> int:
        return math.ceil(self._samples / self._batch_size)

    def _write(self, epoch: int, position: int, seconds: float) -> None:
        if not self._folder:
            return
        facts = {
            "epoch": epoch,
            "position": position,
            "step": epoch * self._steps() + math.ceil(position / self._batch_size),
            "seconds": seconds,
            "finished": [(asdict(epoch), accuracy) for epoch, accuracy in self.finished],
            "algorithm": self.algorithm,
        }
        arrays = {f"parameters/{number}": param for number, param in enumerate(self._first)}
        arrays.update((f"momentum/{number}", x) for number, x in enumerate(self._update.state()))
        self._folder.write(self._header, arrays, facts)


def _number(name: str) -> int:
    return int(name.split("/")[1])
