"""Replicas: one full copy of the parameters on each device."""

from __future__ import annotations

from typing import List, Sequence

from mxdp.backend import Device, NDArray


def get_params(params: Sequence[NDArray], device: Device) -> List[NDArray]:
    """Copy ``params`` to ``device`` and give each copy a gradient array (``attach_grad``), which starts at zero.

    Returns at once: MXNet copies in the background. Source: the book's function of the same name.
    """
    replica = [param.copyto(device) for param in params]
    for param in replica:
        param.attach_grad()
    return replica


def in_sync(device_params: Sequence[Sequence[NDArray]]) -> bool:
    """Are all replicas equal bit for bit? Waits for every parameter and brings it to the host.

    Bits, not values: a NaN equals itself here, and 0.0 differs from -0.0.
    """
    first, *others = ([param.asnumpy() for param in replica] for replica in device_params)
    return all(
        len(first) == len(other)
        and all(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(first, other))
        for other in others
    )
