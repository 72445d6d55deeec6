"""The book's ResNet-18 for small pictures, as a gluon network. Loads MXNet: only ``work`` imports it."""

from __future__ import annotations

from random import Random
from typing import Any

from mxdp import process
from mxdp.backend import Device, gluon, np

nn = gluon.nn


def begin_anywhere(device: Device, random: Random) -> None:
    """Go on to a random place in the turn of temporary space. Doesn't wait.

    All CPU devices use the same copies of it, one after the other (:mod:`mxdp.process`), and a hybrid network keeps its
    own: where an operator of the second device gets a copy that the first one's backward pass still needs, the step
    takes one and a half times as long. It is a matter of where the turn stands, which would be the same in every
    process: so a round of few steps begins somewhere else.
    """
    small = np.ones((2, 2), ctx=device)
    for _ in range(random.randrange(process.SMALL_TEMP_COPY)):
        np.dot(small, small)  # takes one copy


class Residual(gluon.HybridBlock):  # type: ignore[misc]
    """Two 3 x 3 convolutions beside a shortcut, which is a 1 x 1 convolution where the shape changes."""

    def __init__(self, channels: int, strides: int = 1, changes: bool = False) -> None:
        super().__init__()
        self.body, self.shortcut = nn.HybridSequential(), None
        self.body.add(
            nn.Conv2D(channels, kernel_size=3, padding=1, strides=strides),
            nn.BatchNorm(),
            nn.Activation("relu"),
            nn.Conv2D(channels, kernel_size=3, padding=1),
            nn.BatchNorm(),
        )
        if changes:
            self.shortcut = nn.Conv2D(channels, kernel_size=1, strides=strides)

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        """The same for a symbol and for an array."""
        return F.npx.activation(self.body(x) + (self.shortcut(x) if self.shortcut else x), act_type="relu")


def resnet18(width: int = 64) -> gluon.HybridBlock:
    """ResNet-18 for pictures (n, 1, 28, 28) and 10 classes, not initialised; 11.2 million parameters.

    ``width``: channels of the first convolution; fewer make a smaller network, for tests.

    Source: Dive into Deep Learning, "Concise Implementation for Multiple GPUs".
    """
    net = nn.HybridSequential()
    net.add(nn.Conv2D(width, kernel_size=3, strides=1, padding=1), nn.BatchNorm(), nn.Activation("relu"))
    for channels in (width, 2 * width, 4 * width, 8 * width):
        first = channels == width
        net.add(Residual(channels, 1 if first else 2, changes=not first), Residual(channels))
    net.add(nn.GlobalAvgPool2D(), nn.Dense(10))
    return net
