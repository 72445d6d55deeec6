"""A minibatch is cut into shards, one for each device."""

from __future__ import annotations

import ctypes
from typing import Any, List, Sequence, Tuple, Union

import numpy as onp
import numpy.typing as npt

from mxdp.backend import Device, NDArray, mx, np
from mxdp.plans.bounds import bounds

HostArray = npt.NDArray[Any]
Batch = Union[HostArray, NDArray]


def upload(host: HostArray, device: Device) -> NDArray:
    """A copy of a NumPy array, in whatever layout and byte order, on ``device``. Doesn't wait.

    ``host`` may be written to as soon as this returns.

    ``np.array(host, ctx=device)`` gives the same, but queues an empty job on ``cpu(0)`` and waits for it: for as long
    as what runs there takes, whichever device is meant (MXNet's ``NDArray::WaitToWrite``). Here the bytes go into a new
    array, on which nothing can be pending. A GPU's copy then starts from that array, in the background (not run on a
    GPU).
    """
    host = onp.asarray(host, dtype=host.dtype.newbyteorder("="), order="C")
    on_cpu = device.device_type == "cpu"
    array = np.empty(host.shape, dtype=host.dtype, ctx=device if on_cpu else mx.cpu())
    if host.size:
        pointer = ctypes.c_void_p()
        mx.base.check_call(mx.base._LIB.MXNDArrayGetData(array.handle, ctypes.byref(pointer)))
        ctypes.memmove(pointer, host.ctypes.data, host.nbytes)
    return array if on_cpu else array.copyto(device)


def split_and_load(x: Batch, devices: Sequence[Device]) -> List[NDArray]:
    """Cut ``x`` along its first axis into one shard for each device, and copy each shard to its device.

    The shards' lengths differ by one at most, the longer ones first; nothing is dropped. ``x`` may be a NumPy array
    (read before this returns, so that its memory may be used again) or an MXNet array (copied in the background).
    Source: the book's use of ``gluon.utils.split_and_load``, which refuses uneven batches.

    Raises:
        ValueError: no devices, or fewer samples than devices.
    """
    if not devices:
        raise ValueError("split_and_load needs at least one device, and the list of devices is empty")
    samples = len(x) if x.ndim else 0
    if samples < len(devices):
        raise ValueError(
            f"can't split a batch of {samples} over {len(devices)} devices: each needs at least one sample; "
            "use a larger batch or fewer devices"
        )
    pieces = zip(bounds(samples, len(devices)), devices)
    if isinstance(x, onp.ndarray):
        return [upload(x[start:stop], device) for (start, stop), device in pieces]
    return [x[start:stop].copyto(device) for (start, stop), device in pieces]


def split_batch(X: Batch, y: Batch, devices: Sequence[Device]) -> Tuple[List[NDArray], List[NDArray]]:
    """Split samples ``X`` and labels ``y`` alike: ``(X_shards, y_shards)``.

    Raises:
        ValueError: ``X`` and ``y`` differ in length, or as :func:`split_and_load`.
    """
    if X.shape[:1] != y.shape[:1]:
        raise ValueError(f"X has {X.shape[0]} samples and y has {y.shape[0]} labels: they must be as many")
    return split_and_load(X, devices), split_and_load(y, devices)
