"""What a training leaves: its epochs, and the replicas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from mxdp.backend import Device, NDArray
from mxdp.errors import plural


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


class Interrupted(KeyboardInterrupt):
    """Ctrl-C in :func:`train`, outside an interactive Python. ``history`` is what was trained until then."""

    def __init__(self, history: History) -> None:
        super().__init__(f"training stopped by Ctrl-C after {plural(len(history.epochs), 'epoch')}")
        self.history = history
