"""What all ways to split a network have in common."""

from __future__ import annotations

from typing import List, Protocol

from mxdp.backend import Batch, NDArray
from mxdp.layers import LayerParams


class Strategy(Protocol):
    """One network on several devices. Nothing here waits but what its own docstring says.

    Made from ``(net, params, input_shape, devices)`` and options of its own; ``params`` are those of
    :func:`mxdp.layers.init`, which it copies or cuts to where it wants them.
    """

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward and backward pass of a batch: the losses (samples,), in the batch's order, on the first device.

        Afterwards the gradients are sums over the whole batch, and tied parameters have equal gradients.
        """

    def update(self, lr: float, batch_size: int) -> None:
        """The same SGD step on every parameter, wherever it lies: ``param -= lr / batch_size * gradient``."""

    def scores(self, X: Batch) -> NDArray:
        """Forward pass alone: (samples, outputs) on the first device."""

    def params(self) -> List[LayerParams]:
        """The parameters, joined where they are cut, as :func:`mxdp.layers.init` lays them out. Waits."""

    def gradients(self) -> List[LayerParams]:
        """The gradients of the last step, laid out likewise. Waits."""

    def in_step(self) -> bool:
        """Are parameters that are tied equal on all devices, bit for bit? Waits."""

    def bytes_moved(self, batch_size: int) -> int:
        """Bytes that one step of ``batch_size`` samples sends between devices, all messages together."""

    def param_bytes(self) -> List[int]:
        """Bytes of parameters on each device (gradients are as many again)."""

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Bytes that stay on each device from step to step: parameters, gradients, and other places that are kept."""

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted: the most bytes that :meth:`step` has in use at a time on each device, besides those that stay."""
