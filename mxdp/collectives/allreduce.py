"""All-reduce: afterwards every device holds the sum of all devices' arrays."""

from __future__ import annotations

from numbers import Real
from typing import List, Optional, Sequence, Tuple

import numpy as onp

from mxdp.backend import NDArray
from mxdp.collectives.program import Program, as_vector, chunk_views, divisions
from mxdp.collectives.tuning import plan_for
from mxdp.engine import Call, plain_layout
from mxdp.plans.cost.machine import Machine


class AllReduce:
    """An all-reduce that is prepared once and then called many times on the same arrays.

    The constructor waits for arrays of 2 MiB and more if they are summed in shared memory
    (:mod:`mxdp.collectives.in_place`). Don't write to such arrays with an operator that stores its results in a layout
    of its own, such as a convolution with ``out``.

    ``machine``: speeds for ``"auto"``, as :func:`mxdp.calibrate` measures them. All else, errors too: as for
    :func:`allreduce`.
    """

    def __init__(
        self,
        data: Sequence[NDArray],
        algorithm: str = "ring",
        op: str = "sum",
        machine: Optional[Machine] = None,
    ) -> None:
        check_alike(data, "allreduce")
        self.algorithm, self._calls = prepare_allreduce(data, algorithm, op, machine, again=True)

    def __call__(self) -> None:
        """Sum, in place; doesn't wait."""
        for call in self._calls:
            call()


def allreduce(data: Sequence[NDArray], algorithm: str = "ring", op: str = "sum") -> None:
    """Sum ``data`` in place: each array becomes the sum of all arrays.

    Doesn't wait: MXNet starts each sum when its inputs are ready. All devices get the same bits; another algorithm may
    give other last bits, since it adds in another order. The ring is easy to follow but not the fastest: for the
    gradients of LeNet and ResNet-18 on four CPU devices it takes longer than MXNet's ``device`` store, and ``"auto"``
    less (experiment ``buckets``).

    Args:
        data: one array on each device, all of one shape and dtype (float16/32/64 or int32/64); empty arrays too.
        algorithm: a name in ``ALGORITHMS``, or ``"auto"``: the one with the least predicted time.
        op: ``"sum"``, or ``"mean"``: the sum divided by the number of arrays (floats only).

    Raises:
        ValueError: an empty list, different shapes or dtypes, two arrays on the same device, an unknown algorithm or
            op, or ``"shared-memory"`` on other than CPU devices.
    """
    check_alike(data, "allreduce")
    _, calls = prepare_allreduce(data, algorithm, op, machine=None, again=False)
    for call in calls:
        call()


def prepare_allreduce(
    data: Sequence[NDArray], algorithm: str, op: str, machine: Optional[Machine], again: bool
) -> Tuple[str, List[Call]]:
    """The algorithm's name, and the calls that sum. ``data`` is not checked: several arrays may lie on one device."""
    size = data[0].size
    itemsize = onp.dtype(data[0].dtype).itemsize
    devices = [x.ctx for x in data]
    algorithm, schedule = plan_for(algorithm, devices, [size], itemsize, machine)
    if not size:
        return algorithm, divisions(data, op)
    vectors = [as_vector(x) for x in data]
    chunks = [chunk_views(schedule, vector) for vector in vectors]
    calls = [*Program(schedule, chunks, again).calls, *divisions(vectors, op)]
    if again:
        # The arrays may get another layout between two calls. For the first, `as_vector` has restored the default one.
        calls = [*plain_layout(data), *calls]
    return algorithm, calls


def check_alike(data: Sequence[NDArray], who: str) -> None:
    """Raise a ValueError that begins with ``who`` unless all arrays, at least one, have one shape and dtype, and no two
    share a device."""
    if not data:
        raise ValueError(f"{who} needs at least one array, and the list is empty")
    if onp.dtype(data[0].dtype) == onp.bool_:
        raise ValueError(f"{who} needs numbers to sum, not bool: data.astype('int32')")
    shapes = [str(x.shape) for x in data]
    dtypes = [str(onp.dtype(x.dtype)) for x in data]
    for what, values in (("shape", shapes), ("dtype", dtypes)):
        if len(set(values)) > 1:
            raise ValueError(f"{who} needs arrays of one {what}, not {', '.join(values)}")
    devices = [str(x.ctx) for x in data]
    if len(set(devices)) < len(devices):
        raise ValueError(
            f"{who} needs arrays on different devices, not on {', '.join(devices)}: "
            f"mxdp.devices({len(devices)}) gives different ones"
        )


def check_bucket_mb(bucket_mb: float) -> None:
    """Raise a ValueError unless it is a number more than 0."""
    if isinstance(bucket_mb, bool) or not isinstance(bucket_mb, Real) or not bucket_mb > 0:
        raise ValueError(
            f"bucket_mb must be more than 0, not {bucket_mb!r}: a number of MiB, or math.inf"
        )
