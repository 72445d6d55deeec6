"""Replicas: one full copy of the parameters on each device."""

from __future__ import annotations

from itertools import zip_longest
from typing import List, Optional, Sequence

from mxdp.backend import Device, NDArray
from mxdp.batches import HostArray


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

    Bits, not values: a NaN equals itself here, and 0.0 differs from -0.0. Which arrays differ: :func:`out_of_sync`.

    Leave out the running mean and variance of a batch normalisation. Each device has those of its own shards, they are
    never summed, and so they differ where everything is right. In gluon these are the parameters whose ``grad_req`` is
    ``"null"``.
    """
    return not out_of_sync(device_params)


def out_of_sync(device_params: Sequence[Sequence[NDArray]]) -> List[int]:
    """The numbers of the parameters that are not the same bits in all replicas; ``[]`` if all are. Waits as
    :func:`in_sync` does.

    A parameter that some replicas lack counts as different.
    """
    hosts = [[param.asnumpy() for param in replica] for replica in device_params]
    same = (all(_same_bits(first, other) for other in others) for first, *others in zip_longest(*hosts))
    return [number for number, equal in enumerate(same) if not equal]


def _same_bits(a: Optional[HostArray], b: Optional[HostArray]) -> bool:
    if a is None or b is None:
        return False
    return a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes()
