"""What a training leaves: its epochs, and the replicas, also after Ctrl-C."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import Iterator, List, Sequence

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
