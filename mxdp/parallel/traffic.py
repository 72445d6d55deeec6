"""Helpers of all strategies: copies from device to device, counted, and batch statistics over all devices.

MXNet differentiates a copy into a copy the other way, so gradients flow back through the copies by themselves.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Iterable, List, Sequence, Tuple

import numpy as onp

from mxdp.backend import Batch, Device, Devices, NDArray, autograd, check_arrays, mx, np, upload
from mxdp.collectives.tuning import plan_for
from mxdp.layers import BatchNorm, Conv, Dense, LayerParams, Net, Residual, Shape, moments
from mxdp.scratch import Arrays

FORWARD = "forward"
BACKWARD = "backward"
NetParams = Sequence[LayerParams]
"""For each layer a list of its parameters."""
Moments = Tuple[NDArray, NDArray]
"""Mean and variance of each channel, in the shape that :func:`mxdp.layers.moments` gives them."""


class Traffic:
    """Counts one step's messages between devices and their bytes, by (what, direction). An all-reduce counts as one."""

    def __init__(self) -> None:
        self.messages: Counter[Tuple[str, str]] = Counter()
        self.nbytes: Counter[Tuple[str, str]] = Counter()

    def clear(self) -> None:
        """Begin a new step."""
        self.messages.clear()
        self.nbytes.clear()

    def note(self, what: str, direction: str, nbytes: int) -> None:
        """Count one message."""
        self.messages[what, direction] += 1
        self.nbytes[what, direction] += nbytes

    def send(self, x: NDArray, device: Device, what: str, back: bool) -> NDArray:
        """``x`` if it is on ``device``, else a copy there. Doesn't wait. With ``back``, while autograd records, the
        gradient's message counts, too."""
        if x.ctx == device:
            return x
        self.note(what, FORWARD, nbytes(x))
        if back and autograd.is_recording():
            self.note(what, BACKWARD, nbytes(x))
        return x.as_in_ctx(device)

    def add(self, other: Traffic) -> None:
        """Add the counts of another object."""
        self.messages.update(other.messages)
        self.nbytes.update(other.nbytes)

    def total(self) -> int:
        """All bytes."""
        return sum(self.nbytes.values())


def set_apart(x: NDArray, back: bool) -> NDArray:
    """A copy of ``x`` on its own device if autograd records and the gradient is needed (``back``), else ``x`` itself.
    It lets the devices work at the same time in the backward pass. There MXNet runs up to 15 operators of a device as
    one bulk, which starts when all its inputs are ready. One bulk would span a layer's backward pass, the sum with
    gradients from other devices, and the layer before. A copy is never part of a bulk, so it ends it."""
    return x.copyto(x.ctx) if back and autograd.is_recording() else x


def nbytes(x: NDArray) -> int:
    """Bytes of an array."""
    return int(x.size) * itemsize(x)


def itemsize(x: NDArray) -> int:
    """Bytes of one number of an array."""
    return int(onp.dtype(x.dtype).itemsize)


def elements(shape: Shape) -> int:
    """How many numbers an array of that shape holds; 1 for ``()``."""
    return int(onp.prod(shape, dtype="int64"))


def sizes(shapes: Sequence[Shape], samples: int) -> List[int]:
    """How many numbers as many samples of each of these shapes hold."""
    return [samples * elements(shape) for shape in shapes]


def flat(params: Iterable[Arrays]) -> Arrays:
    """The parameters of all layers in one list."""
    return [param for layer in params for param in layer]


def like(layers: Sequence[Sequence[object]], arrays: Arrays) -> NetParams:
    """The opposite of :func:`flat`: the first of ``arrays``, in lists as long as those of ``layers``."""
    rest = iter(arrays)
    return [list(islice(rest, len(layer))) for layer in layers]


def joined(parts: Sequence[NDArray], axis: int = 0) -> NDArray:
    """Arrays on one device, side by side."""
    return np.concatenate(parts, axis=axis) if len(parts) > 1 else parts[0]


def copy_to(x: Batch, device: Device) -> NDArray:
    """A copy of a batch, or of a part of one, on ``device``. Doesn't wait."""
    return upload(x, device) if isinstance(x, onp.ndarray) else x.copyto(device)


def to_host(layers: NetParams) -> NetParams:
    """Copies on ``cpu(0)``. Waits."""
    copies = [array.copyto(mx.cpu(0)) for array in flat(layers)]
    for array in copies:
        array.wait_to_read()
    return like(layers, copies)


def has_gradient(net: Net) -> List[bool]:
    """For each layer, and for the loss, whether its input has a gradient: behind the first layer with parameters.

    >>> from mxdp.layers import Pool
    >>> has_gradient([Pool(2), Dense(3), Dense(2)])
    [False, False, True, True]
    """
    seen = [isinstance(layer, (Conv, Dense, BatchNorm, Residual)) for layer in net]
    return [any(seen[:number]) for number in range(len(seen) + 1)]


def check_label_count(X: Batch, y: Batch) -> None:
    """Raise a TypeError unless both are arrays, a ValueError unless there is a label for each sample."""
    check_arrays(X=X, y=y)
    if X.shape[:1] != y.shape[:1]:
        raise ValueError(
            f"X has {X.shape[0]} samples and y has {y.shape[0]} labels: they must be as many"
        )


def allreduce_bytes(algorithm: str, devices: Devices, count: int, itemsize: int) -> int:
    """Bytes that all devices together move in an all-reduce of ``count`` numbers, by copies or by direct reads."""
    if not count:
        return 0
    _, schedule = plan_for(algorithm, devices, [count], itemsize)
    lengths = [stop - start for start, stop in schedule.borders(count)]
    return itemsize * sum(lengths[send.chunk] for step in schedule.steps for send in step)


def moments_of_all(xs: Arrays, traffic: Traffic, back: bool) -> List[Moments]:
    """Mean and variance of each channel over all samples and pixels of all ``xs``; a copy of both for each device.

    ``xs``: parts of one batch, each (samples, channels, height, width) and on a device of its own; sizes may differ.
    Device i sends its mean m_i and variance v_i; its share of the numbers is w_i. The first device computes the mean
    m = sum w_i m_i and the variance sum w_i (v_i + (m_i - m)^2), and sends both back. It subtracts no large sums, as
    "mean of squares less squared mean" would. (Source: Chan, Golub and LeVeque, as in :mod:`mxdp.parallel.batch_norm`.)
    """
    parts = [moments(x) for x in xs]
    if len(xs) == 1:
        return parts
    first = xs[0].ctx
    total = sum(x.size for x in xs)
    shares = [x.size / total for x in xs]
    own, *others = [np.concatenate(part) for part in parts]
    arrived = [set_apart(own, back)]
    arrived += [traffic.send(pair, first, "statistics", back) for pair in others]
    # The first device's pair is added last. In backward MXNet then serves the other devices first.
    weighed = list(zip(shares, arrived))[::-1]
    mean = sum(share * pair[:1] for share, pair in weighed)
    variance = 0
    for share, pair in weighed:
        variance = variance + share * (pair[1:] + (pair[:1] - mean) ** 2)
    both = np.concatenate([mean, variance])
    sent = [set_apart(both, back)]
    sent += [traffic.send(both, x.ctx, "statistics", back) for x in xs[1:]]
    return [(pair[:1], pair[1:]) for pair in sent]
