"""The form that all strategies to split a network have in common."""

from __future__ import annotations

from typing import List, Protocol

from mxdp.backend import Batch, NDArray
from mxdp.layers import LayerParams


class Strategy(Protocol):
    """One network on several devices. A method waits only if its docstring says so.

    A strategy is made from ``(net, params, input_shape, devices)`` and its own options: ``input_shape`` is that of one
    sample, and ``devices`` are one or more. ``params`` come from :func:`mxdp.layers.init`; the strategy copies them, or
    parts of them, to its devices.
    """

    def step(self, X: Batch, y: Batch) -> NDArray:
        """Forward and backward pass of a batch: the losses (samples,), in the batch's order, on the first device.

        Afterwards each gradient is the sum over the whole batch, and tied parameters have equal gradients.
        """

    def update(self, lr: float, batch_size: int) -> None:
        """The same SGD step on every parameter: ``param -= lr / batch_size * gradient``."""

    def scores(self, X: Batch) -> NDArray:
        """Forward pass alone: (samples, outputs) on the first device."""

    def params(self) -> List[LayerParams]:
        """The parameters, joined where they are split, in the layout of :func:`mxdp.layers.init`. Waits."""

    def gradients(self) -> List[LayerParams]:
        """The gradients of the last step, in the same layout. Waits."""

    def in_step(self) -> bool:
        """Are tied parameters equal on all devices, bit for bit? Waits."""

    def bytes_moved(self, batch_size: int) -> int:
        """Bytes that one step of ``batch_size`` samples sends between devices, all messages together."""

    def param_bytes(self) -> List[int]:
        """Bytes of the parameters on each device. The gradients take as many again."""

    def lasting_bytes(self, batch_size: int) -> List[int]:
        """Bytes that stay on each device from step to step: parameters, gradients, and buffers that are kept."""

    def peak_bytes(self, batch_size: int) -> List[int]:
        """Predicted: the most bytes that :meth:`step` uses at a time on each device, without the lasting ones."""
